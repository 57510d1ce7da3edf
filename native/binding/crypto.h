// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <memory>

#include "crypto/aead.h"

namespace cinnabar::binding {

class Instance;

/// Adds the functions for authenticated encryption.
void addCryptoFunctions(Napi::Env env, Napi::Object exports);

/// Takes a key from JavaScript for good; nullptr if there is none of that handle.
std::unique_ptr<crypto::Aead> takeAead(Instance& instance, napi_value handle);

}  // namespace cinnabar::binding
