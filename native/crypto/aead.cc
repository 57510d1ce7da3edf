// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "crypto/aead.h"

#include <cstring>

namespace cinnabar::crypto {
namespace {

constexpr int kGetTag = 0x10;  // EVP_CTRL_AEAD_GET_TAG
constexpr int kSetTag = 0x11;  // EVP_CTRL_AEAD_SET_TAG

}  // namespace

std::optional<Suite> suiteOf(uint64_t number) {
  switch (static_cast<Suite>(number)) {
    case Suite::aes256Gcm:
    case Suite::chacha20Poly1305:
      return static_cast<Suite>(number);
  }
  return std::nullopt;
}

const char* suiteName(Suite suite) {
  return suite == Suite::aes256Gcm ? "AES-256-GCM" : "ChaCha20-Poly1305";
}

std::unique_ptr<Aead> Aead::create(const Libcrypto& library, Suite suite, Direction direction,
                                   const uint8_t* key, const uint8_t* iv) {
  std::unique_ptr<Aead> aead(new Aead(library, direction));
  aead->context_ = library.newContext();
  if (aead->context_ == nullptr) return nullptr;
  memcpy(aead->iv_, iv, kIvBytes);
  const Cipher* cipher =
      suite == Suite::aes256Gcm ? library.aes256Gcm() : library.chacha20Poly1305();
  auto init = direction == Direction::seal ? library.sealInit : library.openInit;
  if (cipher == nullptr || init(aead->context_, cipher, nullptr, key, nullptr) != 1) return nullptr;
  return aead;
}

Aead::~Aead() {
  if (context_ != nullptr) library_.freeContext(context_);
  explicit_bzero(iv_, sizeof iv_);
}

void Aead::nonceOf(uint64_t number, uint8_t* nonce) const {
  memcpy(nonce, iv_, kIvBytes);
  for (size_t i = 0; i < 8; ++i) nonce[kIvBytes - 1 - i] ^= static_cast<uint8_t>(number >> 8 * i);
}

bool Aead::seal(uint64_t number, Aad aad, const uint8_t* source, uint8_t* target, size_t bytes,
                uint8_t* tag) {
  if (direction_ != Direction::seal || number <= last_ || bytes > kMostBytes ||
      aad.length > kMostBytes) {
    return false;
  }
  last_ = number;
  uint8_t nonce[kIvBytes];
  nonceOf(number, nonce);
  int out = 0;
  uint8_t none[kTagBytes];  // the last step writes nothing, to somewhere
  bool sealed = library_.sealInit(context_, nullptr, nullptr, nullptr, nonce) == 1 &&
                (aad.length == 0 || library_.sealUpdate(context_, nullptr, &out, aad.bytes,
                                                        static_cast<int>(aad.length)) == 1) &&
                (bytes == 0 || library_.sealUpdate(context_, target, &out, source,
                                                   static_cast<int>(bytes)) == 1) &&
                library_.sealFinal(context_, none, &out) == 1 &&
                library_.control(context_, kGetTag, kTagBytes, tag) == 1;
  if (!sealed && bytes > 0) memset(target, 0, bytes);
  return sealed;
}

bool Aead::open(uint64_t number, Aad aad, const uint8_t* source, uint8_t* target, size_t bytes,
                const uint8_t* tag) {
  if (direction_ != Direction::open || bytes > kMostBytes || aad.length > kMostBytes) return false;
  uint8_t nonce[kIvBytes];
  nonceOf(number, nonce);
  int out = 0;
  uint8_t none[kTagBytes];
  bool opened = library_.openInit(context_, nullptr, nullptr, nullptr, nonce) == 1 &&
                library_.control(context_, kSetTag, kTagBytes, const_cast<uint8_t*>(tag)) == 1 &&
                (aad.length == 0 || library_.openUpdate(context_, nullptr, &out, aad.bytes,
                                                        static_cast<int>(aad.length)) == 1) &&
                (bytes == 0 || library_.openUpdate(context_, target, &out, source,
                                                   static_cast<int>(bytes)) == 1) &&
                library_.openFinal(context_, none, &out) == 1;
  // OpenSSL has written the text before it has checked the tag.
  if (!opened && bytes > 0) memset(target, 0, bytes);
  return opened;
}

}  // namespace cinnabar::crypto
