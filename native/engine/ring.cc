// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/ring.h"

namespace cinnabar::engine {

void Ring::push(const Entry& entry, uint32_t slot) {
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
}

}  // namespace cinnabar::engine
