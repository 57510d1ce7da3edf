// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/memory.h"

#include <cerrno>
#include <memory>

#include "base/allocation.h"
#include "base/crc32c.h"
#include "binding/arguments.h"

namespace cinnabar::binding {
namespace {

using base::Allocation;
using Info = Napi::CallbackInfo;

Napi::Value crc32c(const Info& info) {
  const uint8_t* bytes;
  size_t length;
  uint64_t seed;
  if (!readBytes(info.Env(), info[0], &bytes, &length) ||
      !readInteger(info.Env(), info[1], UINT32_MAX, &seed)) {
    return number(info, -EINVAL);
  }
  return number(info, base::crc32c(bytes, length, static_cast<uint32_t>(seed)));
}

Napi::Value noMemory(const Info& info, uint64_t bytes) {
  return failureObject(
      info.Env(),
      {"mmap", ENOMEM, "ENOMEM", "the system has no room for " + std::to_string(bytes) + " bytes"});
}

Napi::Value allocate(const Info& info) {
  napi_env env = info.Env();
  uint64_t bytes = 0;
  bool hugePages = false;
  if (!readInteger(env, info[0], kMostBufferBytes, &bytes) || bytes == 0 ||
      napi_get_value_bool(env, info[1], &hugePages) != napi_ok) {
    return failureObject(env, {"allocate", EINVAL, "EINVAL",
                               "a number of bytes from 1 to 2^32, and whether in huge pages"});
  }
  auto allocation = Allocation::create(bytes, hugePages);
  if (allocation == nullptr) return noMemory(info, bytes);

  napi_value buffer = nullptr;
  napi_status status = showInBuffer(env, allocation, 0, bytes, &buffer);
  if (status == napi_ok) return Napi::Value(env, buffer);
  // A V8 with its memory in a cage.
  void* inside = nullptr;
  if (status == napi_no_external_buffers_allowed &&
      napi_create_arraybuffer(env, bytes, &inside, &buffer) == napi_ok) {
    return Napi::Value(env, buffer);
  }
  return noMemory(info, bytes);
}

/// Detaches the buffer's memory from JavaScript, without waiting for a collection. Registrations
/// keep the pages until they end, too.
Napi::Value release(const Info& info) {
  uint8_t* bytes;
  size_t length;
  bool released = readBuffer(info.Env(), info[0], &bytes, &length) &&
                  Allocation::of(bytes) != nullptr &&
                  napi_detach_arraybuffer(info.Env(), info[0]) == napi_ok;
  return Napi::Boolean::New(info.Env(), released);
}

Napi::Value allocatedBytes(const Info& info) {
  return number(info, static_cast<int64_t>(Allocation::totalBytes()));
}

}  // namespace

napi_status showInBuffer(napi_env env, const std::shared_ptr<Allocation>& allocation,
                         uint64_t offset, uint64_t length, napi_value* buffer) {
  // V8 counts an external buffer's bytes by itself, as it does with its own.
  auto* owner = new std::shared_ptr<Allocation>(allocation);
  auto letGo = [](napi_env, void*, void* hint) {
    delete static_cast<std::shared_ptr<Allocation>*>(hint);
  };
  napi_status status = napi_create_external_arraybuffer(env, allocation->bytes() + offset, length,
                                                        letGo, owner, buffer);
  // Only these statuses come before Node has taken the finalizer; after the others Node may have
  // called it.
  if (status == napi_no_external_buffers_allowed || status == napi_pending_exception ||
      status == napi_cannot_run_js) {
    delete owner;
  }
  return status;
}

void addMemoryFunctions(Napi::Object exports) {
  add<crc32c>(exports, "crc32c");
  add<allocate>(exports, "allocate");
  add<release>(exports, "release");
  add<allocatedBytes>(exports, "allocatedBytes");
}

}  // namespace cinnabar::binding
