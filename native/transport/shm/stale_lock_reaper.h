// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/fd.h"
#include "base/thread.h"

namespace cinnabar::shm {

/// The head of a shm region, and the lock in it.
class RegionHead {
 public:
  /// nullptr unless the file is a region of that process, of a layout that is known here.
  static std::unique_ptr<RegionHead> map(int locked, pid_t pid);
  ~RegionHead();

  pthread_spinlock_t* lock() const;
  const uint8_t* bytes() const { return static_cast<const uint8_t*>(page_); }

 private:
  RegionHead(void* page, size_t lockAt) : page_(page), lockAt_(lockAt) {}
  void* page_;
  size_t lockAt_;
};

/// Frees the locks of the dead.
///
/// In libfabric's shm regions there is a spin lock. In 1.17 it is held by a process that posts to
/// the region, and by the owner while it reads; in 2.1 by a process that takes a buffer of the
/// region or gives one back. A process that is killed at that moment leaves it locked, and
/// everybody who uses the region spins for ever, inside the provider. Nobody but another thread can
/// end that. This one sleeps until a peer's process ends, then looks at the two locks it may have
/// held, the one in its own region and the one in ours: what stays locked all the time is unlocked.
/// The dead one had either not yet published its message, or was through but for the unlocking, so
/// what the lock guards is sound but for a buffer that may be missing.
///
/// Ours may also be held by a live peer that was preempted, or stopped, so it gets much longer.
class StaleLockReaper {
 public:
  /// `ownRegion` is the file of our own region. nullptr where it is not needed or cannot work, as
  /// without a thread to be had.
  static std::unique_ptr<StaleLockReaper> create(int ownRegion);
  ~StaleLockReaper();

  /// Looks after a peer from now on. The file is needed during the call only.
  void watch(uint32_t id, pid_t pid, int region);
  /// The peer is gone. If its process has ended, its locks are still looked after.
  void forget(uint32_t id);

 private:
  struct Peer {
    base::Fd process;  // pidfd_open(2)
    std::unique_ptr<RegionHead> region;
  };

  explicit StaleLockReaper(std::unique_ptr<RegionHead> own);
  void run();
  std::unique_ptr<Peer> take(uint32_t id);
  void freeIfStuck(const RegionHead& region, int patienceMs);

  std::unique_ptr<RegionHead> own_;
  base::Fd epoll_;
  base::Fd stop_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::unordered_map<uint32_t, std::unique_ptr<Peer>> peers_;
  base::Thread thread_;
};

}  // namespace cinnabar::shm
