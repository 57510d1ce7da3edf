// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using fabric::Scheme;

TEST_SUITE("receive queue") {
  // Several times what a region's queue holds, and what 1.17 keeps beside it (1024).
  constexpr uint32_t kMostTaken = 4096;
  constexpr int kIdleLooks = 256;

  /// Sends as fast as `to` takes messages.
  struct Flood {
    Flood(TestPort& port, int address) : from(port), to(address), busy(from.request.sendSlots) {}

    void turn(size_t bytes) {
      from.turn();
      for (const auto& entry : from.entries) {
        uint32_t freed = from.freedSlot(entry);
        if (freed != UINT32_MAX) busy[freed] = false;
        taken += entry.kind == Completion::sent;
      }
      from.entries.clear();
      for (uint32_t slot = 0; slot < busy.size(); ++slot) {
        if (busy[slot]) continue;
        int status = from.sendPattern(to, slot, bytes, static_cast<uint8_t>(sent));
        REQUIRE(status >= 0);
        busy[slot] = status == 0;
        taken += status == 1;
        ++sent;
      }
    }

    TestPort& from;
    int to;
    std::vector<bool> busy;
    uint32_t sent = 0;
    uint32_t taken = 0;  // by the provider
  };

  void withoutReceives(size_t bytes) {
    REQUIRE(haveLibfabric());
    TestPort a(Scheme::shm), b(Scheme::shm, "", 32, 8);
    REQUIRE(a.open());
    REQUIRE(b.open());
    Flood flood(a, a.admit(b));
    REQUIRE(flood.to >= 0);
    // It looks and takes nothing out of its ring, so no receive is posted again.
    uint32_t before = 0;
    for (int idle = 0; idle < kIdleLooks && flood.taken <= kMostTaken; ++idle) {
      flood.turn(bytes);
      b.port->progress(0);
      if (flood.taken != before) idle = 0;
      before = flood.taken;
    }
    CHECK(flood.taken >= 8);
    CHECK(flood.taken <= kMostTaken);

    uint32_t sent = flood.sent;
    uint32_t seen = 0;
    bool inOrder = true;
    CHECK(eventually({&a, &b}, [&] {
      for (const auto& message : b.messages) {
        inOrder =
            inOrder && message.size() == bytes && isPattern(message, static_cast<uint8_t>(seen));
        ++seen;
      }
      b.messages.clear();
      return seen >= sent;
    }));
    CHECK(seen == sent);
    CHECK(inOrder);
  }
  TEST_CASE("short messages without a receive wait at their sender over shm") {
    withoutReceives(64);
  }
  TEST_CASE("messages of a page without a receive wait at their sender over shm") {
    withoutReceives(4096);
  }

  TEST_CASE("a port closes over shm while messages have no receive") {
    REQUIRE(haveLibfabric());
    TestPort a(Scheme::shm), b(Scheme::shm, "", 32, 8);
    REQUIRE(a.open());
    REQUIRE(b.open());
    Flood flood(a, a.admit(b));
    REQUIRE(eventually({}, [&] {
      flood.turn(4096);
      b.port->progress(0);
      return flood.taken > 8;
    }));
    b.port->close();
    REQUIRE(eventually({&a}, [&] { return a.count(Completion::peerGone) == 1; }));
  }
}
