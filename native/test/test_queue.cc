// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include "test/fake_provider.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using engine::Gauge;

TEST_SUITE("waiting operations") {
  struct QueueFixture {
    FakeProvider provider;
    TestPort port{fabric::Scheme::tcp, "", 64, 4, 64};
    int a, b;

    QueueFixture() {
      port.port = std::make_unique<engine::Port>(port.request, provider.transport());
      REQUIRE(port.port->start() == 0);
      a = admit();
      b = admit();
    }
    int admit() {
      auto raw = fabric::encodeSocketAddress("127.0.0.1", 9);
      return port.port->admit(raw->data(), raw->size());
    }
    bool settle(size_t posts) {
      return eventually({&port}, [&] { return provider.posted.size() >= posts; });
    }
  };

  TEST_CASE_FIXTURE(QueueFixture, "a message that fits is injected and its slot is free at once") {
    CHECK(port.sendPattern(a, 0, 16, 1) == 1);
    CHECK(port.sendPattern(a, 0, 16, 2) == 1);
    CHECK(provider.posted.size() == 2);
    CHECK(port.port->gauge(Gauge::sends) == 0);
  }

  TEST_CASE_FIXTURE(QueueFixture, "a larger one returns its slot by a completion, and not before") {
    CHECK(port.sendPattern(a, 3, 17, 1) == 0);
    CHECK(port.sendPattern(a, 3, 17, 1) == -FI_EBUSY);
    provider.complete(provider.posted[0].context);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].kind == Completion::sent);
    CHECK(port.entries[0].token == 3 * 64);
    CHECK(port.sendPattern(a, 3, 17, 1) == 0);
  }

  TEST_CASE_FIXTURE(QueueFixture, "EAGAIN lets messages wait in order, small behind large") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    for (uint32_t i = 0; i < 40; ++i) {
      CHECK(port.sendPattern(a, i, i % 2 == 0 ? 8 : 32, static_cast<uint8_t>(i)) == 0);
    }
    CHECK(port.port->gauge(Gauge::waiting) == 40);
    CHECK(port.port->wantsRetry());
    provider.stuck.clear();
    REQUIRE(settle(40));
    for (uint32_t i = 0; i < 40; ++i) CHECK(provider.posted[i].bytes[0] == i);
    CHECK(port.port->gauge(Gauge::waiting) == 0);
    CHECK(port.count(Completion::sent) == 20);  // the injected ones; the others are at the provider
    CHECK(port.port->gauge(Gauge::sends) == 20);
  }

  TEST_CASE_FIXTURE(QueueFixture,
                    "what waits for stuck peers holds half of the slots, and leaves in order") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    for (uint32_t i = 0; i < 49; ++i) {
      CHECK(port.sendPattern(a, i, 32, static_cast<uint8_t>(i)) == 0);
    }
    port.turn();
    CHECK(port.count(Completion::parked) == 16);
    CHECK(port.port->gauge(Gauge::waiting) == 49);
    CHECK(port.port->gauge(Gauge::sends) == 49);
    // Their slots are free: what is written there does not change what waits.
    CHECK(port.sendPattern(b, 32, 32, 200) == 0);
    CHECK(provider.posted.size() == 1);
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.last(Completion::sent)->token == 32 * 64);
    // One address has no more than so many: the next is held back.
    CHECK(port.sendPattern(a, 49, 32, 49) == 0);
    CHECK(port.sendPattern(a, 49, 32, 49) == -FI_EBUSY);
    provider.stuck.clear();
    REQUIRE(settle(51));
    for (uint32_t i = 0; i < 50; ++i) CHECK(provider.posted[i + 1].bytes[0] == i);
    for (uint32_t i = 0; i < 50; ++i) provider.complete(provider.posted[i + 1].context);
    REQUIRE(eventually({&port}, [&] { return port.count(Completion::sent) == 51; }));
    CHECK(port.port->gauge(Gauge::sends) == 0);
    // Each is reported by the token that it had when it left its slot.
    std::vector<uint32_t> given, told;
    for (const auto& entry : port.entries) {
      if (entry.kind == Completion::parked) given.push_back(entry.high);
      if (entry.kind == Completion::sent && entry.token >= 1u << 31) told.push_back(entry.token);
    }
    CHECK(given == told);
  }

  TEST_CASE_FIXTURE(QueueFixture, "a message that was taken out of its slot ends with its peer") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    for (uint32_t i = 0; i < 48; ++i) CHECK(port.sendPattern(a, i, 32, 1) == 0);
    CHECK(port.port->forget(a) == 0);
    REQUIRE(eventually({&port}, [&] { return port.count(Completion::sent) == 48; }));
    CHECK(port.last(Completion::sent)->status == FI_ECANCELED);
    CHECK(port.port->gauge(Gauge::sends) == 0);
    for (uint32_t i = 0; i < 48; ++i) CHECK(port.sendPattern(b, i, 32, 1) == 0);
  }

  TEST_CASE_FIXTURE(QueueFixture, "a stuck peer does not hold up another") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    CHECK(port.sendPattern(a, 0, 8, 1) == 0);
    CHECK(port.sendPattern(b, 1, 8, 2) == 1);
    CHECK(provider.posted[0].bytes[0] == 2);
    for (int i = 0; i < 100; ++i) port.turn();
    CHECK(provider.posted.size() == 1);
    CHECK(port.port->gauge(Gauge::waiting) == 1);
  }

  TEST_CASE_FIXTURE(QueueFixture, "a message that comes later does not overtake the waiting ones") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    CHECK(port.sendPattern(a, 0, 8, 1) == 0);
    provider.stuck.clear();
    CHECK(port.sendPattern(a, 1, 8, 2) == 0);
    REQUIRE(settle(2));
    CHECK(provider.posted[0].bytes[0] == 1);
    CHECK(provider.posted[1].bytes[0] == 2);
  }

  TEST_CASE_FIXTURE(QueueFixture, "tries thin out, so that EAGAIN is not busy-waited") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    CHECK(port.sendPattern(a, 0, 8, 1) == 0);
    for (int i = 0; i < 100000; ++i) port.turn();
    CHECK(provider.tries < 2000);
  }

  TEST_CASE_FIXTURE(QueueFixture,
                    "an error of the provider is answered at once, or ends what waits") {
    provider.error = -FI_ECONNREFUSED;
    CHECK(port.sendPattern(a, 0, 8, 1) == -FI_ECONNREFUSED);
    CHECK(port.port->gauge(Gauge::sends) == 0);
    provider.error = 0;
    provider.stuck = {static_cast<fi_addr_t>(a)};
    CHECK(port.sendPattern(a, 0, 8, 1) == 0);
    provider.error = -FI_ENETUNREACH;
    REQUIRE(eventually({&port}, [&] { return port.count(Completion::sent) == 1; }));
    CHECK(port.last(Completion::sent)->status == FI_ENETUNREACH);
  }

  TEST_CASE_FIXTURE(
      QueueFixture,
      "forget cancels what waits, keeps what is posted, and frees the index when all is over") {
    CHECK(port.sendPattern(a, 0, 32, 1) == 0);
    provider.stuck = {static_cast<fi_addr_t>(a)};
    CHECK(port.sendPattern(a, 1, 32, 2) == 0);
    CHECK(port.port->forget(static_cast<uint32_t>(a)) == 0);
    CHECK(port.port->forget(static_cast<uint32_t>(a)) == -FI_EINVAL);
    port.turn();
    REQUIRE(port.count(Completion::sent) == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.entries[0].token == 64);
    CHECK(provider.removed.empty());
    CHECK(admit() == 2);  // not the forgotten one's index
    CHECK(port.sendPattern(a, 1, 8, 1) == -FI_EINVAL);
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.entries[1].status == 0);
    CHECK(provider.removed == std::vector<fi_addr_t>{static_cast<fi_addr_t>(a)});
    port.turn();  // what the ring said of it has been read
    CHECK(admit() == a);
  }

  TEST_CASE_FIXTURE(
      QueueFixture,
      "forget answers a posted transfer, but its region stays in use until the provider is done") {
    std::vector<uint8_t> memory(4096);
    int region = port.port->registerRegion(memory.data(), memory.size(), 0);
    REQUIRE(region >= 0);
    auto index = static_cast<uint32_t>(region);
    REQUIRE(port.transfer(transport::Operation::Type::read, a, index, 0, 4096, 1, 0, 99) == 0);
    CHECK(port.port->deregisterRegion(index) == -FI_EBUSY);
    port.port->forget(static_cast<uint32_t>(a));
    port.turn();
    REQUIRE(port.count(Completion::transfer) == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.entries[0].token == 99);
    CHECK(port.port->deregisterRegion(index) == -FI_EBUSY);
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.count(Completion::transfer) == 1);
    CHECK(port.port->deregisterRegion(index) == 0);
  }

  struct PartsFixture : QueueFixture {
    std::vector<uint8_t> memory = std::vector<uint8_t>(4096);
    uint32_t region = static_cast<uint32_t>(port.port->registerRegion(memory.data(), 4096, 0));
    int read(size_t extents, uint32_t token) {
      std::vector<transport::Extent> all;
      for (size_t i = 0; i < extents; ++i) all.push_back({region, i * 10, 10, 1, i * 10});
      return port.port->transfer(transport::Operation::Type::read, static_cast<uint32_t>(a),
                                 all.data(), all.size(), token);
    }
    bool isFree() { return port.port->gauge(Gauge::transfers) == 0; }
  };

  TEST_CASE_FIXTURE(PartsFixture,
                    "a transfer is cut as the provider takes extents, and ends once") {
    CHECK(read(10, 5) == 0);
    REQUIRE(provider.posted.size() == 3);
    CHECK(provider.extents == std::vector<size_t>{4, 4, 2});
    provider.complete(provider.posted[2].context);
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.entries.empty());
    provider.complete(provider.posted[1].context);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == 0);
    CHECK(port.entries[0].bytes == 100);
    CHECK(isFree());
    CHECK(port.port->deregisterRegion(region) == 0);
  }

  TEST_CASE_FIXTURE(PartsFixture, "what the provider does not take of a transfer waits, in order") {
    provider.most = 2;
    CHECK(read(12, 5) == 0);
    CHECK(port.sendPattern(a, 0, 8, 1) == 0);  // behind it
    CHECK(provider.posted.size() == 2);
    provider.complete(provider.posted[0].context);
    provider.complete(provider.posted[1].context);
    port.turn();
    CHECK(port.entries.empty());
    provider.most = 100;
    REQUIRE(settle(4));
    provider.complete(provider.posted[2].context);
    REQUIRE(eventually({&port}, [&] { return port.count(Completion::transfer) == 1; }));
    CHECK(port.last(Completion::transfer)->bytes == 120);
    CHECK(port.count(Completion::sent) == 1);
  }

  TEST_CASE_FIXTURE(PartsFixture,
                    "the first error of a part is the transfer's, after the last has ended") {
    CHECK(read(12, 5) == 0);
    provider.complete(provider.posted[1].context);
    port.turn();
    provider.fail(provider.posted[0].context, FI_ECANCELED);
    port.turn();
    provider.fail(provider.posted[2].context, FI_EIO);
    CHECK(port.entries.empty());
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.entries[0].providerError == 17);
    CHECK(port.entries[0].bytes == 40);
    CHECK(isFree());
  }

  TEST_CASE_FIXTURE(PartsFixture, "after an error nothing more of a transfer is posted") {
    provider.most = 1;
    CHECK(read(12, 5) == 0);
    CHECK(port.port->gauge(Gauge::waiting) == 1);
    provider.fail(provider.posted[0].context, FI_ECANCELED);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.port->gauge(Gauge::waiting) == 0);
    CHECK_FALSE(port.port->wantsRetry());
    provider.most = 100;
    for (int i = 0; i < 50; ++i) port.turn();
    CHECK(provider.posted.size() == 1);
    CHECK(isFree());
  }

  TEST_CASE_FIXTURE(PartsFixture, "a second completion of what failed is nobody's") {
    CHECK(read(1, 5) == 0);
    CHECK(port.sendPattern(a, 0, 32, 1) == 0);
    REQUIRE(provider.posted.size() == 2);
    void* transfer = provider.posted[0].context;
    void* send = provider.posted[1].context;
    provider.fail(transfer, FI_ECANCELED);
    provider.fail(send, FI_ECANCELED);
    port.turn();
    CHECK(port.entries.size() == 2);
    CHECK(read(1, 6) == 0);
    CHECK(port.sendPattern(a, 1, 32, 1) == 0);
    REQUIRE(provider.posted.size() == 4);
    provider.fail(transfer, FI_ECANCELED);
    provider.fail(send, FI_ECANCELED);
    provider.complete(transfer);
    provider.complete(send);
    port.turn();
    CHECK(port.entries.size() == 2);
    CHECK(port.port->gauge(Gauge::transfers) == 1);
    CHECK(port.port->gauge(Gauge::sends) == 1);
    provider.complete(provider.posted[2].context);
    provider.complete(provider.posted[3].context);
    port.turn();
    REQUIRE(port.entries.size() == 4);
    CHECK(port.last(Completion::transfer)->token == 6);
    CHECK(port.last(Completion::transfer)->status == 0);
    CHECK(port.last(Completion::sent)->token == 64);
    CHECK(isFree());
  }

  TEST_CASE_FIXTURE(PartsFixture, "a transfer refused in its middle ends when the rest has") {
    provider.most = 1;
    CHECK(read(12, 5) == 0);
    provider.most = 100;
    provider.error = -FI_ENETUNREACH;
    for (int i = 0; i < 1000 && port.port->gauge(Gauge::waiting) > 0; ++i) {
      usleep(100);
      port.turn();
    }
    CHECK(port.entries.empty());
    provider.complete(provider.posted[0].context);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ENETUNREACH);
    CHECK(port.entries[0].bytes == 40);
  }

  TEST_CASE_FIXTURE(PartsFixture,
                    "forget answers a transfer that is posted in part, and waits for the part") {
    provider.most = 1;
    CHECK(read(12, 5) == 0);
    port.port->forget(static_cast<uint32_t>(a));
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ECANCELED);
    CHECK(port.port->deregisterRegion(region) == -FI_EBUSY);
    CHECK(provider.removed.empty());
    provider.complete(provider.posted[0].context);
    port.turn();
    CHECK(port.entries.size() == 1);
    CHECK(port.port->deregisterRegion(region) == 0);
    CHECK(provider.removed.size() == 1);
  }

  TEST_CASE_FIXTURE(QueueFixture, "an error completion carries both error numbers") {
    CHECK(port.sendPattern(a, 0, 32, 1) == 0);
    provider.fail(provider.posted[0].context, FI_ECONNRESET);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].status == FI_ECONNRESET);
    CHECK(port.entries[0].providerError == 17);
  }

  TEST_CASE_FIXTURE(QueueFixture,
                    "a message too large for its slot is reported and the slot goes back") {
    size_t before = provider.receives.size();
    provider.fail(provider.receives[2], FI_ETRUNC);
    port.turn();
    REQUIRE(port.entries.size() == 1);
    CHECK(port.entries[0].kind == Completion::message);
    CHECK(port.entries[0].status == FI_ETRUNC);
    port.turn();
    CHECK(provider.receives.size() == before + 1);
    CHECK(provider.receives.back() == provider.receives[2]);
  }

  TEST_CASE_FIXTURE(QueueFixture, "a receive the provider would not take is posted later") {
    provider.completions.push_back({provider.receives[0], FI_RECV, 8, nullptr, 0});
    provider.refuseReceives = true;
    port.turn();
    port.turn();
    CHECK(provider.receives.size() == 4);
    CHECK(port.port->wantsRetry());
    provider.refuseReceives = false;
    port.turn();
    CHECK(provider.receives.size() == 5);
  }

  TEST_CASE_FIXTURE(QueueFixture, "a full ring stops the reaping, and loses nothing") {
    provider.stuck = {static_cast<fi_addr_t>(a)};
    for (uint32_t i = 0; i < 10; ++i) CHECK(port.sendPattern(a, i, 8, 1) == 0);
    uint32_t total = engine::kRingEntries + 100;
    for (uint32_t i = 0; i < total; ++i)
      provider.completions.push_back({provider.receives[i % 4], FI_RECV, 8, nullptr, 0});
    for (int i = 0; i < 100; ++i) port.port->progress(0);
    CHECK(provider.completions.size() == 100);
    port.port->forget(static_cast<uint32_t>(a));  // ten more completions, with no room for them
    CHECK(port.port->progress(0) == engine::kRingEntries);
    REQUIRE(eventually({&port}, [&] { return port.entries.size() == total + 10; }));
    CHECK(port.count(Completion::sent) == 10);
  }

  TEST_CASE_FIXTURE(QueueFixture, "impossible arguments are refused") {
    engine::Port& p = *port.port;
    auto address = static_cast<uint32_t>(a);
    CHECK(p.send(77, 0, 1) == -FI_EINVAL);
    CHECK(p.send(address, 64 * 64, 1) == -FI_EINVAL);
    CHECK(p.send(address, UINT64_MAX, 1) == -FI_EINVAL);
    CHECK(p.send(address, 0, 65) == -FI_EINVAL);
    CHECK(p.send(address, 60, 5) == -FI_EINVAL);
    CHECK(p.send(address, 60, 4) == 1);
    std::vector<uint8_t> memory(100);
    auto region = static_cast<uint32_t>(p.registerRegion(memory.data(), 100, 0));
    auto read = [&](int to, uint32_t of, uint64_t offset, uint64_t bytes, uint64_t remote) {
      return port.transfer(transport::Operation::Type::read, to, of, offset, bytes, 1, remote, 1);
    };
    CHECK(read(77, region, 0, 1, 0) == -FI_EINVAL);
    CHECK(read(a, 77, 0, 1, 0) == -FI_EINVAL);
    CHECK(read(a, region, 0, 0, 0) == -FI_EINVAL);
    CHECK(read(a, region, 0, 101, 0) == -FI_EINVAL);
    CHECK(read(a, region, 100, 1, 0) == -FI_EINVAL);
    CHECK(read(a, region, UINT64_MAX, 2, 0) == -FI_EINVAL);
    CHECK(read(a, region, 0, UINT64_MAX, 0) == -FI_EINVAL);
    CHECK(read(a, region, 0, 2, UINT64_MAX - 1) == -FI_EINVAL);
    std::vector<transport::Extent> extents(transport::kMostExtents + 1, {region, 0, 1, 1, 0});
    auto many = [&](size_t count) {
      return p.transfer(transport::Operation::Type::read, address, extents.data(), count, 1);
    };
    CHECK(many(0) == -FI_EINVAL);
    CHECK(many(transport::kMostExtents + 1) == -FI_EINVAL);
    extents[200].offset = 100;
    CHECK(many(transport::kMostExtents) == -FI_EINVAL);
    std::vector<uint8_t> large(1 << 20);
    auto whole = static_cast<uint32_t>(p.registerRegion(large.data(), large.size(), 0));
    std::fill(extents.begin(), extents.end(), transport::Extent{whole, 0, 1 << 19, 1, 0});
    CHECK(many(3) == -FI_EMSGSIZE);
    CHECK(many(2) == 0);
    CHECK(p.deregisterRegion(whole) == -FI_EBUSY);
    extents[0].region = whole;
    CHECK(many(1) == -FI_EINVAL);  // withdrawn
    CHECK(p.registerRegion(memory.data(), 0, 0) == -FI_EINVAL);
    CHECK(p.registerRegion(memory.data(), 1, 5) == -FI_EINVAL);
    CHECK(p.registerRegion(memory.data(), 1, 8) == -FI_EINVAL);
    int source = p.registerRegion(memory.data(), 1, fabric::kSource);
    REQUIRE(source >= 0);
    CHECK_FALSE(p.region(static_cast<uint32_t>(source))->isGranted());
    CHECK(p.deregisterRegion(static_cast<uint32_t>(source)) == 0);
    CHECK(p.deregisterRegion(99) == -FI_EINVAL);
    CHECK(p.deregisterRegion(region) == 0);
    CHECK(p.deregisterRegion(region) == -FI_EINVAL);
  }
}
