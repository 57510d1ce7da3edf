// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace cinnabar::shm {

// Messages on shm always leave as injected pieces, which are copied into the receiver's shared
// memory at once. The provider's own way for large messages has the receiver copy out of the
// sender's memory and answer through a queue that is worked off strictly in order, so that one
// stopped or killed peer would hold up the completions of all others for ever. A message that fits
// into one piece travels bare; of a larger one each piece carries 64 bits beside its bytes (remote
// CQ data):
//
//   bits 63…32  the number the receiver gave to the sender
//   bit  31     set on the last piece
//   bits 30…0   offset of the piece in the message

constexpr uint64_t kLastFragment = uint64_t{1} << 31;
constexpr uint64_t kFragmentOffset = kLastFragment - 1;

constexpr uint64_t fragmentTag(uint32_t sender, uint64_t offset, bool last) {
  return uint64_t{sender} << 32 | (last ? kLastFragment : 0) | offset;
}

/// Puts pieces together again, one message a sender at a time. Pieces of one sender arrive in order
/// (FI_ORDER_SAS).
class Reassembly {
 public:
  explicit Reassembly(size_t slotBytes) : slotBytes_(slotBytes) {}

  enum class Outcome {
    more,      // kept; the piece's slot is free again
    complete,  // the whole message now lies in the last piece's slot
    tooLarge,  // was the last piece of a message larger than a slot
    garbage,   // belongs to nothing; dropped
  };

  /// `piece` is a receive slot that holds `bytes` bytes of the message; `whole` gets the message's
  /// length.
  Outcome add(uint64_t tag, uint8_t* piece, size_t bytes, size_t* whole);

  /// The sender is gone; what it began will not be finished.
  void drop(uint32_t sender) { partial_.erase(sender); }
  size_t pending() const { return partial_.size(); }

 private:
  struct Partial {
    std::vector<uint8_t> bytes;
    uint64_t have = 0;
  };

  size_t slotBytes_;
  std::unordered_map<uint32_t, Partial> partial_;
};

}  // namespace cinnabar::shm
