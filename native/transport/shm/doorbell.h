// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"

namespace cinnabar::shm {

// Only its senders can wake a sleeping port. Each port shares a page that its peers may read. A
// sender that reads there that the port sleeps sends a packet over the socket between the two.
// Sleeping is a Dekker handshake. The sleeper stores that it sleeps, fences and looks once more;
// the sender posts, fences and looks at the page. At least one of them sees the other's store.
//
// An eventfd would be cheaper. But all peers would share its open file description, so each of them
// could make it block, fill it or empty it. A port shares no end of its socket.

/// Laid out for peers of any build: fixed offsets, a cache line each. The port alone writes.
struct DoorbellPage {
  /// Odd while the port sleeps, and another number for each sleep.
  alignas(64) std::atomic<uint32_t> sleeps;
  /// Odd while the port is in the middle of copying from or to a neighbour's memory; see keys.h.
  alignas(64) std::atomic<uint32_t> copying;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t kDoorbellBytes = 4096;

/// A port's own doorbell.
class Doorbell {
 public:
  /// nullptr if the system refuses; errno says why.
  static std::unique_ptr<Doorbell> create();
  ~Doorbell();

  int pageFd() const { return pageFd_.get(); }

  void fallAsleep() {
    if (sleeps_ % 2 == 0) page_->sleeps.store(++sleeps_, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void wake() {
    if (sleeps_ % 2 != 0) page_->sleeps.store(++sleeps_, std::memory_order_relaxed);
  }
  /// Until `endCopy` has been called as often, this port may be touching a neighbour's memory. Look
  /// keys up in between. Their owner clears a key, fences and reads the word, so that one of the
  /// two sees the other's store.
  void beginCopy() {
    if (copies_++ > 0) return;
    page_->copying.store(++copying_, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void endCopy() {
    if (--copies_ == 0) page_->copying.store(++copying_, std::memory_order_release);
  }

 private:
  Doorbell(base::Fd page, DoorbellPage* mapped) : pageFd_(std::move(page)), page_(mapped) {}

  base::Fd pageFd_;
  DoorbellPage* page_;
  uint32_t sleeps_ = 0;   // as written to the page
  uint32_t copying_ = 0;  // likewise
  uint32_t copies_ = 0;
};

/// The result of a look for a ring.
enum class RingTaken { none, ring, ended };

/// Takes one ring of the peer out of a socket, without waiting. Ended: the socket is at its end, or
/// the bytes were not a ring.
RingTaken takeRing(int socket);

/// A peer's doorbell: a page that the peer sent, and the socket to it.
class RemoteDoorbell {
 public:
  /// Owns the page from now on, whatever it returns; the socket outlives this. nullptr unless the
  /// page keeps its size and only its owner can write it. A page that shrinks under our mapping
  /// would raise SIGBUS.
  static std::unique_ptr<RemoteDoorbell> adopt(base::Fd page, int socket);
  ~RemoteDoorbell();

  /// Call after every post to the peer. Rings once for each sleep.
  void ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    uint32_t sleeps = page_->sleeps.load(std::memory_order_relaxed);
    if (sleeps % 2 == 0 || sleeps == rung_) return;
    rung_ = sleeps;
    send();
  }
  /// Odd while the peer is in the middle of a copy, and another number after each.
  uint32_t copying() const { return page_->copying.load(std::memory_order_acquire); }

 private:
  RemoteDoorbell(int socket, const DoorbellPage* mapped) : socket_(socket), page_(mapped) {}
  void send();

  const int socket_;
  const DoorbellPage* page_;
  uint32_t rung_ = 0;  // the sleep that was ended last
};

}  // namespace cinnabar::shm
