// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "fabric/memory.h"
#include "transport/transport.h"

namespace cinnabar::engine {

/// A port's slab: send slots, then receive slots. Does not own the bytes, which stay valid until
/// the port is closed.
class MessageSlots {
 public:
  MessageSlots(uint8_t* slab, uint32_t slotBytes, uint32_t sendSlots, uint32_t receiveSlots)
      : slab_(slab), slotBytes_(slotBytes), busy_(sendSlots), receives_(receiveSlots) {}

  /// Registers the slab if the transport needs that, and posts the receives. 0 or a negated error.
  int start(transport::Transport& transport) {
    transport_ = &transport;
    int status = transport.registerSlots(slab_, slabBytes(), &region_);
    if (status != 0) return status;
    for (uint32_t slot = 0; slot < receives_.size(); ++slot) {
      receives_[slot].slot = slot;
      post(slot);
    }
    return posted_ > 0 ? 0 : -FI_ENOMEM;
  }
  /// After the transport is closed.
  void stop() { region_.reset(); }

  uint32_t slotBytes() const { return slotBytes_; }
  uint8_t* at(uint64_t offset) const { return slab_ + offset; }
  void* descriptor() const { return region_ ? region_->descriptor() : nullptr; }
  uint64_t registeredBytes() const { return region_ ? slabBytes() : 0; }

  /// Takes the send slot of a message. 0 or a negated error.
  int takeSend(uint64_t offset, uint64_t bytes) {
    uint64_t slot = offset / slotBytes_;
    if (slot >= busy_.size() || bytes > slotBytes_ - offset % slotBytes_) return -FI_EINVAL;
    if (busy_[slot]) return -FI_EBUSY;
    busy_[slot] = true;
    ++busySends_;
    return 0;
  }
  void freeSend(uint64_t offset) {
    busy_[offset / slotBytes_] = false;
    --busySends_;
  }
  /// Whether more than half of the send slots hold messages that have not been sent.
  bool isScarce() const { return 2 * busySends_ > busy_.size(); }

  /// The offset of a receive slot in the slab.
  uint32_t offsetOf(uint32_t slot) const {
    return slotBytes_ * (static_cast<uint32_t>(busy_.size()) + slot);
  }
  /// Gives a receive slot to the transport, or keeps it for `retry`.
  void post(uint32_t slot) {
    ssize_t status = transport_->receive(at(offsetOf(slot)), slotBytes_, descriptor(),
                                         contextOf(receives_[slot]));
    if (status == 0) {
      ++posted_;
    } else {
      unposted_.push_back(slot);
    }
  }
  void retry() {
    if (unposted_.empty()) return;
    std::vector<uint32_t> slots;
    slots.swap(unposted_);
    for (uint32_t slot : slots) post(slot);
  }
  bool wantsRetry() const { return !unposted_.empty(); }
  /// The transport has completed one.
  void onReceived() { --posted_; }
  uint32_t posted() const { return posted_; }
  /// Receive slots that are not posted, and the most at any `noteLevel` so far.
  uint32_t used() const { return static_cast<uint32_t>(receives_.size()) - posted_; }
  uint32_t mostUsed() const { return std::max(mostUsed_, used()); }
  void noteLevel() { mostUsed_ = mostUsed(); }

 private:
  uint64_t slabBytes() const { return uint64_t{slotBytes_} * (busy_.size() + receives_.size()); }

  uint8_t* slab_;
  uint32_t slotBytes_;
  transport::Transport* transport_ = nullptr;
  std::unique_ptr<fabric::Region> region_;  // where the transport needs local registrations
  std::vector<bool> busy_;                  // send slots that belong to an operation
  size_t busySends_ = 0;                    // their number
  std::deque<transport::Receive> receives_;
  std::vector<uint32_t> unposted_;  // receive slots that the transport has not accepted yet
  uint32_t posted_ = 0;
  uint32_t mostUsed_ = 0;
};

}  // namespace cinnabar::engine
