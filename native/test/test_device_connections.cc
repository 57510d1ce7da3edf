// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include "test/fake_provider.h"
#include "test/harness.h"
#include "transport/verbs/refusals.h"

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
      provider.knowsAgain = true;
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
  TEST_CASE_FIXTURE(ForgottenFixture,
                    "a connection whose device refused a queue pair is begun again, too") {
    provider.stuck = {0};
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    size_t before = provider.tries;
    // The next post fails for that reason and leaves no connection. The post after it begins
    // another.
    provider.refused = {0};
    forget();
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
    CHECK(provider.tries == before + 2);
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
  TEST_CASE_FIXTURE(ForgottenFixture,
                    "a connection that never tells what became of a send is ended") {
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    REQUIRE(port.port->forget(a) == 0);
    CHECK(port.port->wantsRetry());
    port.turn();
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
    CHECK_FALSE(port.port->wantsRetry());
    port.turn();
    CHECK(provider.removed.size() == 1);
    CHECK(port.port->gauge(Gauge::addresses) == 0);
  }
  TEST_CASE_FIXTURE(ForgottenFixture, "a connection that another session uses is not ended") {
    uint32_t b = admit(9);
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    REQUIRE(port.port->forget(a) == 0);
    port.turn();
    CHECK(provider.removed.empty());
    // It is ended once that session is over, too. Until then the port may sleep.
    CHECK_FALSE(port.port->wantsRetry());
    REQUIRE(port.port->forget(b) == 0);
    CHECK(port.port->wantsRetry());
    port.turn();
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
    CHECK_FALSE(port.port->wantsRetry());
  }
  TEST_CASE_FIXTURE(ForgottenFixture, "a connection that is full, and stays so, is ended") {
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    provider.stuck = {0};
    CHECK(port.sendPattern(static_cast<int>(a), 1, 32, 1) == 0);
    REQUIRE(port.port->forget(a) == 0);
    port.turn();
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
  }
  TEST_CASE_FIXTURE(ForgottenFixture, "a connection whose sends end is left alone") {
    CHECK(port.sendPattern(static_cast<int>(a), 0, 32, 1) == 0);
    REQUIRE(port.port->forget(a) == 0);
    provider.complete(provider.posted[0].context);
    while (port.port->wantsRetry()) port.turn();
    // Its address alone, which nobody uses any more.
    CHECK(provider.removed.size() == 1);
  }

  /// A message to a peer that cannot be reached, as rxm has it: the post is deferred for ever.
  struct RefusedFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};
    int a = -1;

    RefusedFixture() {
      REQUIRE(haveLibfabric());
      provider.knowsAgain = true;
      port.port = std::make_unique<engine::Port>(
          port.request, provider.transport({.endsConnections = true, .hidesRefusals = true}));
      REQUIRE(port.port->start() == 0);
      provider.stuck = {0};
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      a = port.port->admit(raw->data(), raw->size());
      CHECK(port.sendPattern(a, 0, 32, 1) == 0);
    }
    /// Reports a refused connection between hosts, as the connection manager does.
    void refuse(const char* local, const char* peer, uint32_t service, bool isInside) {
      verbs::tellRefusal({*fabric::encodeSocketAddress(local, 7),
                          *fabric::encodeSocketAddress(peer, service), isInside});
      port.turn();
    }
  };
  TEST_CASE_FIXTURE(RefusedFixture, "what waits for a peer fails when nobody listens there") {
    refuse("127.0.0.1", "127.0.0.1", 9, false);
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == ECONNREFUSED);
    CHECK_FALSE(port.port->wantsRetry());
    // The provider has ended its connection.
    CHECK(provider.removed.empty());
    // The next message goes to a server that has come since.
    provider.stuck.clear();
    CHECK(port.sendPattern(a, 1, 32, 2) == 0);
    CHECK(provider.posted.size() == 1);
  }
  TEST_CASE_FIXTURE(RefusedFixture, "a connection that was refused inside the call is ended") {
    refuse("127.0.0.1", "127.0.0.1", 9, true);
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == ECONNREFUSED);
    CHECK(provider.removed == std::vector<fi_addr_t>{0});
  }
  TEST_CASE_FIXTURE(RefusedFixture, "a refusal concerns no other peer, and no other device") {
    refuse("127.0.0.1", "127.0.0.1", 10, true);
    refuse("127.0.0.1", "127.0.0.2", 9, true);
    refuse("127.0.0.2", "127.0.0.1", 9, true);
    CHECK(port.entries.empty());
    CHECK(provider.removed.empty());
  }
  TEST_CASE_FIXTURE(RefusedFixture, "a connection that the peer has made meanwhile outlives it") {
    provider.stuck.clear();
    REQUIRE(eventually({&port}, [&] { return provider.posted.size() == 1; }));
    refuse("127.0.0.1", "127.0.0.1", 9, true);
    CHECK(provider.removed.empty());
    CHECK(port.entries.empty());
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

  /// Over a device that damages short extents where they cross a page of their source.
  struct PageFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};
    std::vector<uint8_t> memory = std::vector<uint8_t>(3 * transport::kPageBytes);
    uint32_t region = 0;
    uint32_t a = 0;
    uint64_t page = 0;  // offset of the first that begins in the memory, but for 100 bytes at least

    PageFixture() {
      REQUIRE(haveLibfabric());
      port.port =
          std::make_unique<engine::Port>(port.request, provider.transport({.tornBytes = 32}));
      REQUIRE(port.port->start() == 0);
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      a = static_cast<uint32_t>(port.port->admit(raw->data(), raw->size()));
      region = static_cast<uint32_t>(port.port->registerRegion(memory.data(), memory.size(), 0));
      auto base = reinterpret_cast<uint64_t>(memory.data()) + 100;
      page = 100 + transport::kPageBytes - base % transport::kPageBytes;
    }
    /// How many extents the transfer was cut into, and the length of the first.
    std::pair<size_t, size_t> cut(transport::Operation::Type type, uint64_t offset, uint64_t bytes,
                                  uint64_t remote) {
      provider.extents.clear();
      provider.lengths.clear();
      transport::Extent extent{region, offset, bytes, 1, remote};
      REQUIRE(port.port->transfer(type, a, &extent, 1, 5) == 0);
      REQUIRE(provider.extents.size() == 1);
      return {provider.extents[0], provider.lengths[0]};
    }
  };
  using Cut = std::pair<size_t, size_t>;

  TEST_CASE_FIXTURE(PageFixture, "a short read is cut where it crosses a page of the peer's") {
    auto read = transport::Operation::Type::read;
    CHECK(cut(read, 0, 24, 4096 - 10) == Cut{2, 10});
    CHECK(cut(read, 0, 32, 8192 - 31) == Cut{2, 31});
    CHECK(cut(read, 0, 24, 4096 - 24) == Cut{1, 24});
    CHECK(cut(read, 0, 24, 4096) == Cut{1, 24});
    CHECK(cut(read, 0, 33, 4096 - 10) == Cut{1, 33});
    CHECK(cut(read, page - 10, 24, 4096) == Cut{1, 24});
  }
  TEST_CASE_FIXTURE(PageFixture, "a short write is cut where it crosses a page of its own") {
    auto write = transport::Operation::Type::write;
    CHECK(cut(write, page - 1, 2, 4096) == Cut{2, 1});
    CHECK(cut(write, page - 24, 24, 4096) == Cut{1, 24});
    CHECK(cut(write, page, 24, 4096 - 10) == Cut{1, 24});
    CHECK(cut(write, page - 10, 33, 4096) == Cut{1, 33});
  }
  TEST_CASE_FIXTURE(PageFixture, "what was cut is moved whole") {
    transport::Extent extents[] = {{region, 0, 24, 1, 4096 - 10}, {region, 24, 50, 1, 4096 - 10}};
    REQUIRE(port.port->transfer(transport::Operation::Type::read, a, extents, 2, 5) == 0);
    REQUIRE(provider.posted.size() == 1);
    provider.complete(provider.posted[0].context);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].bytes == 74);
  }

  /// Over a provider whose writes complete when they have left.
  struct ProofFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};
    std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 15);
    uint32_t region = 0;
    uint32_t a = 0;

    ProofFixture() {
      REQUIRE(haveLibfabric());
      port.port =
          std::make_unique<engine::Port>(port.request, provider.transport({.provesWrites = true}));
      REQUIRE(port.port->start() == 0);
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      a = static_cast<uint32_t>(port.port->admit(raw->data(), raw->size()));
      region = static_cast<uint32_t>(port.port->registerRegion(memory.data(), memory.size(), 0));
    }
    int write() { return write(1, 10); }
    /// The provider takes four pieces at once.
    int write(size_t pieces, uint64_t bytes) {
      std::vector<transport::Extent> extents(pieces, {region, 0, bytes, 1, 0});
      return port.port->transfer(transport::Operation::Type::write, a, extents.data(), pieces, 5);
    }
    void complete(size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) provider.complete(provider.posted[i].context);
      port.turn();
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

  TEST_CASE_FIXTURE(ProofFixture, "short writes share a proof") {
    CHECK(write(10, 10) == 0);
    REQUIRE(provider.lengths == std::vector<size_t>{10, 10, 10, 0});
    CHECK(provider.posted[2].context == provider.posted[3].context);
    complete(0, 3);
    CHECK(port.entries.empty());
    complete(3, 4);
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == 0);
    CHECK(port.entries[0].bytes == 100);
  }

  TEST_CASE_FIXTURE(ProofFixture, "so many short writes share a proof, and no more") {
    CHECK(write(68, 10) == 0);
    std::vector<size_t> lengths(16, 10);
    lengths.insert(lengths.end(), {0, 10, 0});
    CHECK(provider.lengths == lengths);
  }

  TEST_CASE_FIXTURE(ProofFixture, "long writes have a proof each") {
    CHECK(write(8, 5000) == 0);
    CHECK(provider.lengths == std::vector<size_t>{5000, 0, 5000, 0});
  }

  TEST_CASE_FIXTURE(ProofFixture, "nothing has surely moved of writes whose proof fails") {
    CHECK(write(8, 10) == 0);
    complete(0, 2);
    provider.fail(provider.posted[2].context, FI_ECANCELED);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.entries[0].bytes == 0);
  }

  TEST_CASE_FIXTURE(ProofFixture, "writes are posted again if not all of them find room at once") {
    provider.most = 1;
    CHECK(write(8, 10) == 0);
    CHECK(provider.posted.size() == 1);
    complete(0, 1);
    CHECK(port.entries.empty());
    provider.most = 100;
    REQUIRE(eventually({&port}, [&] { return provider.posted.size() == 5; }));
    CHECK(provider.lengths == std::vector<size_t>{10, 10, 0, 10, 0});
    complete(1, 5);
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == 0);
    CHECK(port.entries[0].bytes == 80);
  }

  TEST_CASE_FIXTURE(ProofFixture, "writes are posted again if the proof of all finds no room") {
    provider.most = 2;
    CHECK(write(8, 10) == 0);
    CHECK(provider.posted.size() == 2);
    complete(0, 2);
    CHECK(port.entries.empty());
    provider.most = 100;
    REQUIRE(eventually({&port}, [&] { return provider.posted.size() == 6; }));
    complete(2, 6);
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].bytes == 80);
  }
}
