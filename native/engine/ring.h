// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace cinnabar::engine {

// The layout is a contract with src/fabric/ring.ts.
constexpr uint32_t kRingEntries = 1024;
constexpr uint32_t kEntryWords = 8;
constexpr uint32_t kHeaderWords = 16;
constexpr size_t kRingBytes = (kHeaderWords + kRingEntries * kEntryWords) * sizeof(uint32_t);

enum class Completion : uint32_t {
  message = 1,
  sent = 2,
  transfer = 3,
  peerGone = 4,
  notification = 5,
  // token: connections for lack of descriptors, in all; bytes: those for what they sent
  turnedAway = 6,
  /// The message in a send slot waits elsewhere, and the slot is free again. `sent` follows with
  /// the token in `high`.
  parked = 7,
  /// The connection with the peer of an address (token) has ended. The peer may live.
  disconnected = 8
};

struct Entry {
  Completion kind;
  uint32_t status = 0;
  uint32_t token = 0;
  uint32_t bytes = 0;
  uint32_t providerError = 0;
  // notification: the upper half of its data, of which token is the lower; parked: the token of
  // the `sent` that follows
  uint32_t high = 0;
};

/// Writes completions into the ring that JavaScript reads. Does not own the memory.
///
/// The reader's thread is the one that calls `reclaim`. Another thread, such as the guard, may
/// write meanwhile. The writer knows the reader's position from the last `reclaim` and reads
/// nothing else that the reader writes. The reader looks at new entries only after it was notified.
///
/// What JavaScript writes is not trusted. Only the head word is read. A head outside of the written
/// entries counts as "nothing consumed". The receive slot of an entry is remembered here, not read
/// back.
class Ring {
 public:
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  explicit Ring(uint32_t* words) : words_(words) {}

  /// Entries that the reader had not passed at the last `reclaim`.
  uint32_t readable() const { return tail_ - reclaimed_; }
  /// Whether one of them reports more than a sent message.
  bool hasNews() const { return static_cast<int32_t>(newsTail_ - reclaimed_) > 0; }
  /// The position after the last such entry ever written, mod 2^32.
  uint32_t newsTail() const { return newsTail_; }
  uint32_t room() const { return kRingEntries - readable(); }
  /// Entries ever written, mod 2^32.
  uint32_t tail() const { return tail_; }
  /// A spin yielded the processor and got it back so late.
  void countLost(std::chrono::nanoseconds away) {
    lostUs_ += static_cast<uint32_t>(away / std::chrono::microseconds(1));
    words_[2] = lostUs_;
  }
  /// A spin has met its event.
  void countCaught() { words_[3] = ++caught_; }

  /// `slot` is the receive slot that a message lends to the reader. The caller has checked that the
  /// ring has room.
  void push(const Entry& entry, uint32_t slot = kNoSlot) {
    uint32_t position = tail_ % kRingEntries;
    uint32_t* words = words_ + kHeaderWords + position * kEntryWords;
    words[0] = static_cast<uint32_t>(entry.kind);
    words[1] = entry.status;
    words[2] = entry.token;
    words[3] = entry.bytes;
    words[4] = entry.providerError;
    words[5] = entry.high;
    slots_[position] = slot;
    words_[0] = ++tail_;
    if (entry.kind != Completion::sent || entry.status != 0) newsTail_ = tail_;
  }

  /// Calls `back(slot)` for the receive slot of every entry that the head has passed since the last
  /// call.
  template <typename F>
  void reclaim(F&& back) {
    for (uint32_t end = head(); reclaimed_ != end; ++reclaimed_) {
      uint32_t slot = slots_[reclaimed_ % kRingEntries];
      if (slot != kNoSlot) back(slot);
    }
    if (!hasNews()) newsTail_ = reclaimed_;
  }

 private:
  uint32_t head() const {
    uint32_t head = words_[1];
    return tail_ - head <= tail_ - reclaimed_ ? head : reclaimed_;
  }

  uint32_t* words_;
  uint32_t tail_ = 0;
  uint32_t newsTail_ = 0;  // behind the last entry that is news
  uint32_t lostUs_ = 0;
  uint32_t caught_ = 0;
  uint32_t reclaimed_ = 0;
  std::array<uint32_t, kRingEntries> slots_{};
};

/// The ring, and the completions that found it full.
class Completions {
 public:
  explicit Completions(uint32_t* words) : ring(words) {}

  /// For the provider's completions, which stay in its queue while there is no room.
  Ring ring;

  void deliver(const Entry& entry) {
    if (overflow_.empty() && ring.room() > 0) {
      ring.push(entry);
    } else {
      overflow_.push_back(entry);
    }
  }
  void flush() {
    while (!overflow_.empty() && ring.room() > 0) {
      ring.push(overflow_.front());
      overflow_.pop_front();
    }
  }
  bool hasOverflow() const { return !overflow_.empty(); }

  /// Entries that the reader has not passed, and the most at any `noteLevel` so far.
  uint32_t unread() const { return ring.readable() + static_cast<uint32_t>(overflow_.size()); }
  uint32_t mostUnread() const { return std::max(mostUnread_, unread()); }
  void noteLevel() { mostUnread_ = mostUnread(); }

 private:
  std::deque<Entry> overflow_;
  uint32_t mostUnread_ = 0;
};

}  // namespace cinnabar::engine
