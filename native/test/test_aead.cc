// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "crypto/aead.h"
#include "test/mutation.h"

using namespace cinnabar::crypto;
using cinnabar::test::mutatedMessages;
using cinnabar::test::Random;

namespace {

using Bytes = std::vector<uint8_t>;

Bytes hex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// Exactly as long as what is in it, so that a sanitizer sees each byte beyond.
struct Pair {
  explicit Pair(Suite suite, uint8_t fill = 7)
      : key(kKeyBytes, fill), iv(kIvBytes, static_cast<uint8_t>(fill + 1)) {
    const Libcrypto& library = *libcrypto().library;
    sealing = Aead::create(library, suite, Aead::Direction::seal, key.data(), iv.data());
    opening = Aead::create(library, suite, Aead::Direction::open, key.data(), iv.data());
  }
  bool seal(uint64_t number, const Bytes& aad, const Bytes& text) {
    sealed.resize(text.size());
    tag.resize(kTagBytes);
    return sealing->seal(number, {aad.data(), aad.size()}, text.data(), sealed.data(), text.size(),
                         tag.data());
  }
  bool open(uint64_t number, const Bytes& aad) {
    opened.assign(sealed.size(), 0xee);
    return opening->open(number, {aad.data(), aad.size()}, sealed.data(), opened.data(),
                         sealed.size(), tag.data());
  }

  Bytes key, iv, sealed, tag, opened;
  std::unique_ptr<Aead> sealing, opening;
};

constexpr Suite kSuites[] = {Suite::aes256Gcm, Suite::chacha20Poly1305};

}  // namespace

