// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cinnabar::shm::smr {

// struct smr_region in prov/shm/src/smr_util.h of libfabric 2.1, built without its debugging aids.
constexpr uint8_t kVersion = 8;
constexpr size_t kVersionAt = 0;
constexpr size_t kFlagsAt = 2;
constexpr uint16_t kDebugFlag = 2;
constexpr size_t kBaseAt = 48;

/// Reads a field of a region, which is aligned as another process chose.
template <typename T>
T readAt(const uint8_t* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace cinnabar::shm::smr
