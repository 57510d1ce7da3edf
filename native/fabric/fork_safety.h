// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string_view>

namespace cinnabar::fabric {

/// Whether a kernel of that release ("6.1.0-18-amd64") copies pages that are pinned for a device as
/// a process forks. Older ones may leave the device with the child's page: a process that starts a
/// child then loses what peers write.
bool copiesPinnedPages(std::string_view release);

/// Has libibverbs keep registered memory out of children where the kernel does not see to it. It
/// reads its variables once, with the first device it looks at; what the user has set stays.
void keepForksSafe(std::string_view release);

}  // namespace cinnabar::fabric
