// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <memory>

#include "base/allocation.h"

namespace cinnabar::binding {

/// The longest buffer with memory of ours: Node 20 accepts no longer one.
constexpr uint64_t kMostBufferBytes = uint64_t{1} << 32;

/// An ArrayBuffer of bytes of the allocation; the buffer is one of its owners. The status is
/// napi_no_external_buffers_allowed where V8 keeps its memory in a cage.
napi_status showInBuffer(napi_env env, const std::shared_ptr<base::Allocation>& allocation,
                         uint64_t offset, uint64_t length, napi_value* buffer);

/// Adds crc32c, allocate, release, and allocatedBytes, which need no port.
void addMemoryFunctions(Napi::Object exports);

}  // namespace cinnabar::binding
