// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using fabric::Scheme;
using transport::Operation;

TEST_SUITE("transfers") {
  struct PortFixture {
    PortFixture() { REQUIRE(haveLibfabric()); }
  };

  void transfers(Scheme scheme) {
    TestPort a(scheme), b(scheme);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    std::vector<uint8_t> local(9 << 20), remote(9 << 20, 7);
    for (size_t i = 0; i < local.size(); ++i) local[i] = static_cast<uint8_t>(i * 31 >> 3);
    auto region = static_cast<uint32_t>(a.port->registerRegion(local.data(), local.size(), 0));
    int exposed = b.port->registerRegion(remote.data(), remote.size(), 3);
    REQUIRE(exposed >= 0);
    const fabric::Region* target = b.port->region(static_cast<uint32_t>(exposed));
    auto run = [&](Operation::Type type, uint64_t offset, uint64_t bytes, uint32_t token) {
      a.entries.clear();
      REQUIRE(a.transfer(type, to, region, offset, bytes, target->key(), target->base() + offset,
                         token) == 0);
      REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == 1; }));
      CHECK(a.last(Completion::transfer)->status == 0);
      CHECK(a.last(Completion::transfer)->token == token);
      CHECK(a.last(Completion::transfer)->bytes == bytes);
    };
    run(Operation::Type::write, 0, local.size(), 5);
    CHECK(memcmp(local.data(), remote.data(), local.size()) == 0);
    remote[1234] = 99;
    run(Operation::Type::read, 1000, 500, 0xffffffff);
    CHECK(local[1234] == 99);
    CHECK(a.port->gauge(engine::Gauge::transfers) == 0);
    CHECK(a.port->deregisterRegion(region) == 0);
    CHECK(b.port->deregisterRegion(static_cast<uint32_t>(exposed)) == 0);
  }
  TEST_CASE_FIXTURE(PortFixture, "reads and writes move memory over shm") {
    // A small transfer ends within the call, where the region is free at once.
    TestPort a(Scheme::shm), b(Scheme::shm);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    std::vector<uint8_t> local(9 << 20, 3), remote(9 << 20, 7);
    auto region = static_cast<uint32_t>(a.port->registerRegion(local.data(), local.size(), 0));
    auto exposed = static_cast<uint32_t>(b.port->registerRegion(remote.data(), remote.size(), 3));
    const fabric::Region* target = b.port->region(exposed);
    REQUIRE(a.transfer(Operation::Type::write, to, region, 0, local.size(), target->key(),
                       target->base(), 1) == 0);
    REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == 1; }));
    CHECK(remote == local);
    remote[77] = 1;
    REQUIRE(a.transfer(Operation::Type::read, to, region, 70, 10, target->key(),
                       target->base() + 70, 2) == 0);
    REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == 2; }));
    CHECK(local[77] == 1);
    REQUIRE(a.transfer(Operation::Type::write, to, region, 0, local.size(), target->key(),
                       target->base(), 3) == 0);
    CHECK(a.port->deregisterRegion(region) == -FI_EBUSY);
    CHECK(a.transfer(Operation::Type::read, to, region, 0, 1, target->key(), target->base(), 4) ==
          -FI_EINVAL);
    REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == 3; }));
    CHECK(a.last(Completion::transfer)->status == 0);
    CHECK(a.port->deregisterRegion(region) == 0);
  }
  TEST_CASE_FIXTURE(PortFixture, "reads and writes move memory over tcp") {
    transfers(Scheme::tcp);
  }

  /// Extents of many lengths, at odd places, in an order of their own.
  struct Scattered {
    TestPort a, b;
    int to = -1;
    std::vector<uint8_t> local = std::vector<uint8_t>(6 << 20);
    std::vector<uint8_t> remote = std::vector<uint8_t>(6 << 20);
    std::vector<uint32_t> here, there;
    std::vector<transport::Extent> extents;
    uint64_t total = 0;

    explicit Scattered(Scheme scheme, const std::string& provider = "") : a(scheme), b(scheme) {
      a.request.provider = b.request.provider = provider;
      REQUIRE(a.open());
      REQUIRE(b.open());
      to = a.admit(b);
      for (int i = 0; i < 3; ++i) {
        here.push_back(
            static_cast<uint32_t>(a.port->registerRegion(local.data() + (i << 21), 1 << 21, 0)));
        there.push_back(
            static_cast<uint32_t>(b.port->registerRegion(remote.data() + (i << 21), 1 << 21, 3)));
      }
    }
    void plan(size_t count, uint64_t most) {
      extents.clear();
      total = 0;
      std::vector<uint64_t> atHere(3), atThere(3);
      for (size_t i = 0; i < count; ++i) {
        uint64_t bytes = 1 + i * 7919 % most;
        size_t from = i % 3, into = (i / 2) % 3;
        const fabric::Region* target = b.port->region(there[into]);
        extents.push_back(
            {here[from], atHere[from], bytes, target->key(), target->base() + atThere[into]});
        atHere[from] += bytes + i % 5;
        atThere[into] += bytes + i % 3;
        total += bytes;
      }
    }
    uint8_t* localAt(const transport::Extent& extent) {
      return const_cast<uint8_t*>(a.port->region(static_cast<uint32_t>(extent.region))->bytes()) +
             extent.offset;
    }
    uint8_t* remoteAt(const transport::Extent& extent) {
      for (uint32_t index : there) {
        const fabric::Region* region = b.port->region(index);
        if (region->key() == extent.key) return region->bytes() + (extent.remote - region->base());
      }
      return nullptr;
    }
    const engine::Entry& run(Operation::Type type) {
      a.entries.clear();
      REQUIRE(a.port->transfer(type, static_cast<uint32_t>(to), extents.data(), extents.size(),
                               7) == 0);
      REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) > 0; }));
      for (int i = 0; i < 50; ++i) a.turn();
      REQUIRE(a.count(Completion::transfer) == 1);
      return *a.last(Completion::transfer);
    }
    bool same() {
      for (const auto& extent : extents) {
        if (memcmp(localAt(extent), remoteAt(extent), extent.bytes) != 0) return false;
      }
      return true;
    }
  };
  void scattered(Scheme scheme, const std::string& provider = "") {
    Scattered all(scheme, provider);
    for (size_t count : {1, 2, 3, 4, 5, 9, 64, 255, 256}) {
      for (uint64_t most : {1, 100, 20000}) {
        CAPTURE(count);
        CAPTURE(most);
        all.plan(count, most);
        for (auto type : {Operation::Type::write, Operation::Type::read}) {
          for (size_t i = 0; i < all.local.size(); ++i) {
            all.local[i] = static_cast<uint8_t>(i * 13 + count);
            all.remote[i] = static_cast<uint8_t>(i * 29 + most);
          }
          const engine::Entry& entry = all.run(type);
          CHECK(entry.status == 0);
          CHECK(entry.token == 7);
          CHECK(entry.bytes == all.total);
          CHECK(all.same());
          // Between the runs everything is as it was.
          auto& target = type == Operation::Type::write ? all.remote : all.local;
          std::vector<bool> touched(target.size());
          for (const auto& extent : all.extents) {
            uint8_t* at =
                type == Operation::Type::write ? all.remoteAt(extent) : all.localAt(extent);
            for (uint64_t i = 0; i < extent.bytes; ++i)
              touched[static_cast<size_t>(at - target.data()) + i] = true;
          }
          size_t wrong = 0;
          for (size_t i = 0; i < target.size(); ++i) {
            auto before = type == Operation::Type::write ? static_cast<uint8_t>(i * 29 + most)
                                                         : static_cast<uint8_t>(i * 13 + count);
            wrong += !touched[i] && target[i] != before;
          }
          CHECK(wrong == 0);
        }
      }
    }
    CHECK(all.a.port->gauge(engine::Gauge::transfers) == 0);
    for (uint32_t index : all.here) CHECK(all.a.port->deregisterRegion(index) == 0);
  }
  TEST_CASE_FIXTURE(PortFixture, "a transfer of many extents moves exactly those over shm") {
    scattered(Scheme::shm);
  }
  TEST_CASE_FIXTURE(PortFixture, "a transfer of many extents moves exactly those over tcp") {
    scattered(Scheme::tcp);
  }

  TEST_CASE_FIXTURE(PortFixture, "many transfers of many extents at once all end over tcp") {
    Scattered all(Scheme::tcp);
    all.plan(256, 5000);
    for (uint32_t token = 0; token < 50; ++token) {
      auto type = token % 2 == 0 ? Operation::Type::write : Operation::Type::read;
      REQUIRE(all.a.port->transfer(type, static_cast<uint32_t>(all.to), all.extents.data(), 256,
                                   token) == 0);
    }
    REQUIRE(eventually({&all.a, &all.b}, [&] { return all.a.count(Completion::transfer) == 50; }));
    for (const auto& entry : all.a.entries) {
      CHECK(entry.status == 0);
      CHECK(entry.bytes == all.total);
    }
  }

  TEST_CASE_FIXTURE(PortFixture, "a bad key in the middle fails the whole transfer once over tcp") {
    Scattered all(Scheme::tcp);
    all.plan(64, 3000);
    all.extents[33].key ^= 1;
    const engine::Entry& entry = all.run(Operation::Type::write);
    CHECK(entry.status != 0);
    CHECK(entry.bytes < all.total);
    CHECK(all.a.port->gauge(engine::Gauge::transfers) == 0);
    for (uint32_t index : all.here) CHECK(all.a.port->deregisterRegion(index) == 0);
    // The connection broke, and comes back.
    all.plan(64, 3000);
    CHECK(eventually({&all.a, &all.b}, [&] { return all.a.sendPattern(all.to, 0, 8, 1) >= 0; }));
  }

  TEST_CASE_FIXTURE(PortFixture, "a write tells its target, once and after the data, over tcp") {
    Scattered all(Scheme::tcp);
    if (all.a.port->traits().immediateBytes == 0) return;
    engine::Port& a = *all.a.port;
    auto to = static_cast<uint32_t>(all.to);
    for (size_t count : {1, 4}) {
      for (uint64_t most : {1, 300000}) {
        all.plan(count, most);
        for (size_t i = 0; i < all.local.size(); ++i) all.local[i] = static_cast<uint8_t>(i + most);
        uint64_t data = 0xfedcba9876543210 + count;
        all.a.entries.clear();
        all.b.entries.clear();
        REQUIRE(a.transfer(Operation::Type::write, to, all.extents.data(), count, 3, &data) == 0);
        REQUIRE(eventually({&all.a, &all.b},
                           [&] { return all.b.count(Completion::notification) == 1; }));
        CHECK(all.same());  // without looking at the initiator again
        const engine::Entry& notification = all.b.entries[0];
        CHECK(notification.status == 0);
        CHECK((uint64_t{notification.high} << 32 | notification.token) == data);
        CHECK(notification.bytes == all.total);
        REQUIRE(
            eventually({&all.a, &all.b}, [&] { return all.a.count(Completion::transfer) == 1; }));
        CHECK(all.a.entries[0].status == 0);
        for (int i = 0; i < 100; ++i) {
          all.a.turn();
          all.b.turn();
        }
        CHECK(all.a.entries.size() == 1);
        CHECK(all.b.entries.size() == 1);
      }
    }
    // Many more than there are receives, and messages between them: neither uses up the other's.
    all.plan(1, 64);
    all.b.entries.clear();
    uint64_t notified = 0, messages = 0;
    for (uint64_t i = 0; i < 2000; ++i) {
      REQUIRE(a.transfer(Operation::Type::write, to, all.extents.data(), 1, 3, &i) == 0);
      if (i % 10 == 0) all.a.sendPattern(all.to, static_cast<uint32_t>(i / 10 % 32), 8, 1);
      if (i % 50 == 0) all.b.turn();
      all.a.turn();
    }
    bool ordered = true;
    REQUIRE(eventually({&all.a, &all.b}, [&] {
      for (const auto& entry : all.b.entries) {
        if (entry.kind == Completion::message) ++messages;
        if (entry.kind != Completion::notification) continue;
        ordered = ordered && entry.token == notified;
        ++notified;
      }
      all.b.entries.clear();
      return notified == 2000 && messages >= 150;
    }));
    CHECK(ordered);
  }

  TEST_CASE_FIXTURE(PortFixture, "a notification is refused where the provider does not carry it") {
    uint64_t data = 1;
    for (Scheme scheme : {Scheme::tcp, Scheme::shm}) {
      Scattered all(scheme);
      auto run = [&](Operation::Type type, size_t count) {
        all.plan(count, 10);
        return all.a.port->transfer(type, static_cast<uint32_t>(all.to), all.extents.data(), count,
                                    1, &data);
      };
      size_t most = all.a.port->traits().extents;
      CHECK(run(Operation::Type::read, 1) == -FI_EINVAL);
      CHECK(run(Operation::Type::write, most + 1) == -FI_EINVAL);
      bool carries = all.a.port->traits().immediateBytes == 8;
      CHECK(run(Operation::Type::write, most) == (carries ? 0 : -FI_EOPNOTSUPP));
      // `net` of 1.17 posts such writes too, but leaves out at the target how long they were.
      const auto& traits = all.a.port->traits();
      CHECK(carries == (traits.provider == "tcp" && FI_MAJOR(traits.providerVersion) >= 200));
    }
  }

  TEST_CASE_FIXTURE(PortFixture, "a refused write with a notification gives none over tcp") {
    Scattered all(Scheme::tcp);
    if (all.a.port->traits().immediateBytes == 0) return;
    uint64_t data = 1;
    all.plan(1, 100000);
    all.extents[0].key ^= 1;
    REQUIRE(all.a.port->transfer(Operation::Type::write, static_cast<uint32_t>(all.to),
                                 all.extents.data(), 1, 1, &data) == 0);
    REQUIRE(eventually({&all.a, &all.b}, [&] { return all.a.count(Completion::transfer) == 1; }));
    CHECK(all.a.last(Completion::transfer)->status != 0);
    for (int i = 0; i < 1000; ++i) all.b.turn();
    CHECK(all.b.entries.empty());
  }
}
