// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds watchLostPages, mapFile, showMapped, isDamaged, and flushMapped, which need no port.
void addMappedFileFunctions(Napi::Object exports);

}  // namespace cinnabar::binding
