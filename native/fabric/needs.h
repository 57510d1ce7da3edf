// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string>

#include "fabric/info.h"

namespace cinnabar::fabric {

/// Why a provider that we know only by its pages cannot be used here: it is not in this libfabric,
/// it finds no device, or it lacks what we need, and then what. Empty if nothing stands against it.
std::string fabricObstacle(const Library& library, const Provider& provider);

}  // namespace cinnabar::fabric
