// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

namespace cinnabar::binding {

/// Adds providers, domains and patches, which describe this machine and what is changed in
/// its libraries.
void addDescribeFunctions(Napi::Object exports);

}  // namespace cinnabar::binding
