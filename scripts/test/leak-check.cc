// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
//
// A door to LeakSanitizer for JavaScript: vitest ends its workers by a signal, and then no check at
// exit takes place.
#include <node_api.h>
#include <sanitizer/lsan_interface.h>

namespace {

napi_value check(napi_env env, napi_callback_info) {
  napi_value found = nullptr;
  napi_get_boolean(env, __lsan_do_recoverable_leak_check() != 0, &found);
  return found;
}

}  // namespace

extern "C" NAPI_MODULE_EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  napi_value function = nullptr;
  napi_create_function(env, "check", NAPI_AUTO_LENGTH, check, nullptr, &function);
  napi_set_named_property(env, exports, "check", function);
  return exports;
}
