// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/fork_safety.h"

#include <charconv>
#include <cstdlib>
#include <utility>

namespace cinnabar::fabric {

bool copiesPinnedPages(std::string_view release) {
  unsigned major = 0;
  unsigned minor = 0;
  const char* end = release.data() + release.size();
  auto first = std::from_chars(release.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc()) return false;
  return std::pair(major, minor) >= std::pair(5u, 12u);
}

void keepForksSafe(std::string_view release) {
  if (copiesPinnedPages(release)) return;
  // ibv_fork_init(3); the second one because pools lie in huge pages.
  if (getenv("IBV_FORK_SAFE") == nullptr) setenv("RDMAV_FORK_SAFE", "1", 0);
  setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
}

}  // namespace cinnabar::fabric
