// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/vouch.h"
#include "transport/transport.h"

namespace cinnabar::engine {

struct Address {
  bool used = false;
  bool forgotten = false;
  transport::Peer* peer = nullptr;
  transport::OperationQueue queue;
  uint32_t posted = 0;  // sends and parts of transfers at the provider
  uint32_t parked = 0;  // sends without a slot
  uint64_t retryAt = 0;
  uint64_t pauseNs = 0;
  std::unique_ptr<Vouch> vouch;
};

/// A port's addresses, by number. A number is reused only after the ring was read: until then it
/// may hold completions of the former address.
class AddressTable {
 public:
  static constexpr uint32_t kMost = 1u << 20;

  bool isFull() const { return free_.empty() && all_.size() >= kMost; }
  uint32_t take(transport::Peer* peer) {
    uint32_t index = static_cast<uint32_t>(all_.size());
    if (free_.empty()) {
      all_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    all_[index] = Address();
    all_[index].used = true;
    all_[index].peer = peer;
    ++live_;
    return index;
  }
  void forget(Address& address) {
    address.forgotten = true;
    --live_;
  }
  /// Gives the number back, for after the ring was read.
  void giveBack(uint32_t index) {
    all_[index] = Address();
    worn_.push_back(index);
  }
  bool hasWorn() const { return !worn_.empty(); }
  void onRingRead() {
    free_.insert(free_.end(), worn_.begin(), worn_.end());
    worn_.clear();
  }

  Address& operator[](uint32_t index) { return all_[index]; }
  /// An address that is in use and not forgotten, or nullptr.
  Address* find(uint32_t index) {
    if (index >= all_.size()) return nullptr;
    Address& found = all_[index];
    return found.used && !found.forgotten ? &found : nullptr;
  }
  uint32_t size() const { return static_cast<uint32_t>(all_.size()); }
  uint32_t live() const { return live_; }
  uint32_t waitingOperations() const {
    uint32_t count = 0;
    for (uint32_t index : waiting) count += all_[index].queue.length();
    return count;
  }

  /// Addresses with a queue.
  std::vector<uint32_t> waiting;

 private:
  std::deque<Address> all_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> worn_;
  uint32_t live_ = 0;
};

}  // namespace cinnabar::engine
