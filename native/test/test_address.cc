// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fabric.h>

#include "fabric/address.h"
#include "fabric/providers.h"

using namespace cinnabar::fabric;

TEST_SUITE("address") {
  TEST_CASE("socket addresses survive the round trip") {
    for (const char* host : {"127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "2001:db8::17"}) {
      auto raw = encodeSocketAddress(host, 7400);
      REQUIRE(raw);
      auto back = decodeSocketAddress(raw->data(), raw->size());
      REQUIRE(back);
      CHECK(back->host == host);
      CHECK(back->port == 7400);
    }
  }

  TEST_CASE("an empty host is the IPv4 wildcard") {
    auto raw = encodeSocketAddress("", 0);
    REQUIRE(raw);
    CHECK(decodeSocketAddress(raw->data(), raw->size())->host == "0.0.0.0");
    CHECK(familyOf(raw->data(), raw->size()) == AF_INET);
  }

  TEST_CASE("names, ports out of range and unknown scopes are refused") {
    CHECK_FALSE(encodeSocketAddress("localhost", 1));
    CHECK_FALSE(encodeSocketAddress("1.2.3", 1));
    CHECK_FALSE(encodeSocketAddress("127.0.0.1", 65536));
    CHECK_FALSE(encodeSocketAddress("fe80::1%nosuchdevice0", 1));
    CHECK_FALSE(encodeSocketAddress("fe80::1%", 1));
  }

  TEST_CASE("raw addresses of the wrong length or family are refused") {
    auto raw = encodeSocketAddress("127.0.0.1", 1);
    for (size_t length = 0; length < raw->size(); ++length)
      CHECK_FALSE(decodeSocketAddress(raw->data(), length));
    (*raw)[0] = 0x77;
    CHECK_FALSE(decodeSocketAddress(raw->data(), raw->size()));
  }

  TEST_CASE("shm addresses survive the round trip, with or without their zero byte") {
    RawAddress raw = encodeShmAddress("frames-1.a_B");
    CHECK(raw.back() == 0);
    CHECK(decodeShmAddress(raw.data(), raw.size()) == "frames-1.a_B");
    CHECK(decodeShmAddress(raw.data(), raw.size() - 1) == "frames-1.a_B");
  }

  TEST_CASE("shm names are 1 to 64 harmless characters") {
    CHECK(isShmName("a"));
    CHECK(isShmName(std::string(64, 'x')));
    CHECK_FALSE(isShmName(""));
    CHECK_FALSE(isShmName(std::string(65, 'x')));
    for (const char* bad : {"a/b", "a b", "~", "a\n", "\xc3\xa4"}) CHECK_FALSE(isShmName(bad));
    std::string text = "fi_shm://../x";
    CHECK_FALSE(decodeShmAddress(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
    text = "frames";
    CHECK_FALSE(decodeShmAddress(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  }
}

TEST_SUITE("providers") {
  std::string choice(Scheme scheme, uint32_t version) {
    std::string names;
    for (const Provider& provider : providerTable()) {
      if (provider.scheme == scheme && suits(provider, version))
        names += std::string(provider.name) + " ";
    }
    return names;
  }

  TEST_CASE("tcp is native where there is a native one") {
    CHECK(choice(Scheme::tcp, FI_VERSION(1, 17)) == "net ");
    CHECK(choice(Scheme::tcp, FI_VERSION(1, 18)) == "tcp ");
    CHECK(choice(Scheme::tcp, FI_VERSION(2, 6)) == "tcp ");
    CHECK(choice(Scheme::shm, FI_VERSION(2, 1)) == "");
    CHECK(choice(Scheme::verbs, FI_VERSION(1, 17)) == "verbs;ofi_rxm ");
  }

  TEST_CASE("schemes are known by their names") {
    for (Scheme scheme : {Scheme::tcp, Scheme::shm, Scheme::verbs, Scheme::efa, Scheme::ucx})
      CHECK(schemeOf(schemeName(scheme)) == scheme);
    CHECK(schemeOf("mem") == std::nullopt);
    CHECK(schemeOf("ofi+shm") == std::nullopt);
    CHECK(schemeOf("") == std::nullopt);
  }

  TEST_CASE("of version 4 have a place among those of version 6") {
    auto four = encodeSocketAddress("10.1.2.3", 7400);
    auto six = mapToSix(four->data(), four->size());
    auto decoded = decodeSocketAddress(six.data(), six.size());
    REQUIRE(decoded);
    CHECK(decoded->host == "::ffff:10.1.2.3");
    CHECK(decoded->port == 7400);
    auto every = encodeSocketAddress("::", 1);
    CHECK(isEveryAddress(every->data(), every->size()));
    CHECK_FALSE(isEveryAddress(six.data(), six.size()));
    CHECK_FALSE(isEveryAddress(four->data(), four->size()));
  }
}
