// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cinnabar::shm {

// Copies between processes of one user (process_vm_readv(2)).

/// Lets other processes of this user copy from and to this one where Yama would forbid it
/// (prctl(2), PR_SET_PTRACER); once, before the first peer in another process is greeted. Without
/// CINNABAR_PTRACER only a process that has its user to itself (`isAlone`) and no secrets does so.
void permitProcessCopies();

/// This process has secrets: it gives no such permission, and revokes the one that it gave by
/// itself.
void withholdProcessCopies();

/// Whether all processes of this user are in the control group of this one, as in a container or a
/// service with a user of its own. `proc` is where proc(5) is.
bool isAlone(const std::string& proc = "/proc");

/// The process that may access this one's memory: the choice of CINNABAR_PTRACER, a process by its
/// number or as "parent"; its descendants may, too. Other values permit every process
/// (PR_SET_PTRACER_ANY).
unsigned long permittedTracer(std::string_view choice, pid_t parent);

/// Whether copies to and from `pid` work: the peer sent `proof` and its address `at`.
bool canCopy(pid_t pid, uint64_t at, uint64_t proof);

/// Copies pairs of runs, each pair of one length; at most IOV_MAX of them. 0, or an errno. `*done`
/// is the number of bytes that certainly moved. Uses up the vectors.
int copyFrom(pid_t pid, iovec* local, iovec* remote, size_t count, uint64_t* done);
int copyTo(pid_t pid, iovec* local, iovec* remote, size_t count, uint64_t* done);

}  // namespace cinnabar::shm
