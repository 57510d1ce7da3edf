// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string>

#include "fabric/info.h"

namespace cinnabar::fabric {

/// Why a provider that we know only by its pages is unusable here. It is not in this libfabric, it
/// finds no device, or it lacks a property that we need, which is named. Empty if no obstacle is
/// known.
std::string fabricObstacle(const Library& library, const Provider& provider);

}  // namespace cinnabar::fabric
