// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include "fabric/endpoint.h"

namespace cinnabar::binding {

/// Adds askRdma, which needs no port.
void addVerbsFunctions(Napi::Object exports);

Napi::Object grantedObject(Napi::Env env, const fabric::Granted& granted);

}  // namespace cinnabar::binding
