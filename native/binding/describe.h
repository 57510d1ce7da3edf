// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds providers and domains, which tell what libfabric offers on this machine.
void addDescribeFunctions(Napi::Env env, Napi::Object exports);

}  // namespace cinnabar::binding
