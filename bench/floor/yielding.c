// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
//
// Preloaded into fi_pingpong where both its ends share one processor. The tool polls and never gives the processor
// away, so each message would wait until the kernel takes it from the other end, by a clock of milliseconds. A device
// in software takes a lock for each look at its completion queue. The lock yields here, as the addon's port does
// between looks.
#include <pthread.h>
#include <sched.h>

int pthread_spin_lock(pthread_spinlock_t* lock) {
  do {
    sched_yield();
  } while (pthread_spin_trylock(lock) != 0);
  return 0;
}
