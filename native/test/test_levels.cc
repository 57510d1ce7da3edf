// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <vector>

#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using engine::Gauge;
using fabric::Scheme;
using transport::Operation;

TEST_SUITE("levels") {
  struct LevelsFixture {
    LevelsFixture() { REQUIRE(haveLibfabric()); }
  };

  /// More completions than the ring holds, while nobody reads it.
  void fillRing(Scheme scheme) {
    constexpr uint32_t kTransfers = engine::kRingEntries + 500;
    TestPort a(scheme), b(scheme);
    REQUIRE(a.open());
    REQUIRE(b.open());
    std::vector<uint8_t> there(4096), here(4096);
    int granted = b.port->registerRegion(there.data(), there.size(), fabric::kRemoteRead);
    int local = a.port->registerRegion(here.data(), here.size(), 0);
    REQUIRE(granted >= 0);
    REQUIRE(local >= 0);
    CHECK(b.port->gauge(Gauge::registeredBytes) == there.size());
    const fabric::Region* region = b.port->region(static_cast<uint32_t>(granted));
    int to = a.admit(b);
    for (uint32_t token = 0; token < kTransfers; ++token) {
      REQUIRE(a.transfer(Operation::Type::read, to, static_cast<uint32_t>(local), 0, 64,
                         region->key(), region->base(), token) == 0);
    }
    auto end = std::chrono::steady_clock::now() + kDeadline;
    while (a.port->gauge(Gauge::completions) < engine::kRingEntries &&
           std::chrono::steady_clock::now() < end) {
      a.port->progress(0);
      b.turn();
    }
    CHECK(a.port->gauge(Gauge::completions) >= engine::kRingEntries);
    for (int turns = 0; turns < 100; ++turns) {
      a.port->progress(0);
      b.turn();
    }
    // What is behind the ring is known as far as it was copied here, and waits at the provider
    // otherwise.
    CHECK(a.ring[0] - a.ring[1] == engine::kRingEntries);
    uint64_t most = a.port->gauge(Gauge::mostCompletions);
    CHECK(most >= engine::kRingEntries);
    CHECK(most <= kTransfers);

    REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == kTransfers; }));
    std::vector<bool> seen(kTransfers);
    for (const auto& entry : a.entries) {
      CHECK(entry.status == 0);
      CHECK_FALSE(seen[entry.token]);
      seen[entry.token] = true;
    }
    a.turn();
    CHECK(a.port->gauge(Gauge::completions) == 0);
    CHECK(a.port->gauge(Gauge::mostCompletions) >= most);
    REQUIRE(a.port->deregisterRegion(static_cast<uint32_t>(local)) == 0);
    CHECK(a.port->gauge(Gauge::registeredBytes) == 0);
  }
  TEST_CASE_FIXTURE(LevelsFixture, "more completions than the ring holds wait, over shm") {
    fillRing(Scheme::shm);
  }
  TEST_CASE_FIXTURE(LevelsFixture, "more completions than the ring holds wait, over tcp") {
    fillRing(Scheme::tcp);
  }

  /// More messages than receive slots, while nobody reads them.
  void fillReceives(Scheme scheme) {
    constexpr uint32_t kSlots = 32;
    constexpr size_t kMessages = 200;
    TestPort a(scheme, "", kSlots, kSlots), b(scheme, "", kSlots, kSlots);
    REQUIRE(a.open());
    REQUIRE(b.open());
    CHECK(b.port->gauge(Gauge::receivesUsed) == 0);
    int to = a.admit(b);
    size_t sent = 0;
    std::vector<bool> busy(kSlots);
    auto sendMore = [&] {
      for (uint32_t slot = 0; slot < kSlots && sent < kMessages; ++slot) {
        if (busy[slot]) continue;
        int status = a.sendPattern(to, slot, 2000, static_cast<uint8_t>(sent));
        REQUIRE(status >= 0);
        busy[slot] = status == 0;
        ++sent;
      }
      a.turn();
      for (const auto& entry : a.entries) {
        uint32_t freed = a.freedSlot(entry);
        if (freed != UINT32_MAX) busy[freed] = false;
      }
      a.entries.clear();
    };
    auto end = std::chrono::steady_clock::now() + kDeadline;
    while (b.port->gauge(Gauge::receivesUsed) < kSlots && std::chrono::steady_clock::now() < end) {
      sendMore();
      b.port->progress(0);
    }
    CHECK(b.port->gauge(Gauge::receivesUsed) == kSlots);
    CHECK(b.port->gauge(Gauge::mostReceives) == kSlots);
    REQUIRE(eventually({&a, &b}, [&] {
      sendMore();
      return b.messages.size() == kMessages;
    }));
    for (size_t i = 0; i < kMessages; ++i) CHECK(isPattern(b.messages[i], static_cast<uint8_t>(i)));
    b.turn();
    CHECK(b.port->gauge(Gauge::receivesUsed) == 0);
    CHECK(b.port->gauge(Gauge::mostReceives) == kSlots);
  }
  TEST_CASE_FIXTURE(LevelsFixture, "more messages than receive slots wait, over shm") {
    fillReceives(Scheme::shm);
  }
  TEST_CASE_FIXTURE(LevelsFixture, "more messages than receive slots wait, over tcp") {
    fillReceives(Scheme::tcp);
  }
}
