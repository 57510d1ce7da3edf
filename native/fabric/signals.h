// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <signal.h>

#include <array>
#include <mutex>

namespace cinnabar::fabric {

/// Keeps a library call from leaving signal handlers behind.
///
/// Libraries beneath libfabric install handlers as they are loaded: PSM's ends the process with
/// exit code 1 on SIGTERM and SIGINT. Under Node that breaks both ways. A handler that JavaScript
/// installs later silently replaces theirs; an earlier one runs once and is then lost. So this
/// class restores the former dispositions.
class SignalKeeper {
 public:
  SignalKeeper();
  ~SignalKeeper();
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;

 private:
  static constexpr int kStandardSignals = 32;
  std::unique_lock<std::mutex> lock_;
  std::array<struct sigaction, kStandardSignals> saved_{};
};

}  // namespace cinnabar::fabric
