// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cinnabar::crypto {

/// OpenSSL's EVP_CIPHER_CTX and EVP_CIPHER, used as pointers only.
struct CipherContext;
struct Cipher;

/// The functions of OpenSSL's libcrypto for authenticated encryption. All of them have had the same
/// ABI since OpenSSL 1.1, so they need no header and no link.
struct Libcrypto {
  CipherContext* (*newContext)() = nullptr;
  void (*freeContext)(CipherContext*) = nullptr;
  int (*control)(CipherContext*, int command, int argument, void* data) = nullptr;
  int (*sealInit)(CipherContext*, const Cipher*, void* engine, const uint8_t* key,
                  const uint8_t* iv) = nullptr;
  int (*sealUpdate)(CipherContext*, uint8_t* out, int* outBytes, const uint8_t* in,
                    int bytes) = nullptr;
  int (*sealFinal)(CipherContext*, uint8_t* out, int* outBytes) = nullptr;
  int (*openInit)(CipherContext*, const Cipher*, void* engine, const uint8_t* key,
                  const uint8_t* iv) = nullptr;
  int (*openUpdate)(CipherContext*, uint8_t* out, int* outBytes, const uint8_t* in,
                    int bytes) = nullptr;
  int (*openFinal)(CipherContext*, uint8_t* out, int* outBytes) = nullptr;
  const Cipher* (*aes256Gcm)() = nullptr;
  const Cipher* (*chacha20Poly1305)() = nullptr;

  /// The file that the functions are in: mostly the node binary.
  std::string path;
  /// OpenSSL's text: "OpenSSL 3.5.8 …".
  std::string version;
};

/// A place where libcrypto was looked for.
struct CryptoAttempt {
  std::string path;
  std::string reason;  // empty where it was found
};

struct CryptoReport {
  const Libcrypto* library = nullptr;  // for as long as the process lives
  std::vector<CryptoAttempt> tried;
};

/// Looks for libcrypto on the first call: first among the exports of the process, where Node has
/// its own, then the system's. A library is taken only if it gives the known answer of both
/// ciphers. From any thread.
const CryptoReport& libcrypto();

/// Reads the functions of a library from `dlopen`, or of the process (RTLD_DEFAULT). Returns why
/// they are unusable, or "".
std::string readLibcrypto(void* handle, Libcrypto* into);

}  // namespace cinnabar::crypto
