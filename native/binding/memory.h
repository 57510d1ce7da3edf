// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds crc32c, allocate, release, and allocatedBytes, which need no port.
void addMemoryFunctions(Napi::Env env, Napi::Object exports);

}  // namespace cinnabar::binding
