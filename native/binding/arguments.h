// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/failure.h"

namespace cinnabar::binding {

// Every reader returns false for a value of the wrong type or out of range, and never throws:
// whatever JavaScript passes, the answer is -EINVAL.

/// A whole number of 0 … most.
bool readInteger(napi_env env, napi_value value, uint64_t most, uint64_t* into);
/// A BigInt of 0 … 2^64-1.
bool readBigInt(napi_env env, napi_value value, uint64_t* into);
/// A string of at most `most` bytes without zeros.
bool readString(napi_env env, napi_value value, size_t most, std::string* into);

/// The memory of an ArrayBuffer or a SharedArrayBuffer. False if it is neither, or detached.
bool readBuffer(napi_env env, napi_value value, uint8_t** bytes, size_t* length);
/// The bytes of a Uint8Array (or Buffer).
bool readBytes(napi_env env, napi_value value, const uint8_t** bytes, size_t* length);

/// The result of most functions: a count, or a negated error number.
inline Napi::Value number(const Napi::CallbackInfo& info, int64_t value) {
  return Napi::Number::New(info.Env(), static_cast<double>(value));
}

/// Makes a C++ function one of the addon's.
template <auto function>
void add(Napi::Object exports, const char* name) {
  exports.Set(name, Napi::Function::New<function>(exports.Env(), name));
}

Napi::Value failureObject(Napi::Env env, const fabric::Failure& failure);
Napi::Value versionPair(Napi::Env env, uint32_t packed);
Napi::Value bytesObject(Napi::Env env, const std::vector<uint8_t>& bytes);

/// A strong reference that is released by hand: after close, or when the environment goes.
class Hold {
 public:
  Hold() = default;
  Hold(napi_env env, napi_value value) : env_(env) {
    napi_create_reference(env, value, 1, &reference_);
  }
  Hold(Hold&& other) noexcept
      : env_(other.env_), reference_(std::exchange(other.reference_, nullptr)) {}
  Hold& operator=(Hold&& other) noexcept {
    std::swap(env_, other.env_);
    std::swap(reference_, other.reference_);
    return *this;
  }
  ~Hold() { reset(); }
  void reset() {
    if (reference_ != nullptr) napi_delete_reference(env_, reference_);
    reference_ = nullptr;
  }
  napi_value get() const {
    napi_value value = nullptr;
    if (reference_ != nullptr) napi_get_reference_value(env_, reference_, &value);
    return value;
  }

 private:
  napi_env env_ = nullptr;
  napi_ref reference_ = nullptr;
};

}  // namespace cinnabar::binding
