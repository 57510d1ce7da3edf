// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "crypto/libcrypto.h"

namespace cinnabar::crypto {

constexpr size_t kKeyBytes = 32;
constexpr size_t kIvBytes = 12;
constexpr size_t kTagBytes = 16;
/// The most bytes of one text: OpenSSL counts in ints.
constexpr size_t kMostBytes = size_t{1} << 30;

/// Numbers of the protocol (docs/protocol.md).
enum class Suite : uint32_t { aes256Gcm = 1, chacha20Poly1305 = 2 };

std::optional<Suite> suiteOf(uint64_t number);
const char* suiteName(Suite suite);

/// Bytes that are authenticated and not encrypted.
struct Aad {
  const uint8_t* bytes = nullptr;
  size_t length = 0;
};

/// One key in one direction. The nonce of a text is the iv, XOR the text's number in its last eight
/// bytes, big-endian (RFC 8446, section 5.3). For one thread at a time.
class Aead {
 public:
  enum class Direction { seal, open };

  /// Copies the key into OpenSSL's context, which cleanses it at the end. nullptr where the library
  /// does not have the suite.
  static std::unique_ptr<Aead> create(const Libcrypto& library, Suite suite, Direction direction,
                                      const uint8_t* key, const uint8_t* iv);
  ~Aead();
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;

  /// Encrypts `bytes` bytes from `source` to `target`, which is the same memory or does not overlap
  /// it. False, with an empty `target`: the number is not higher than the last one, as no nonce may
  /// be used twice, or memory is short.
  bool seal(uint64_t number, Aad aad, const uint8_t* source, uint8_t* target, size_t bytes,
            uint8_t* tag);
  /// The reverse. False, with zeros in `target`, if the tag does not belong to the text. A process
  /// that writes to `source` meanwhile can make it accept another text than that of the tag.
  bool open(uint64_t number, Aad aad, const uint8_t* source, uint8_t* target, size_t bytes,
            const uint8_t* tag);

  Direction direction() const { return direction_; }

 private:
  Aead(const Libcrypto& library, Direction direction) : library_(library), direction_(direction) {}
  void nonceOf(uint64_t number, uint8_t* nonce) const;

  const Libcrypto& library_;
  const Direction direction_;
  CipherContext* context_ = nullptr;
  uint8_t iv_[kIvBytes] = {};
  uint64_t last_ = 0;  // the last sealed number
};

}  // namespace cinnabar::crypto
