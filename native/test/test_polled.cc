// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include <thread>

#include "engine/guard.h"
#include "test/fake_provider.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::StandIn;
using fabric::Scheme;

TEST_SUITE("polled") {
  constexpr uint32_t kSlots = 4;

  /// A port on a provider without FI_WAIT_FD.
  struct PolledFixture {
    FakeProvider provider;
    TestPort port{Scheme::tcp, "", kSlots, kSlots, 64};

    PolledFixture() {
      REQUIRE(haveLibfabric());
      port.port = std::make_unique<engine::Port>(port.request, provider.transport());
      REQUIRE(port.port->start() == 0);
    }
  };

  TEST_CASE_FIXTURE(PolledFixture,
                    "a look finds what has come, and sleeps on where that is nothing") {
    CHECK(port.port->isPolled());
    REQUIRE(port.port->arm() == 1);
    CHECK(port.port->sleepsOn());
    provider.deliver(0, 16);
    CHECK_FALSE(port.port->sleepsOn());
    port.port->wake();
    port.turn();
    CHECK(port.count(engine::Completion::message) == 1);
  }

  TEST_CASE_FIXTURE(PolledFixture,
                    "the guard does not sleep in an absence: nothing would wake it") {
    port.port->beginAbsence();
    CHECK(port.port->standIn(1, 0).next == StandIn::Next::pause);
  }

  TEST_CASE_FIXTURE(PolledFixture, "the guard stands in for an owner whose looks cease") {
    engine::Guard guard(*port.port, [] {});
    auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
    {
      auto lock = guard.use();
      int peer = port.port->admit(raw->data(), raw->size());
      REQUIRE(port.port->vouch(static_cast<uint32_t>(peer), {0xa, {1}, 100, 1000}) == 0);
      guard.update();
    }
    {
      auto lock = guard.drive();
      REQUIRE(port.port->arm() == 1);
      guard.sleeps();
    }
    auto count = [&] {
      auto lock = guard.use();
      return guard.absences().count;
    };
    auto until = std::chrono::steady_clock::now() + kDeadline;
    while (count() == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK(count() == 1);
  }
}
