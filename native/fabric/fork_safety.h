// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string_view>

namespace cinnabar::fabric {

/// Whether a kernel of that release ("6.1.0-18-amd64") copies pages that are pinned for a device as
/// a process forks. Older kernels may leave the device with the child's page. A process that starts
/// a child then loses peers' writes.
bool copiesPinnedPages(std::string_view release);

/// Makes libibverbs keep registered memory out of children if the kernel does not. libibverbs reads
/// its variables once, with the first device. The user's settings stay.
void keepForksSafe(std::string_view release);

}  // namespace cinnabar::fabric
