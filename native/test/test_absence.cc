// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include "test/fake_provider.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::StandIn;

TEST_SUITE("absence") {
  constexpr uint32_t kSlots = 4;
  constexpr uint64_t kEveryNs = 100;
  constexpr uint64_t kForNs = 1000;

  struct AbsenceFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", kSlots, kSlots, 64};
    int a, b;

    explicit AbsenceFixture(fabric::EndpointTraits traits = {.waitFd = 0}) {
      REQUIRE(haveLibfabric());
      port.port = std::make_unique<engine::Port>(port.request, provider.transport(traits));
      REQUIRE(port.port->start() == 0);
      a = admit();
      b = admit();
      REQUIRE(vouch(a, 0xa) == 0);
      REQUIRE(vouch(b, 0xb) == 0);
    }
    int admit() {
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      return port.port->admit(raw->data(), raw->size());
    }
    int vouch(int address, uint64_t mark, size_t bytes = 1) {
      engine::Vouch vouch{mark, std::vector<uint8_t>(bytes, static_cast<uint8_t>(mark)), kEveryNs,
                          kForNs};
      return port.port->vouch(static_cast<uint32_t>(address), std::move(vouch));
    }
    /// A message with that mark fills the receive slot that was posted as the `index`th.
    void hear(size_t index, uint64_t mark, size_t bytes = 16) {
      uint8_t* slot = port.slot(static_cast<uint32_t>(kSlots + index));
      memset(slot, 0, 64);
      memcpy(slot + engine::kMarkAt, &mark, sizeof mark);
      provider.deliver(index, bytes);
    }
    StandIn::Next turn(uint64_t absentNs) {
      return port.port->standIn(1'000'000 + absentNs, absentNs).next;
    }
    /// The addresses that were spoken to since the last call.
    std::vector<fi_addr_t> spoken() {
      std::vector<fi_addr_t> all;
      for (auto& message : provider.posted) all.push_back(message.to);
      provider.posted.clear();
      return all;
    }
    using To = std::vector<fi_addr_t>;
  };

  TEST_CASE_FIXTURE(AbsenceFixture,
                    "who sends something is answered at once and so often, and nobody else is") {
    port.port->beginAbsence();
    CHECK(turn(0) == StandIn::Next::sleep);
    CHECK(spoken().empty());
    hear(0, 0xb);
    CHECK(turn(10) == StandIn::Next::again);
    CHECK(turn(11) == StandIn::Next::sleep);
    CHECK(spoken() == To{static_cast<fi_addr_t>(b)});
    hear(1, 0xb);
    turn(20);
    turn(110);
    CHECK(spoken().empty());
    turn(111);
    CHECK(spoken() == To{static_cast<fi_addr_t>(b)});
    port.port->endAbsence();
    // The next one begins anew.
    port.turn();
    port.port->beginAbsence();
    turn(0);
    CHECK(spoken().empty());
  }

  TEST_CASE_FIXTURE(AbsenceFixture,
                    "a sealed answer is sealed anew each time, under its own count") {
    const crypto::Libcrypto& library = *crypto::libcrypto().library;
    uint8_t key[crypto::kKeyBytes] = {1}, iv[crypto::kIvBytes] = {2};
    auto cipher = [&](crypto::Aead::Direction direction) {
      return crypto::Aead::create(library, crypto::Suite::aes256Gcm, direction, key, iv);
    };
    auto vouchSealed = [&](size_t bytes) {
      engine::Vouch vouch{0xc, std::vector<uint8_t>(bytes, 0x5a), kEveryNs, kForNs};
      vouch.seal = cipher(crypto::Aead::Direction::seal);
      return port.port->vouch(static_cast<uint32_t>(a), std::move(vouch));
    };
    CHECK(vouchSealed(engine::kSealedBytes - 1) == -FI_EINVAL);
    REQUIRE(vouchSealed(engine::kSealedBytes) == 0);
    auto opening = cipher(crypto::Aead::Direction::open);
    for (uint8_t count = 1; count <= 3; ++count) {
      port.port->beginAbsence();
      hear(count - 1u, 0xc);
      turn(0);
      turn(1);
      REQUIRE(provider.posted.size() == 1);
      std::vector<uint8_t> message = provider.posted[0].bytes;
      provider.posted.clear();
      REQUIRE(message.size() == engine::kSealedBytes);
      for (size_t i = 0; i < engine::kSealedClearBytes; ++i) {
        bool counts = i >= engine::kSealedCountAt;
        CHECK(message[i] == (!counts ? 0x5a : i == engine::kSealedCountAt ? count : 0));
      }
      uint8_t* text = message.data() + engine::kSealedClearBytes;
      CHECK(std::vector<uint8_t>(text, text + 16) != std::vector<uint8_t>(16, 0x5a));
      crypto::Aad aad{message.data(), engine::kSealedClearBytes};
      CHECK_FALSE(opening->open(count + 1u, aad, text, text, 16, text + 16));
      port.port->endAbsence();
      port.turn();
    }
    // And once in full: what is sealed is the text of the vouch.
    port.port->beginAbsence();
    hear(3, 0xc);
    turn(0);
    turn(1);
    REQUIRE(provider.posted.size() == 1);
    std::vector<uint8_t> message = provider.posted[0].bytes;
    uint8_t* text = message.data() + engine::kSealedClearBytes;
    REQUIRE(
        opening->open(4, {message.data(), engine::kSealedClearBytes}, text, text, 16, text + 16));
    CHECK(std::vector<uint8_t>(text, text + 16) == std::vector<uint8_t>(16, 0x5a));
  }

  TEST_CASE_FIXTURE(AbsenceFixture,
                    "what names nobody, or is too short to, is answered by nothing") {
    port.port->beginAbsence();
    hear(0, 0xc);
    hear(1, 0xb, 15);
    turn(0);
    turn(1);
    CHECK(spoken().empty());
    port.port->endAbsence();
    port.turn();
    CHECK(port.messages.size() == 2);
  }

  TEST_CASE_FIXTURE(AbsenceFixture, "nobody is answered once the absence has lasted too long") {
    port.port->beginAbsence();
    hear(0, 0xa);
    turn(kForNs - 2);
    turn(kForNs - 1);
    CHECK(spoken().size() == 1);
    turn(kForNs + kEveryNs);
    CHECK(spoken().empty());
  }

  TEST_CASE_FIXTURE(AbsenceFixture,
                    "when there is no room for who might ask, all are answered, and it is told") {
    port.port->beginAbsence();
    for (size_t i = 0; i < kSlots; ++i) hear(i, 0xc);
    CHECK(turn(0) == StandIn::Next::pause);
    CHECK(turn(1) == StandIn::Next::pause);
    CHECK(spoken().size() == 2);
  }

  TEST_CASE_FIXTURE(AbsenceFixture, "what came waits in the ring, in order, and keeps its slots") {
    provider.receives.resize(kSlots);
    port.port->beginAbsence();
    hear(0, 0xa);
    hear(1, 0xb);
    turn(0);
    hear(2, 0xc);
    turn(1);
    // The reader's word, without its coming, gives nothing back.
    port.ring[1] = 2;
    turn(2);
    CHECK(provider.receives.size() == kSlots);
    port.ring[1] = 0;
    port.port->endAbsence();
    port.turn();
    REQUIRE(port.entries.size() == 3);
    for (uint32_t i = 0; i < 3; ++i) CHECK(port.entries[i].token == (kSlots + i) * 64);
    port.turn();
    CHECK(provider.receives.size() == kSlots + 3);
  }

  TEST_CASE_FIXTURE(AbsenceFixture, "what waits to be sent is, and its completion waits too") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    REQUIRE(port.sendPattern(a, 0, 32, 1) == 0);
    provider.stuck.clear();
    port.port->beginAbsence();
    for (int i = 0; i < 1000 && provider.posted.empty(); ++i) turn(static_cast<uint64_t>(i));
    REQUIRE(eventually({}, [&] {
      turn(0);
      return !provider.posted.empty();
    }));
    provider.complete(provider.posted[0].context);
    turn(1);
    port.port->endAbsence();
    port.turn();
    CHECK(port.count(engine::Completion::sent) == 1);
  }

  struct RestingFixture : AbsenceFixture {
    RestingFixture()
        : AbsenceFixture({.waitFd = 0, .endsConnections = true, .rest = std::chrono::hours(1)}) {}
  };
  TEST_CASE_FIXTURE(RestingFixture, "nothing is said on a connection that is being ended") {
    REQUIRE(port.sendPattern(a, 0, 32, 1) == 0);
    provider.fail(provider.posted[0].context, FI_EIO);
    port.turn();
    provider.posted.clear();
    port.port->beginAbsence();
    hear(0, 0xa);
    hear(1, 0xb);
    turn(0);
    turn(1);
    CHECK(spoken() == To{static_cast<fi_addr_t>(b)});
  }

  TEST_CASE_FIXTURE(AbsenceFixture, "a vouch ends with its address, or by itself") {
    CHECK(port.port->isRelevant());
    port.port->unvouch(static_cast<uint32_t>(a));
    CHECK(port.port->isRelevant());
    port.port->forget(static_cast<uint32_t>(b));
    CHECK(!port.port->isRelevant());
    port.port->beginAbsence();
    hear(0, 0xa);
    hear(1, 0xb);
    turn(0);
    turn(1);
    CHECK(spoken().empty());
  }

  TEST_CASE_FIXTURE(AbsenceFixture, "a vouch that cannot be kept is refused") {
    CHECK(vouch(a, 0xb) == -FI_EADDRINUSE);
    CHECK(vouch(7, 0xd) == -FI_EINVAL);
    CHECK(vouch(a, 0xd, 65) == -FI_EINVAL);  // longer than what is injected
    CHECK(vouch(a, 0xa) == 0);
  }

  TEST_CASE_FIXTURE(AbsenceFixture, "the number of an address rests until the ring has been read") {
    hear(0, 0xa);
    port.port->beginAbsence();
    turn(0);
    port.port->endAbsence();
    port.port->forget(static_cast<uint32_t>(a));
    CHECK(admit() != a);
    port.turn();  // hands out what had come
    port.turn();
    CHECK(admit() == a);
  }
}
