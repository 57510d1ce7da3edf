// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace cinnabar::base {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

/// kTables[k][b] is the checksum register after byte b and k zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables makeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k) {
      uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = makeTables();

uint64_t wordAt(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)

/// What `bytes` zero bytes do to the register, as four tables of one byte each. The register is
/// linear in its bits, so that checksums of neighbours can be joined.
using Shift = std::array<std::array<uint32_t, 256>, 4>;
using Matrix = std::array<uint32_t, 32>;

constexpr uint32_t multiply(const Matrix& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (int bit = 0; bit < 32; ++bit) {
    if (vector >> bit & 1) sum ^= matrix[bit];
  }
  return sum;
}

constexpr Shift makeShift(size_t bytes) {  // a power of two
  Matrix matrix{};
  for (int bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    matrix[bit] = crc >> 8 ^ kTables[0][crc & 0xff];
  }
  for (; bytes > 1; bytes /= 2) {
    Matrix squared{};
    for (int bit = 0; bit < 32; ++bit) squared[bit] = multiply(matrix, matrix[bit]);
    matrix = squared;
  }
  Shift shift{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (int k = 0; k < 4; ++k) shift[k][byte] = multiply(matrix, byte << (8 * k));
  }
  return shift;
}

// Three streams at once hide the instruction's latency of three cycles. Long ones make joining them
// cheap, short ones serve what is left.
constexpr size_t kLong = 4096;
constexpr size_t kShort = 256;
constexpr Shift kLongShift = makeShift(kLong);
constexpr Shift kShortShift = makeShift(kShort);

uint32_t shifted(const Shift& shift, uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][crc >> 8 & 0xff] ^ shift[2][crc >> 16 & 0xff] ^
         shift[3][crc >> 24];
}

#if defined(__x86_64__)
#define CINNABAR_CRC_TARGET __attribute__((target("sse4.2")))
#define CINNABAR_CRC_WORD(crc, word) _mm_crc32_u64(crc, word)
#define CINNABAR_CRC_BYTE(crc, byte) _mm_crc32_u8(crc, byte)
#else
#define CINNABAR_CRC_TARGET
#define CINNABAR_CRC_WORD(crc, word) __crc32cd(crc, word)
#define CINNABAR_CRC_BYTE(crc, byte) __crc32cb(crc, byte)
#endif

CINNABAR_CRC_TARGET uint32_t threeStreams(const uint8_t* bytes, size_t stream, const Shift& shift,
                                          uint32_t crc) {
  uint64_t first = crc;
  uint64_t second = 0;
  uint64_t third = 0;
  for (size_t at = 0; at < stream; at += 8) {
    first = CINNABAR_CRC_WORD(static_cast<uint32_t>(first), wordAt(bytes + at));
    second = CINNABAR_CRC_WORD(static_cast<uint32_t>(second), wordAt(bytes + stream + at));
    third = CINNABAR_CRC_WORD(static_cast<uint32_t>(third), wordAt(bytes + 2 * stream + at));
  }
  uint32_t joined = shifted(shift, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
  return shifted(shift, joined) ^ static_cast<uint32_t>(third);
}

CINNABAR_CRC_TARGET uint32_t crc32cByInstruction(const uint8_t* bytes, size_t length,
                                                 uint32_t seed) {
  uint32_t crc = ~seed;
  for (; length >= 3 * kLong; bytes += 3 * kLong, length -= 3 * kLong)
    crc = threeStreams(bytes, kLong, kLongShift, crc);
  for (; length >= 3 * kShort; bytes += 3 * kShort, length -= 3 * kShort)
    crc = threeStreams(bytes, kShort, kShortShift, crc);
  for (; length >= 8; bytes += 8, length -= 8)
    crc = static_cast<uint32_t>(CINNABAR_CRC_WORD(crc, wordAt(bytes)));
  for (; length > 0; ++bytes, --length) crc = CINNABAR_CRC_BYTE(crc, *bytes);
  return ~crc;
}

#endif

}  // namespace

bool hasCrc32cInstruction() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__ARM_FEATURE_CRC32)
  return true;
#else
  return false;
#endif
}

uint32_t crc32cByTable(const uint8_t* bytes, size_t length, uint32_t seed) {
  uint32_t crc = ~seed;
  for (; length >= 8; bytes += 8, length -= 8) {
    uint64_t word = wordAt(bytes) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (; length > 0; ++bytes, --length) crc = crc >> 8 ^ kTables[0][(crc ^ *bytes) & 0xff];
  return ~crc;
}

uint32_t crc32c(const uint8_t* bytes, size_t length, uint32_t seed) {
#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)
  static const bool instruction = hasCrc32cInstruction();
  if (instruction) return crc32cByInstruction(bytes, length, seed);
#endif
  return crc32cByTable(bytes, length, seed);
}

}  // namespace cinnabar::base
