// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/fork_safety.h"

#include <cstdlib>

#include "base/kernel_version.h"

namespace cinnabar::fabric {

bool copiesPinnedPages(std::string_view release) {
  return base::kernelVersion(release) >= base::KernelVersion(5, 12);
}

void keepForksSafe(std::string_view release) {
  if (copiesPinnedPages(release)) return;
  // ibv_fork_init(3); the second one because pools lie in huge pages.
  if (getenv("IBV_FORK_SAFE") == nullptr) setenv("RDMAV_FORK_SAFE", "1", 0);
  setenv("RDMAV_HUGEPAGES_SAFE", "1", 0);
}

}  // namespace cinnabar::fabric
