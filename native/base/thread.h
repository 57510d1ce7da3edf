// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <pthread.h>

#include <functional>

namespace cinnabar::base {

/// A thread that serves a port. Not std::thread, which throws if no thread can
/// start: nothing may throw here.
class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// Whether a thread could be started. It takes no signals but SIGBUS of its own accesses: other
  /// signals are for threads that handle them.
  bool start(std::function<void()> body);
  bool runs() const { return static_cast<bool>(body_); }
  /// Waits for the thread's end, if the thread runs. Its owner has asked it to end before.
  void join();

 private:
  std::function<void()> body_;
  pthread_t thread_{};
};

}  // namespace cinnabar::base
