// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <signal.h>

#include <array>
#include <mutex>

namespace cinnabar::fabric {

/// Keeps a library call from leaving signal handlers behind.
///
/// shm's first fi_endpoint of a process installs handlers for SIGBUS, SIGSEGV, SIGTERM and SIGINT
/// that unlink its files and then put back and run what was there before. Under Node that breaks
/// both ways: a handler that JavaScript installs later silently replaces shm's, one installed
/// earlier is run once and is then gone from libuv's point of view. So the dispositions are put
/// back as they were; a process that dies of a signal leaves its files, and the next open on the
/// machine sweeps them.
class SignalKeeper {
 public:
  SignalKeeper();
  ~SignalKeeper();
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;

 private:
  static constexpr std::array kSignals = {SIGBUS, SIGSEGV, SIGTERM, SIGINT,
                                          SIGHUP, SIGQUIT, SIGABRT, SIGPIPE};
  std::unique_lock<std::mutex> lock_;
  std::array<struct sigaction, kSignals.size()> saved_;
};

}  // namespace cinnabar::fabric
