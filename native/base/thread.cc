// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "base/thread.h"

#include <signal.h>

namespace cinnabar::base {

bool Thread::start(std::function<void()> body) {
  body_ = std::move(body);
  // A new thread inherits the mask.
  sigset_t all, before;
  sigfillset(&all);
  // The thread's own accesses to mapped files raise it (lost_pages.h). Blocked, it would end the
  // process.
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto main = [](void* self) -> void* {
    static_cast<Thread*>(self)->body_();
    return nullptr;
  };
  if (pthread_create(&thread_, nullptr, main, this) != 0) body_ = nullptr;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return runs();
}

void Thread::join() {
  if (!runs()) return;
  pthread_join(thread_, nullptr);
  body_ = nullptr;
}

}  // namespace cinnabar::base
