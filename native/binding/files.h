// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds the functions for files that hold disks: their holes, their lock, the size of a device.
void addFileFunctions(Napi::Object exports);

}  // namespace cinnabar::binding
