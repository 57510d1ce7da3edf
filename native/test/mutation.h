// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace cinnabar::test {

/// How many messages a test tries that mutates some. CINNABAR_FUZZ_MESSAGES asks for more.
inline long mutatedMessages() {
  const char* asked = std::getenv("CINNABAR_FUZZ_MESSAGES");
  return asked != nullptr ? std::atol(asked) : 20'000;
}

/// Numbers that look random and are the same in each run.
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed) {}

  uint32_t next() {
    state_ = state_ * 1664525 + 1013904223;
    return state_ >> 8;
  }
  uint32_t below(size_t limit) { return next() % static_cast<uint32_t>(limit); }
  bool oneIn(uint32_t times) { return below(times) == 0; }

  std::vector<uint8_t> bytes(size_t length) {
    std::vector<uint8_t> bytes(length);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(next());
    return bytes;
  }

  /// Changes some of the bytes up to `limit`: a bit, an edge value, a run of others, or the length.
  void mutate(std::vector<uint8_t>& bytes, size_t limit) {
    constexpr uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff};
    size_t at = below(std::min(limit, bytes.size()));
    switch (below(5)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1 << below(8));
        break;
      case 1:
        bytes[at] = kTelling[below(sizeof kTelling)];
        break;
      case 2:
        for (size_t end = std::min(bytes.size(), at + 1 + below(16)); at < end; ++at)
          bytes[at] = static_cast<uint8_t>(next());
        break;
      case 3:
        bytes.resize(at + 1);
        break;
      default: {
        std::vector<uint8_t> more = this->bytes(1 + below(40));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
      }
    }
  }

 private:
  uint32_t state_;
};

}  // namespace cinnabar::test
