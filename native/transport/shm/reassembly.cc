// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/reassembly.h"

#include <cstring>

namespace cinnabar::shm {

Reassembly::Outcome Reassembly::add(uint64_t tag, uint8_t* piece, size_t bytes, size_t* whole) {
  uint32_t sender = static_cast<uint32_t>(tag >> 32);
  uint64_t offset = tag & kFragmentOffset;
  bool last = (tag & kLastFragment) != 0;
  Partial& partial = partial_[sender];
  // A sender that gave a message up half-way begins the next one at 0.
  if (offset == 0) partial.have = 0;
  if (offset != partial.have) {
    partial.have = 0;
    return Outcome::garbage;
  }
  partial.have += bytes;
  bool fits = partial.have <= slotBytes_;
  if (!last) {
    if (fits) {
      // Kept between messages: a sender of large messages sends more of them.
      if (partial.bytes.size() < slotBytes_) partial.bytes.resize(slotBytes_);
      memcpy(partial.bytes.data() + offset, piece, bytes);
    }
    return Outcome::more;
  }
  *whole = partial.have;
  partial.have = 0;
  if (!fits) return Outcome::tooLarge;
  // Nothing was kept of a message in one piece, and there may be no memory to copy from.
  if (offset == 0) return Outcome::complete;
  memmove(piece + offset, piece, bytes);
  memcpy(piece, partial.bytes.data(), offset);
  return Outcome::complete;
}

}  // namespace cinnabar::shm
