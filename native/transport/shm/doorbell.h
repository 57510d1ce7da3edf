// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"

namespace cinnabar::shm {

// shm has no wait object in any version, so a sleeper must be woken by its senders. Each port
// shares a page with its peers. A sender writes to the eventfd beside it only if the page says that
// the port sleeps. Sleeping is a Dekker handshake: the sleeper sets `asleep`, fences and polls once
// more; the sender posts, fences and reads `asleep`. At least one of them sees the other.

/// Laid out for peers of any build: fixed offsets, a cache line each.
struct DoorbellPage {
  alignas(64) std::atomic<uint32_t> asleep;
  /// Set by a peer that found this port's queue full and goes to sleep. This port rings back when
  /// it has drained its queue.
  alignas(64) std::atomic<uint32_t> starved;
  /// Odd while this port is in the middle of copying from or to a neighbour's memory; see keys.h.
  alignas(64) std::atomic<uint32_t> copying;
  /// Odd while this port is inside a post to a neighbour's queue; see stopped_queue.h.
  alignas(64) std::atomic<uint32_t> posting;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t kDoorbellBytes = 4096;

/// A port's own doorbell. Peers write to the page too, so its words are hints to look again, and no
/// more.
class Doorbell {
 public:
  /// nullptr if the system refuses; errno says why.
  static std::unique_ptr<Doorbell> create();
  ~Doorbell();

  int pageFd() const { return pageFd_.get(); }
  int eventFd() const { return eventFd_.get(); }

  void fallAsleep() {
    page_->asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void wake() { page_->asleep.store(0, std::memory_order_relaxed); }
  /// Whether a peer waits for room here; clears the word.
  bool takeStarved() {
    return page_->starved.load(std::memory_order_relaxed) != 0 && page_->starved.exchange(0) != 0;
  }
  /// Until `endCopy` has been called as often, this port may be touching a neighbour's memory. Look
  /// keys up in between: their owner clears a key, fences and reads the word, so that one of the
  /// two sees the other.
  void beginCopy() {
    if (copies_++ > 0) return;
    page_->copying.store(++copying_, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void endCopy() {
    if (--copies_ == 0) page_->copying.store(++copying_, std::memory_order_release);
  }
  /// Until `endPost` this port may have taken a place in a neighbour's queue and not yet filled it.
  /// Each store is ordered behind the post before it: a reader of a new number sees that post
  /// whole. The place is taken by an atomic exchange, which no store passes.
  void beginPost() { page_->posting.store(++posting_, std::memory_order_release); }
  void endPost() { page_->posting.store(++posting_, std::memory_order_release); }
  /// Empties the eventfd. Whether there was anything in it.
  bool drain();

 private:
  Doorbell(base::Fd page, base::Fd event, DoorbellPage* mapped)
      : pageFd_(std::move(page)), eventFd_(std::move(event)), page_(mapped) {}

  base::Fd pageFd_;
  base::Fd eventFd_;
  DoorbellPage* page_;
  uint32_t copying_ = 0;  // as written to the page
  uint32_t copies_ = 0;
  uint32_t posting_ = 0;  // as written to the page
};

/// A peer's doorbell, made of descriptors that the peer sent.
class RemoteDoorbell {
 public:
  /// Owns the descriptors from now on, whatever it returns. nullptr unless they are an eventfd and
  /// a page that cannot shrink under our mapping, which would raise SIGBUS.
  static std::unique_ptr<RemoteDoorbell> adopt(base::Fd page, base::Fd event);
  ~RemoteDoorbell();

  /// Call after every post to the peer.
  void ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (page_->asleep.load(std::memory_order_relaxed) != 0 && page_->asleep.exchange(0) != 0)
      write();
  }
  /// Asks the peer to ring back once it has drained its queue. Look once more for room afterwards,
  /// then sleep.
  void setStarved() {
    page_->starved.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// Odd while the peer is in the middle of a copy, and another number after each.
  uint32_t copying() const { return page_->copying.load(std::memory_order_acquire); }
  /// Odd while the peer is inside a post, and another number after each.
  uint32_t posting() const { return page_->posting.load(std::memory_order_acquire); }

 private:
  RemoteDoorbell(base::Fd event, DoorbellPage* mapped)
      : eventFd_(std::move(event)), page_(mapped) {}
  void write();

  base::Fd eventFd_;
  DoorbellPage* page_;
};

}  // namespace cinnabar::shm