TEST_SUITE("aead") {
  TEST_CASE("libcrypto is found, and says which it is") {
    const CryptoReport& report = libcrypto();
    REQUIRE(report.library != nullptr);
    CHECK(report.library->path.find("libcrypto") != std::string::npos);
    CHECK(report.library->version.find("OpenSSL") == 0);
    // This program has no OpenSSL of its own, as node has.
    REQUIRE(report.tried.size() == 2);
    CHECK(report.tried[0].reason.find("it exports no EVP_") == 0);
    CHECK(report.tried[1].reason.empty());
  }

  TEST_CASE("gives the answers of the specifications") {
    // GCM's authors' test case 16, and RFC 8439, section 2.8.2. The iv here is XORed with the
    // number.
    struct Known {
      Suite suite;
      std::string key, nonce, aad, text, sealed, tag;
    };
    const Known cases[] = {
        {Suite::aes256Gcm, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
         "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
         "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
         "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
         "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
         "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
         "76fc6ece0f4e1768cddf8853bb2d551b"},
        {Suite::chacha20Poly1305,
         "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
         "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
         "4c616469657320616e642047656e746c656d656e206f662074686520636c6173"
         "73206f66202739393a204966204920636f756c64206f6666657220796f75206f"
         "6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73"
         "637265656e20776f756c642062652069742e",
         "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
         "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
         "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
         "3ff4def08e4b7a9de576d26586cec64b6116",
         "1ae10b594f09e26a7e902ecbd0600691"},
    };
    for (const Known& known : cases) {
      CAPTURE(suiteName(known.suite));
      constexpr uint64_t kNumber = 0x0102030405060708;
      Bytes key = hex(known.key), iv = hex(known.nonce), aad = hex(known.aad);
      for (size_t i = 0; i < 8; ++i) iv[4 + i] ^= static_cast<uint8_t>(i + 1);
      Bytes text = hex(known.text), tag(kTagBytes);
      const Libcrypto& library = *libcrypto().library;
      auto sealing =
          Aead::create(library, known.suite, Aead::Direction::seal, key.data(), iv.data());
      auto opening =
          Aead::create(library, known.suite, Aead::Direction::open, key.data(), iv.data());
      REQUIRE(sealing->seal(kNumber, {aad.data(), aad.size()}, text.data(), text.data(),
                            text.size(), tag.data()));
      CHECK(text == hex(known.sealed));
      CHECK(tag == hex(known.tag));
      REQUIRE(opening->open(kNumber, {aad.data(), aad.size()}, text.data(), text.data(),
                            text.size(), tag.data()));
      CHECK(text == hex(known.text));
    }
  }

  TEST_CASE("opens what it has sealed, at all lengths, in place and apart") {
    Random random(1);
    for (Suite suite : kSuites) {
      Pair pair(suite);
      uint64_t number = 0;
      for (size_t length = 0; length <= 16384; length += length < 300 ? 1 : 997) {
        Bytes aad = random.bytes(length % 40), text = random.bytes(length);
        REQUIRE(pair.seal(++number, aad, text));
        REQUIRE(pair.open(number, aad));
        REQUIRE(pair.opened == text);
        Bytes sealed = pair.sealed;
        REQUIRE(pair.opening->open(number, {aad.data(), aad.size()}, sealed.data(), sealed.data(),
                                   sealed.size(), pair.tag.data()));
        REQUIRE(sealed == text);
      }
    }
  }

  TEST_CASE("no number is sealed twice, and none opens as another") {
    for (Suite suite : kSuites) {
      Pair pair(suite);
      const Bytes aad = {1, 2, 3}, text = {4, 5, 6, 7};
      REQUIRE(pair.seal(5, aad, text));
      CHECK(pair.open(5, aad));
      for (uint64_t other : {uint64_t{4}, uint64_t{6}, uint64_t{5} << 32, UINT64_MAX})
        CHECK_FALSE(pair.open(other, aad));
      CHECK_FALSE(pair.seal(5, aad, text));
      CHECK_FALSE(pair.seal(4, aad, text));
      CHECK_FALSE(pair.seal(0, aad, text));
      CHECK(pair.seal(UINT64_MAX, aad, text));
      CHECK(pair.open(UINT64_MAX, aad));
      CHECK_FALSE(pair.seal(UINT64_MAX, aad, text));
    }
  }

  TEST_CASE("one context seals or opens, never both") {
    for (Suite suite : kSuites) {
      Pair pair(suite);
      uint8_t byte = 1, tag[kTagBytes];
      CHECK_FALSE(pair.opening->seal(1, {}, &byte, &byte, 1, tag));
      CHECK(pair.sealing->seal(1, {}, &byte, &byte, 1, tag));
      CHECK_FALSE(pair.sealing->open(1, {}, &byte, &byte, 1, tag));
    }
  }

  TEST_CASE("each changed bit is refused, and nothing of the text is left") {
    for (Suite suite : kSuites) {
      Pair pair(suite);
      const Bytes aad = {9, 8, 7, 6, 5};
      REQUIRE(pair.seal(1, aad, Bytes(33, 0x61)));
      auto refused = [&](const Bytes& with) {
        bool opened = pair.open(1, with);
        return !opened && pair.opened == Bytes(33, 0);
      };
      for (Bytes* changed : {&pair.sealed, &pair.tag}) {
        for (size_t bit = 0; bit < changed->size() * 8; ++bit) {
          (*changed)[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
          REQUIRE(refused(aad));
          (*changed)[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        }
      }
      for (size_t bit = 0; bit < aad.size() * 8; ++bit) {
        Bytes other = aad;
        other[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        REQUIRE(refused(other));
      }
      REQUIRE(refused({}));
      REQUIRE(refused({9, 8, 7, 6, 5, 0}));
      CHECK(pair.open(1, aad));
    }
  }

  TEST_CASE("keys of another suite, direction or session open nothing") {
    Pair gcm(Suite::aes256Gcm), chacha(Suite::chacha20Poly1305), other(Suite::aes256Gcm, 8);
    REQUIRE(gcm.seal(1, {}, Bytes(20, 1)));
    for (Pair* wrong : {&chacha, &other}) {
      wrong->sealed = gcm.sealed;
      wrong->tag = gcm.tag;
      CHECK_FALSE(wrong->open(1, {}));
    }
    CHECK(gcm.open(1, {}));
  }

  TEST_CASE("works on several threads at once, each with its own keys") {
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (uint8_t i = 0; i < 4; ++i) {
      threads.emplace_back([&failures, i] {
        Pair pair(kSuites[i % 2], i);
        Random random(i);
        for (uint64_t number = 1; number <= 2000; ++number) {
          Bytes text = random.bytes(number % 200);
          if (!pair.seal(number, {}, text) || !pair.open(number, {}) || pair.opened != text)
            ++failures;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures == 0);
  }

  TEST_CASE("mutated messages never open, and no byte beyond them is touched") {
    long rounds = mutatedMessages();
    Random random(99);
    for (Suite suite : kSuites) {
      Pair pair(suite);
      uint64_t number = 0;
      Bytes aad, text, sealed, tag;
      for (long round = 0; round < rounds / 2; ++round) {
        if (round % 64 == 0) {
          aad = random.bytes(24);
          text = random.bytes(random.below(600));
          REQUIRE(pair.seal(++number, aad, text));
          sealed = pair.sealed;
          tag = pair.tag;
        }
        Bytes with = aad;
        uint64_t as = number;
        switch (random.below(6)) {
          case 0:
            with[random.below(with.size())] ^= static_cast<uint8_t>(1 + random.below(255));
            break;
          case 1:
            pair.tag[random.below(kTagBytes)] ^= static_cast<uint8_t>(1 + random.below(255));
            break;
          case 2:
            if (sealed.empty()) continue;
            pair.sealed[random.below(sealed.size())] ^= static_cast<uint8_t>(1 + random.below(255));
            break;
          case 3:
            if (sealed.empty()) continue;
            pair.sealed = Bytes(sealed.begin(), sealed.begin() + random.below(sealed.size()));
            break;
          case 4:
            pair.sealed = random.bytes(sealed.size() + 1 + random.below(100));
            break;
          default:
            as += 1 + random.next();
        }
        if (pair.open(as, with)) FAIL("round " << round << " opened");
        pair.sealed = sealed;
        pair.tag = tag;
      }
      CHECK(pair.open(number, aad));
      CHECK(pair.opened == text);
    }
  }
}
