// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "crypto/libcrypto.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <cstring>

#include "crypto/aead.h"

namespace cinnabar::crypto {
namespace {

constexpr int kVersionText = 0;  // OPENSSL_VERSION
constexpr const char* kSystemLibrary = "libcrypto.so.3";

template <typename Function>
void readFunction(void* handle, const char* name, Function* into, std::string* missing) {
  *into = reinterpret_cast<Function>(dlsym(handle, name));
  if (*into == nullptr && missing->empty()) *missing = name;
}

/// The program's own name may be relative, or no path at all.
std::string pathOf(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  Dl_info program;
  void* entry = dlsym(RTLD_DEFAULT, "_start");
  bool isProgram =
      strchr(info.dli_fname, '/') == nullptr ||
      (entry != nullptr && dladdr(entry, &program) != 0 && program.dli_fbase == info.dli_fbase);
  if (isProgram && length > 0) return std::string(self, static_cast<size_t>(length));
  return info.dli_fname;
}

/// What "abar" is sealed to under the AAD "cin", the number 1, and a key and an iv that count up
/// from 0 and 0x40.
struct KnownAnswer {
  Suite suite;
  uint8_t text[4];
  uint8_t tag[kTagBytes];
};
constexpr KnownAnswer kKnownAnswers[] = {
    {Suite::aes256Gcm,
     {0x04, 0x6a, 0xde, 0x40},
     {0x84, 0xf8, 0xa1, 0x8a, 0x58, 0xbb, 0x06, 0x66, 0x05, 0x3a, 0xbf, 0xb4, 0xd1, 0xd8, 0xb8,
      0x2f}},
    {Suite::chacha20Poly1305,
     {0xca, 0x51, 0xd3, 0x06},
     {0x65, 0xa8, 0xba, 0x26, 0x09, 0x4d, 0xb7, 0x76, 0xd8, 0x01, 0x84, 0x4a, 0x69, 0x91, 0x9d,
      0xa5}},
};

std::string faultOf(const Libcrypto& library) {
  uint8_t key[kKeyBytes], iv[kIvBytes];
  for (size_t i = 0; i < sizeof key; ++i) key[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i < sizeof iv; ++i) iv[i] = static_cast<uint8_t>(0x40 + i);
  const uint8_t aad[] = {'c', 'i', 'n'};
  for (const KnownAnswer& known : kKnownAnswers) {
    std::string name = suiteName(known.suite);
    auto sealing = Aead::create(library, known.suite, Aead::Direction::seal, key, iv);
    auto opening = Aead::create(library, known.suite, Aead::Direction::open, key, iv);
    if (sealing == nullptr || opening == nullptr) return "it has no " + name;
    uint8_t text[4] = {'a', 'b', 'a', 'r'};
    uint8_t tag[kTagBytes];
    if (!sealing->seal(1, {aad, sizeof aad}, text, text, sizeof text, tag) ||
        memcmp(text, known.text, sizeof text) != 0 || memcmp(tag, known.tag, sizeof tag) != 0 ||
        !opening->open(1, {aad, sizeof aad}, text, text, sizeof text, tag)) {
      return "its " + name + " does not give the known answer";
    }
    tag[0] ^= 1;
    if (opening->open(1, {aad, sizeof aad}, text, text, sizeof text, tag))
      return "its " + name + " does not check the tag";
  }
  return "";
}

CryptoReport find() {
  static Libcrypto found;
  CryptoReport report;
  auto take = [&](const char* name, void* handle) {
    Libcrypto candidate;
    std::string reason = readLibcrypto(handle, &candidate);
    report.tried.push_back({reason.empty() ? candidate.path : name, reason});
    if (!reason.empty()) return;
    found = candidate;
    report.library = &found;
  };
  take("the process", RTLD_DEFAULT);
  if (report.library != nullptr) return report;
  // Never closed: ciphers keep pointers into it for as long as the process lives.
  void* handle = dlopen(kSystemLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) {
    take(kSystemLibrary, handle);
  } else {
    const char* text = dlerror();
    report.tried.push_back({kSystemLibrary, text != nullptr ? text : "it cannot be opened"});
  }
  return report;
}

}  // namespace

std::string readLibcrypto(void* handle, Libcrypto* into) {
  std::string missing;
  const char* (*version)(int) = nullptr;
  readFunction(handle, "EVP_CIPHER_CTX_new", &into->newContext, &missing);
  readFunction(handle, "EVP_CIPHER_CTX_free", &into->freeContext, &missing);
  readFunction(handle, "EVP_CIPHER_CTX_ctrl", &into->control, &missing);
  readFunction(handle, "EVP_EncryptInit_ex", &into->sealInit, &missing);
  readFunction(handle, "EVP_EncryptUpdate", &into->sealUpdate, &missing);
  readFunction(handle, "EVP_EncryptFinal_ex", &into->sealFinal, &missing);
  readFunction(handle, "EVP_DecryptInit_ex", &into->openInit, &missing);
  readFunction(handle, "EVP_DecryptUpdate", &into->openUpdate, &missing);
  readFunction(handle, "EVP_DecryptFinal_ex", &into->openFinal, &missing);
  readFunction(handle, "EVP_aes_256_gcm", &into->aes256Gcm, &missing);
  readFunction(handle, "EVP_chacha20_poly1305", &into->chacha20Poly1305, &missing);
  readFunction(handle, "OpenSSL_version", &version, &missing);
  if (!missing.empty()) return "it exports no " + missing;
  into->path = pathOf(reinterpret_cast<void*>(into->newContext));
  into->version = version(kVersionText);
  return faultOf(*into);
}

const CryptoReport& libcrypto() {
  static const CryptoReport report = find();
  return report;
}

}  // namespace cinnabar::crypto
