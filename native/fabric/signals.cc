// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/signals.h"

namespace cinnabar::fabric {
namespace {
std::mutex handlersMutex;
}

SignalKeeper::SignalKeeper() : lock_(handlersMutex) {
  for (int signal = 1; signal < kStandardSignals; ++signal)
    sigaction(signal, nullptr, &saved_[signal]);
}

SignalKeeper::~SignalKeeper() {
  for (int signal = 1; signal < kStandardSignals; ++signal) {
    struct sigaction now;
    if (sigaction(signal, nullptr, &now) != 0) continue;
    const struct sigaction& before = saved_[signal];
    bool same = now.sa_handler == before.sa_handler && now.sa_flags == before.sa_flags;
    if (!same) sigaction(signal, &before, nullptr);
  }
}

}  // namespace cinnabar::fabric
