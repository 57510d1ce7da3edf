// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <fcntl.h>

namespace cinnabar::shm {

/// Seals of memory that is shared (fcntl(2)). Memory that shrinks under a mapping raises SIGBUS.
constexpr int kSealedSize = F_SEAL_SHRINK | F_SEAL_GROW;

/// Whether memory with these seals keeps its size, and only earlier mappings can write it.
constexpr bool isOwnersAlone(int seals) {
  return (seals & kSealedSize) == kSealedSize &&
         (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
}

}  // namespace cinnabar::shm
