// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds the functions of src/fabric/libfabric/addon.ts.
void addQueuePairFunctions(Napi::Object exports);

}  // namespace cinnabar::binding
