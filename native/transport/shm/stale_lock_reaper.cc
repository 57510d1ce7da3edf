// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/stale_lock_reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "fabric/patches.h"

namespace cinnabar::shm {
namespace {

// struct smr_region of those libfabric versions that have the quirk: 1.17 (include/ofi_shm.h there)
// and 2.1 (prov/shm/src/smr_util.h). 2.2 moved the lock and kept the number.
struct Layout {
  uint8_t version;
  size_t lockAt;
};
constexpr Layout kLayouts[] = {{4, 24}, {8, 56}};
constexpr size_t kVersionAt = 0;
constexpr size_t kPidAt = 4;
constexpr size_t kPageBytes = 4096;

// A lock is held for microseconds. In a dead process's region nothing is worth keeping; in ours a
// live peer may have lost its processor while it held the lock.
constexpr int kPeerPatienceMs = 10;
constexpr int kOwnPatienceMs = 500;
constexpr useconds_t kLookUs = 1000;

constexpr uint64_t kStopEvent = UINT64_MAX;

}  // namespace

std::unique_ptr<RegionHead> RegionHead::map(int locked, pid_t pid) {
  // Opened anew: a mapping keeps its open file alive and with it the file's lock (flock(2)), which
  // the caller gives back by closing its own, so that the file can be removed.
  std::string path = "/proc/self/fd/" + std::to_string(locked);
  base::Fd opened(open(path.c_str(), O_RDWR | O_CLOEXEC));
  int file = opened.get();
  struct stat info;
  if (fstat(file, &info) != 0 || info.st_size < static_cast<off_t>(kPageBytes)) return nullptr;
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) return nullptr;
  auto* bytes = static_cast<const uint8_t*>(page);
  int owner;
  memcpy(&owner, bytes + kPidAt, sizeof owner);
  for (const Layout& layout : kLayouts) {
    if (bytes[kVersionAt] == layout.version && owner == pid)
      return std::unique_ptr<RegionHead>(new RegionHead(page, layout.lockAt));
  }
  munmap(page, kPageBytes);
  return nullptr;
}

RegionHead::~RegionHead() { munmap(page_, kPageBytes); }

pthread_spinlock_t* RegionHead::lock() const {
  return reinterpret_cast<pthread_spinlock_t*>(static_cast<uint8_t*>(page_) + lockAt_);
}

std::unique_ptr<StaleLockReaper> StaleLockReaper::create(int ownRegion) {
  if (!fabric::allowsPatch(fabric::Patch::staleLocks)) return nullptr;
  auto own = RegionHead::map(ownRegion, getpid());
  if (!own) return nullptr;
  std::unique_ptr<StaleLockReaper> reaper(new StaleLockReaper(std::move(own)));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStopEvent;
  int epoll = reaper->epoll_.get();
  if (epoll < 0 || !reaper->stop_ ||
      epoll_ctl(epoll, EPOLL_CTL_ADD, reaper->stop_.get(), &event) != 0) {
    return nullptr;
  }
  if (!reaper->thread_.start([self = reaper.get()] { self->run(); })) return nullptr;
  fabric::notePatched(fabric::Patch::staleLocks);
  return reaper;
}

StaleLockReaper::StaleLockReaper(std::unique_ptr<RegionHead> own)
    : own_(std::move(own)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

StaleLockReaper::~StaleLockReaper() {
  if (!thread_.runs()) return;
  stopping_ = true;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void StaleLockReaper::watch(uint32_t id, pid_t pid, int region) {
  auto peer = std::make_unique<Peer>();
  peer->process = base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!peer->process) return;
  peer->region = RegionHead::map(region, pid);
  int process = peer->process.get();
  std::lock_guard lock(mutex_);
  peers_[id] = std::move(peer);
  epoll_event event{};
  event.events = EPOLLIN;  // the process has ended
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process, &event) != 0) peers_.erase(id);
}

void StaleLockReaper::forget(uint32_t id) {
  std::lock_guard lock(mutex_);
  auto found = peers_.find(id);
  if (found == peers_.end()) return;
  pollfd process{found->second->process.get(), POLLIN, 0};
  // One that lives has closed its port in good order, and holds nothing.
  if (poll(&process, 1, 0) == 0) peers_.erase(found);
}

std::unique_ptr<StaleLockReaper::Peer> StaleLockReaper::take(uint32_t id) {
  std::lock_guard lock(mutex_);
  auto found = peers_.find(id);
  if (found == peers_.end()) return nullptr;
  auto peer = std::move(found->second);
  peers_.erase(found);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer->process.get(), nullptr);
  return peer;
}

void StaleLockReaper::run() {
  for (;;) {
    epoll_event event;
    int count = epoll_wait(epoll_.get(), &event, 1, -1);
    if (stopping_) return;
    if (count != 1) continue;
    auto peer = take(static_cast<uint32_t>(event.data.u64));
    if (!peer) continue;
    if (peer->region) freeIfStuck(*peer->region, kPeerPatienceMs);
    freeIfStuck(*own_, kOwnPatienceMs);
  }
}

void StaleLockReaper::freeIfStuck(const RegionHead& region, int patienceMs) {
  for (int look = 0; look < patienceMs; ++look) {
    if (stopping_) return;
    if (pthread_spin_trylock(region.lock()) == 0) {
      pthread_spin_unlock(region.lock());
      return;
    }
    usleep(kLookUs);
  }
  pthread_spin_unlock(region.lock());
}

}  // namespace cinnabar::shm
