// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace cinnabar::engine {

// Copies between processes of one user without the provider (process_vm_readv(2)). The provider
// does the same beneath its RMA, but swallows the errors, blocks for the whole length, and leaves
// an entry in the peer's queue each time.

/// Lets other processes of this user copy from and to this one where Yama would forbid it
/// (prctl(2), PR_SET_PTRACER); once.
void permitProcessCopies();

/// Whether copies to and from `pid` work: the peer said that `proof` lies at `at`.
bool canCopy(pid_t pid, uint64_t at, uint64_t proof);

/// 0, or an errno; all or nothing is not promised on failure.
int copyFrom(pid_t pid, void* local, uint64_t remote, size_t bytes);
int copyTo(pid_t pid, const void* local, uint64_t remote, size_t bytes);

}  // namespace cinnabar::engine
