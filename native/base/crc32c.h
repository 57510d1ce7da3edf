// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace cinnabar::base {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, continued from `seed`, the checksum of
/// the bytes before; 0 without such bytes. Uses the processor's instruction if it has one.
uint32_t crc32c(const uint8_t* bytes, size_t length, uint32_t seed);

/// The same from tables, on any processor: the fallback, and the reference for tests of the
/// instruction.
uint32_t crc32cByTable(const uint8_t* bytes, size_t length, uint32_t seed);

/// Whether crc32c() uses the instruction here.
bool hasCrc32cInstruction();

}  // namespace cinnabar::base
