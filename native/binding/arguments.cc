// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/arguments.h"

#include <rdma/fabric.h>

#include <cmath>
#include <cstring>

namespace cinnabar::binding {

bool readInteger(napi_env env, napi_value value, uint64_t most, uint64_t* into) {
  double number;
  if (value == nullptr || napi_get_value_double(env, value, &number) != napi_ok) return false;
  // NaN fails the first comparison.
  if (!(number >= 0) || number > static_cast<double>(most) || number != std::floor(number))
    return false;
  *into = static_cast<uint64_t>(number);
  return *into <= most;
}

bool readBigInt(napi_env env, napi_value value, uint64_t* into) {
  bool lossless = false;
  return value != nullptr && napi_get_value_bigint_uint64(env, value, into, &lossless) == napi_ok &&
         lossless;
}

bool readString(napi_env env, napi_value value, size_t most, std::string* into) {
  size_t length = 0;
  if (value == nullptr || napi_get_value_string_utf8(env, value, nullptr, 0, &length) != napi_ok ||
      length > most) {
    return false;
  }
  into->resize(length + 1);
  if (napi_get_value_string_utf8(env, value, into->data(), length + 1, &length) != napi_ok)
    return false;
  into->resize(length);
  return into->find('\0') == std::string::npos;
}

bool readBuffer(napi_env env, napi_value value, uint8_t** bytes, size_t* length) {
  napi_valuetype type;
  if (value == nullptr || napi_typeof(env, value, &type) != napi_ok || type != napi_object)
    return false;
  bool plain = false;
  void* data = nullptr;
  napi_is_arraybuffer(env, value, &plain);
  if (plain) {
    if (napi_get_arraybuffer_info(env, value, &data, length) != napi_ok) return false;
  } else {
    // Node-API knows no SharedArrayBuffer before Node 24, but it knows views of one.
    napi_value global, shared, view, constructor;
    bool isShared = false;
    bool made =
        napi_get_global(env, &global) == napi_ok &&
        napi_get_named_property(env, global, "SharedArrayBuffer", &shared) == napi_ok &&
        napi_instanceof(env, value, shared, &isShared) == napi_ok && isShared &&
        napi_get_named_property(env, global, "Uint8Array", &constructor) == napi_ok &&
        napi_new_instance(env, constructor, 1, &value, &view) == napi_ok &&
        napi_get_typedarray_info(env, view, nullptr, length, &data, nullptr, nullptr) == napi_ok;
    bool pending = false;
    napi_is_exception_pending(env, &pending);
    if (pending) {
      napi_value thrown;
      napi_get_and_clear_last_exception(env, &thrown);
    }
    if (!made) return false;
  }
  *bytes = static_cast<uint8_t*>(data);
  return data != nullptr && *length > 0;
}

bool readBytes(napi_env env, napi_value value, const uint8_t** bytes, size_t* length) {
  napi_typedarray_type type;
  void* data = nullptr;
  if (value == nullptr ||
      napi_get_typedarray_info(env, value, &type, length, &data, nullptr, nullptr) != napi_ok) {
    return false;
  }
  *bytes = static_cast<const uint8_t*>(data);
  return type == napi_uint8_array && data != nullptr;
}

Napi::Value failureObject(Napi::Env env, const fabric::Failure& failure) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("failed", true);
  object.Set("op", failure.op);
  object.Set("code", failure.code);
  object.Set("name", failure.name);
  object.Set("message", failure.message);
  return object;
}

Napi::Value versionPair(Napi::Env env, uint32_t packed) {
  Napi::Array pair = Napi::Array::New(env, 2);
  pair.Set(0u, FI_MAJOR(packed));
  pair.Set(1u, FI_MINOR(packed));
  return pair;
}

Napi::Value bytesObject(Napi::Env env, const std::vector<uint8_t>& bytes) {
  // Making a view runs JavaScript's constructor, which a worker that is being terminated refuses.
  Napi::Uint8Array object = Napi::Uint8Array::New(env, bytes.size());
  if (object.IsEmpty() || object.Data() == nullptr) return object;
  memcpy(object.Data(), bytes.data(), bytes.size());
  return object;
}

}  // namespace cinnabar::binding
