// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "crypto/aead.h"

namespace cinnabar::engine {

// Where a message carries its session's mark: eight bytes that only the peer knows. A contract with
// src/wire/message.ts.
constexpr size_t kMarkAt = 8;
constexpr size_t kMarkBytes = 8;

// A sealed message of the guard: a header and the count of its messages, little-endian, both clear
// and authenticated; the text; the tag. A contract with src/security/sealing/sealed-message.ts.
constexpr size_t kSealedCountAt = 24;
constexpr size_t kSealedClearBytes = 32;
constexpr size_t kSealedBytes = 64;
// Far less than one key may seal, far more than a guard ever sends.
constexpr uint64_t kMostSealed = uint64_t{1} << 32;

/// The message that the guard sends for an absent reader. The owner makes the bytes, a whole
/// message, beforehand. The guard reads only the mark of incoming messages.
struct Vouch {
  uint64_t mark = 0;             // in the peer's messages to us, as it lies in memory
  std::vector<uint8_t> message;  // short enough to be injected; kSealedBytes long if it is sealed
  uint64_t everyNs = 0;          // between two answers
  uint64_t forNs = 0;            // how long of one absence the guard sends it
  bool asked = false;            // the peer has sent something in this absence
  uint64_t dueNs = 0;
  std::unique_ptr<crypto::Aead> seal;  // used here only, as each count is sealed once; or nullptr
  uint64_t sealed = 0;                 // how many messages were sealed
};

/// The addresses with a vouch.
struct Vouches {
  std::unordered_map<uint64_t, uint32_t> byMark;
  bool isAbsent = false;
};

/// The state after a turn in the reader's absence.
struct StandIn {
  enum class Next {
    again,  // more to do at once
    sleep,  // on the descriptor
    pause,  // no room for completions, so the descriptor may stay readable
  };
  Next next = Next::again;
  uint64_t untilNs = UINT64_MAX;  // the longest sleep, whatever the descriptor reports
};

}  // namespace cinnabar::engine
