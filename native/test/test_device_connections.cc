// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include "test/fake_provider.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Gauge;

// What RDMA devices need beside other providers: connections that are ended when something fails in
// them, and proofs that a write is in place.
TEST_SUITE("connections of devices") {
  /// Two messages to one peer, the second behind the failure of the first.
  struct FailedFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};

    void send(std::chrono::milliseconds rest) {
      REQUIRE(haveLibfabric());
      auto endpoint = provider.transport({.endsConnections = true, .rest = rest});
      port.port = std::make_unique<engine::Port>(port.request, std::move(endpoint));
      REQUIRE(port.port->start() == 0);
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      int a = port.port->admit(raw->data(), raw->size());
      CHECK(port.sendPattern(a, 0, 32, 1) == 0);
      provider.fail(provider.posted[0].context, FI_EIO);
      port.turn();
      CHECK(port.entries.size() == 1);
      CHECK(port.sendPattern(a, 1, 32, 2) == 0);
    }
  };
  TEST_CASE_FIXTURE(FailedFixture, "what has failed takes its connection along") {
    send(std::chrono::milliseconds(0));
    CHECK(provider.posted.size() == 2);
    CHECK(provider.removed.size() == 1);
  }
  TEST_CASE_FIXTURE(FailedFixture,
                    "a connection that the provider ends itself is left to it, and rests") {
    send(std::chrono::hours(1));
    usleep(10'000);  // longer than waiting messages are left alone
    port.turn();
    CHECK(provider.posted.size() == 1);
    CHECK(provider.removed.empty());
  }
  TEST_CASE_FIXTURE(FailedFixture, "what waits for a new connection goes when the rest is over") {
    send(std::chrono::milliseconds(20));
    REQUIRE(eventually({&port}, [&] { return provider.posted.size() == 2; }));
    CHECK(provider.removed.empty());
  }

  /// One peer that nobody uses any more, and one that comes.
  struct ForgottenFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};
    uint32_t a = 0;

    ForgottenFixture() {
      REQUIRE(haveLibfabric());
      port.port = std::make_unique<engine::Port>(
          port.request, provider.transport({.endsConnections = true, .linger = {}}));
      REQUIRE(port.port->start() == 0);
      a = admit(9);
    }
    uint32_t admit(uint16_t service) {
      auto raw = fabric::encodeSocketAddress("127.0.0.1", service);
      return static_cast<uint32_t>(port.port->admit(raw->data(), raw->size()));
    }
    void forget() {
      REQUIRE(port.port->forget(a) == 0);
      admit(10);
    }
  };
  TEST_CASE_FIXTURE(ForgottenFixture, "an address that nobody uses is removed") {
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    provider.complete(provider.posted[0].context);
    port.turn();
    forget();
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
    CHECK(provider.tries == 1);
  }
  TEST_CASE_FIXTURE(ForgottenFixture,
                    "a connection that its peer rejected is begun again before it is ended") {
    provider.stuck = {0};
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    provider.notBegun = {0};
    forget();
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
    CHECK_FALSE(provider.crashed);
  }
  TEST_CASE_FIXTURE(ForgottenFixture, "an address that no connection can be begun to stays") {
    provider.stuck = {0};
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    provider.notBegun = {0};
    provider.error = -FI_EINVAL;
    forget();
    CHECK(provider.removed.empty());
    CHECK_FALSE(provider.crashed);
  }
  TEST_CASE_FIXTURE(FailedFixture, "a connection that is being made outlives the one that failed") {
    REQUIRE(haveLibfabric());
    port.port =
        std::make_unique<engine::Port>(port.request, provider.transport({.endsConnections = true}));
    REQUIRE(port.port->start() == 0);
    auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
    int a = port.port->admit(raw->data(), raw->size());
    CHECK(port.sendPattern(a, 0, 32, 1) == 0);
    provider.notBegun = {0};
    CHECK(port.sendPattern(a, 1, 32, 2) == 0);
    provider.notBegun = {0};  // the peer has rejected it
    provider.fail(provider.posted[0].context, FI_EIO);
    port.turn();
    CHECK(provider.removed.empty());
  }

  /// Over a provider whose writes complete when they have left.
  struct ProofFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};
    std::vector<uint8_t> memory = std::vector<uint8_t>(4096);
    uint32_t region = 0;
    uint32_t a = 0;

    ProofFixture() {
      REQUIRE(haveLibfabric());
      port.port =
          std::make_unique<engine::Port>(port.request, provider.transport({.provesWrites = true}));
      REQUIRE(port.port->start() == 0);
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      a = static_cast<uint32_t>(port.port->admit(raw->data(), raw->size()));
      region = static_cast<uint32_t>(port.port->registerRegion(memory.data(), 4096, 0));
    }
    int write() {
      transport::Extent extent{region, 0, 10, 1, 0};
      return port.port->transfer(transport::Operation::Type::write, a, &extent, 1, 5);
    }
  };

  TEST_CASE_FIXTURE(ProofFixture, "a write is done when the empty read behind it is") {
    CHECK(write() == 0);
    REQUIRE(provider.lengths == std::vector<size_t>{10, 0});
    CHECK(provider.posted[0].context == provider.posted[1].context);
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.entries.empty());
    CHECK(port.port->deregisterRegion(region) == -FI_EBUSY);
    provider.complete(provider.posted[1].context);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == 0);
    CHECK(port.entries[0].bytes == 10);
    CHECK(port.port->deregisterRegion(region) == 0);
  }

  TEST_CASE_FIXTURE(ProofFixture, "a write that left has failed if the read behind it does") {
    CHECK(write() == 0);
    provider.complete(provider.posted[0].context);
    port.turn();
    provider.fail(provider.posted[1].context, FI_ECANCELED);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.entries[0].bytes == 0);
    CHECK(port.port->gauge(Gauge::transfers) == 0);
  }

  TEST_CASE_FIXTURE(ProofFixture, "a write whose proof finds no room is written again with one") {
    provider.most = 1;
    CHECK(write() == 0);
    CHECK(provider.posted.size() == 1);
    provider.most = 2;  // for the write, and not for its proof
    for (int i = 0; i < 50; ++i) {
      usleep(200);
      port.turn();
    }
    CHECK(provider.posted.size() == 1);
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.entries.empty());
    provider.most = 100;
    REQUIRE(eventually({&port}, [&] { return provider.posted.size() == 3; }));
    CHECK(provider.lengths == std::vector<size_t>{10, 10, 0});
    provider.complete(provider.posted[1].context);
    provider.complete(provider.posted[2].context);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == 0);
    CHECK(port.entries[0].bytes == 10);
  }
}
