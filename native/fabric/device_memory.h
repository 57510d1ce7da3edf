// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string>
#include <string_view>

#include "fabric/library.h"
#include "fabric/providers.h"

namespace cinnabar::fabric {

/// Why memory of that kind ("cuda", "rocr", "levelZero") cannot be registered with the provider
/// that serves a scheme here, as a sentence without its stop; empty if provider and driver are
/// there.
std::string reasonAgainstDeviceMemory(const Library& library, Scheme scheme, std::string_view kind);

}  // namespace cinnabar::fabric
