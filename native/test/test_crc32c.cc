// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "base/crc32c.h"

using namespace cinnabar::base;

namespace {

/// Bit by bit, as the definition says.
uint32_t slowly(const uint8_t* bytes, size_t length, uint32_t seed) {
  uint32_t crc = ~seed;
  for (size_t i = 0; i < length; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

std::vector<uint8_t> pattern(size_t length) {
  std::vector<uint8_t> bytes(length);
  uint32_t state = 1;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

}  // namespace

TEST_SUITE("crc32c") {
  TEST_CASE("gives RFC 3720's examples") {
    uint8_t bytes[32];
    auto both = [&](uint32_t expected) {
      CHECK(crc32c(bytes, sizeof bytes, 0) == expected);
      CHECK(crc32cByTable(bytes, sizeof bytes, 0) == expected);
    };
    memset(bytes, 0, sizeof bytes);
    both(0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    both(0x62a8ab43);
    for (uint8_t i = 0; i < 32; ++i) bytes[i] = i;
    both(0x46dd794e);
    for (uint8_t i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(31 - i);
    both(0x113fdb5c);
    // A SCSI Read (10) command PDU.
    const uint8_t command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0,
                                 0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 20, 0, 0, 0, 0x18,
                                 0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,  0, 0, 0, 0};
    CHECK(crc32c(command, sizeof command, 0) == 0xd9963a56);
    CHECK(crc32cByTable(command, sizeof command, 0) == 0xd9963a56);
  }

  TEST_CASE("is the same by the instruction and by the tables, at all lengths and alignments") {
    MESSAGE("instruction: " << hasCrc32cInstruction());
    std::vector<uint8_t> bytes = pattern(400);
    for (size_t at = 0; at < 16; ++at) {
      for (size_t length = 0; length <= 300; ++length) {
        uint32_t expected = slowly(bytes.data() + at, length, 5);
        REQUIRE(crc32c(bytes.data() + at, length, 5) == expected);
        REQUIRE(crc32cByTable(bytes.data() + at, length, 5) == expected);
      }
    }
  }

  TEST_CASE("joins its streams right, on both sides of each length where their number changes") {
    std::vector<uint8_t> bytes = pattern(100'000);
    for (size_t edge : {768, 1536, 12288, 12288 + 768, 24576, 99'990}) {
      for (size_t length = edge - 9; length <= edge + 9; ++length) {
        REQUIRE(crc32c(bytes.data() + 1, length, 0) == slowly(bytes.data() + 1, length, 0));
      }
    }
  }

  TEST_CASE("continues where it was left") {
    std::vector<uint8_t> bytes = pattern(50'000);
    uint32_t whole = crc32c(bytes.data(), bytes.size(), 0);
    for (size_t cut : {0, 1, 7, 8, 13'000, 49'999, 50'000}) {
      uint32_t first = crc32c(bytes.data(), cut, 0);
      CHECK(crc32c(bytes.data() + cut, bytes.size() - cut, first) == whole);
    }
    CHECK(crc32c(nullptr, 0, 77) == 77);
  }
}
