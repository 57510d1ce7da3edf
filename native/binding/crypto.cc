// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/crypto.h"

#include <cerrno>

#include "binding/arguments.h"
#include "binding/instance.h"

namespace cinnabar::binding {
namespace {

using crypto::Aead;
using crypto::kTagBytes;
using Info = Napi::CallbackInfo;

// The highest whole number of JavaScript's exact ones.
constexpr uint64_t kMostNumber = (uint64_t{1} << 53) - 1;

/// The memory of a Uint8Array, which may be empty.
struct Memory {
  uint8_t* bytes = nullptr;
  size_t length = 0;
};

bool readMemory(napi_env env, napi_value value, Memory* into) {
  napi_typedarray_type type;
  void* data = nullptr;
  if (value == nullptr || napi_get_typedarray_info(env, value, &type, &into->length, &data, nullptr,
                                                   nullptr) != napi_ok) {
    return false;
  }
  into->bytes = static_cast<uint8_t*>(data);
  return type == napi_uint8_array && (data != nullptr || into->length == 0);
}

Aead* aeadOf(const Info& info) {
  Instance* instance = Instance::of(info.Env());
  return instance == nullptr ? nullptr : instance->aeads.find(info.Env(), info[0]);
}

Napi::Value libcrypto(const Info& info) {
  Napi::Env env = info.Env();
  const crypto::CryptoReport& report = crypto::libcrypto();
  Napi::Array tried = Napi::Array::New(env, report.tried.size());
  for (uint32_t i = 0; i < report.tried.size(); ++i) {
    Napi::Object attempt = Napi::Object::New(env);
    attempt.Set("path", report.tried[i].path);
    attempt.Set("reason", report.tried[i].reason);
    tried.Set(i, attempt);
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("loaded", report.library != nullptr);
  result.Set("path", report.library != nullptr ? report.library->path : "");
  result.Set("version", report.library != nullptr ? report.library->version : "");
  result.Set("tried", tried);
  return result;
}

Napi::Value openAead(const Info& info) {
  Napi::Env env = info.Env();
  Instance* instance = Instance::of(env);
  uint64_t suite;
  bool seals = false;
  Memory key, iv;
  if (instance == nullptr || !readInteger(env, info[0], UINT32_MAX, &suite) ||
      !crypto::suiteOf(suite) || napi_get_value_bool(env, info[1], &seals) != napi_ok ||
      !readMemory(env, info[2], &key) || key.length != crypto::kKeyBytes ||
      !readMemory(env, info[3], &iv) || iv.length != crypto::kIvBytes) {
    return number(info, -EINVAL);
  }
  const crypto::Libcrypto* library = crypto::libcrypto().library;
  if (library == nullptr) return number(info, -ENOSYS);
  auto direction = seals ? Aead::Direction::seal : Aead::Direction::open;
  auto aead = Aead::create(*library, *crypto::suiteOf(suite), direction, key.bytes, iv.bytes);
  if (aead == nullptr) return number(info, -ENOSYS);
  return number(info, instance->aeads.add(std::move(aead)));
}

void closeAead(const Info& info) {
  if (Instance* instance = Instance::of(info.Env())) instance->aeads.take(info.Env(), info[0]);
}

Napi::Value aeads(const Info& info) {
  Instance* instance = Instance::of(info.Env());
  return number(info, instance == nullptr ? 0 : static_cast<int64_t>(instance->aeads.count()));
}

/// The parts of one piece of memory: the AAD, the text, the tag.
struct Message {
  Aead* aead = nullptr;
  uint8_t* aad = nullptr;
  uint64_t aadBytes = 0;
  uint64_t bytes = 0;
  uint64_t number = 0;

  uint8_t* text() const { return aad + aadBytes; }
  uint8_t* tag() const { return text() + bytes; }
};

int read(const Info& info, Message* into) {
  Napi::Env env = info.Env();
  Memory memory;
  uint64_t at;
  into->aead = aeadOf(info);
  if (into->aead == nullptr) return -EBADF;
  if (!readMemory(env, info[1], &memory) || !readInteger(env, info[2], memory.length, &at) ||
      !readInteger(env, info[3], memory.length - at, &into->aadBytes) ||
      !readInteger(env, info[4], memory.length - at - into->aadBytes, &into->bytes) ||
      memory.length - at - into->aadBytes - into->bytes < kTagBytes ||
      !readInteger(env, info[5], kMostNumber, &into->number)) {
    return -EINVAL;
  }
  into->aad = memory.bytes + at;
  return 0;
}

Napi::Value sealMessage(const Info& info) {
  Message message;
  int status = read(info, &message);
  if (status != 0) return number(info, status);
  bool sealed = message.aead->seal(message.number, {message.aad, message.aadBytes}, message.text(),
                                   message.text(), message.bytes, message.tag());
  return number(info, sealed ? 0 : -EINVAL);
}

Napi::Value openMessage(const Info& info) {
  Message message;
  int status = read(info, &message);
  if (status != 0) return number(info, status);
  bool opened = message.aead->open(message.number, {message.aad, message.aadBytes}, message.text(),
                                   message.text(), message.bytes, message.tag());
  return number(info, opened ? 0 : -EBADMSG);
}

/// A text that goes from one memory to another, or stays where it is.
struct Piece {
  Aead* aead = nullptr;
  uint64_t number = 0;
  Memory aad;
  Memory source;
  Memory target;
  Memory tag;
};

int read(const Info& info, Piece* into) {
  Napi::Env env = info.Env();
  into->aead = aeadOf(info);
  if (into->aead == nullptr) return -EBADF;
  if (!readInteger(env, info[1], kMostNumber, &into->number) ||
      !readMemory(env, info[2], &into->aad) || !readMemory(env, info[3], &into->source) ||
      !readMemory(env, info[4], &into->target) || !readMemory(env, info[5], &into->tag) ||
      into->source.length != into->target.length || into->tag.length != kTagBytes) {
    return -EINVAL;
  }
  auto from = reinterpret_cast<uintptr_t>(into->source.bytes);
  auto to = reinterpret_cast<uintptr_t>(into->target.bytes);
  uintptr_t apart = from > to ? from - to : to - from;
  return apart == 0 || apart >= into->source.length ? 0 : -EINVAL;
}

Napi::Value sealPiece(const Info& info) {
  Piece piece;
  int status = read(info, &piece);
  if (status != 0) return number(info, status);
  bool sealed =
      piece.aead->seal(piece.number, {piece.aad.bytes, piece.aad.length}, piece.source.bytes,
                       piece.target.bytes, piece.source.length, piece.tag.bytes);
  return number(info, sealed ? 0 : -EINVAL);
}

Napi::Value openPiece(const Info& info) {
  Piece piece;
  int status = read(info, &piece);
  if (status != 0) return number(info, status);
  bool opened =
      piece.aead->open(piece.number, {piece.aad.bytes, piece.aad.length}, piece.source.bytes,
                       piece.target.bytes, piece.source.length, piece.tag.bytes);
  return number(info, opened ? 0 : -EBADMSG);
}

}  // namespace

void addCryptoFunctions(Napi::Object exports) {
  add<libcrypto>(exports, "libcrypto");
  add<openAead>(exports, "openAead");
  add<closeAead>(exports, "closeAead");
  add<aeads>(exports, "aeads");
  add<sealMessage>(exports, "sealMessage");
  add<openMessage>(exports, "openMessage");
  add<sealPiece>(exports, "sealPiece");
  add<openPiece>(exports, "openPiece");
}

}  // namespace cinnabar::binding
