// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/signals.h"

namespace cinnabar::fabric {
namespace {
std::mutex mutex;
}

SignalKeeper::SignalKeeper() : lock_(mutex) {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &saved_[i]);
}

SignalKeeper::~SignalKeeper() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now;
    sigaction(kSignals[i], nullptr, &now);
    bool same = (now.sa_flags & SA_SIGINFO) == (saved_[i].sa_flags & SA_SIGINFO) &&
                now.sa_handler == saved_[i].sa_handler;
    if (!same) sigaction(kSignals[i], &saved_[i], nullptr);
  }
}

}  // namespace cinnabar::fabric
