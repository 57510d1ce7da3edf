// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/process_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <cerrno>
#include <mutex>

namespace cinnabar::engine {
namespace {

using Copy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

int copyAll(Copy copy, pid_t pid, uint8_t* local, uint64_t remote, size_t bytes) {
  while (bytes > 0) {
    iovec here{local, bytes};
    iovec there{reinterpret_cast<void*>(remote), bytes};
    ssize_t done = copy(pid, &here, 1, &there, 1, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done == 0 ? EFAULT : errno;
    local += done;
    remote += static_cast<uint64_t>(done);
    bytes -= static_cast<size_t>(done);
  }
  return 0;
}

}  // namespace

void permitProcessCopies() {
  static std::once_flag once;
  // Fails harmlessly where Yama is absent.
  std::call_once(once, [] { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); });
}

bool canCopy(pid_t pid, uint64_t at, uint64_t proof) {
  uint64_t seen = 0;
  if (copyFrom(pid, &seen, at, sizeof seen) != 0 || seen != proof) return false;
  // Writing the same number back shows that writing is allowed too, and changes nothing.
  return copyTo(pid, &seen, at, sizeof seen) == 0;
}

int copyFrom(pid_t pid, void* local, uint64_t remote, size_t bytes) {
  return copyAll(process_vm_readv, pid, static_cast<uint8_t*>(local), remote, bytes);
}

int copyTo(pid_t pid, const void* local, uint64_t remote, size_t bytes) {
  return copyAll(process_vm_writev, pid, const_cast<uint8_t*>(static_cast<const uint8_t*>(local)),
                 remote, bytes);
}

}  // namespace cinnabar::engine
