// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds open, which makes a port of a request.
void addOpenFunction(Napi::Object exports);

}  // namespace cinnabar::binding
