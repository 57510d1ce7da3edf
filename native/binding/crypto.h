// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds the functions for authenticated encryption.
void addCryptoFunctions(Napi::Object exports);

}  // namespace cinnabar::binding
