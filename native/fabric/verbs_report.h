// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <optional>
#include <string>

#include "fabric/info.h"

namespace cinnabar::fabric {

/// Why an address has no verbs endpoint, with the remedy; nullopt if no obstacle is visible from
/// here. `source` may be empty: any device then.
std::optional<Failure> verbsObstacle(const Library& library, const Provider& provider,
                                     const RawAddress& source);

/// What the kernel and the user-space drivers of RDMA lack here, with the remedy; empty if no lack
/// is visible. They read files below `root`, "" for this machine's own.
std::string deviceObstacle(const std::string& root);  // the kernel's side, and our rights
std::string driverObstacle(const std::string& root);  // ibverbs' provider libraries

/// Why verbs is unusable while the user asks for on-demand paging (FI_VERBS_USE_ODP); empty if the
/// user does not. Soft-RoCE offers it and puts data in wrong places (docs/design/verbs.md).
std::string pagingObstacle(const std::string& root);

/// The failure to report after an open with that error.
Failure explainVerbs(const Library& library, const Provider& provider, const RawAddress& source,
                     Failure failure);

/// Why this process may not lock the memory that an endpoint takes (RLIMIT_MEMLOCK, CAP_IPC_LOCK);
/// empty if it may. Call it before an open: rxm meets the limit only as it connects, and then
/// reports only "again".
std::string lockedMemoryObstacle();

}  // namespace cinnabar::fabric
