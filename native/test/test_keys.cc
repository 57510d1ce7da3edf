// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "test/harness.h"
#include "transport/shm/keys.h"

using namespace cinnabar;
using namespace cinnabar::test;
using namespace cinnabar::engine;
using namespace cinnabar::shm;
using base::Fd;
using fabric::Scheme;

TEST_SUITE("keys") {
  struct KeysFixture {
    std::unique_ptr<KeyTable> table = KeyTable::create();
    std::unique_ptr<RemoteKeys> remote;
    KeyRange range;

    KeysFixture() {
      REQUIRE(table);
      remote = RemoteKeys::adopt(Fd(dup(table->fd())));
      REQUIRE(remote);
    }
  };

  TEST_CASE_FIXTURE(KeysFixture, "a key is known from when it is added until it is removed") {
    CHECK_FALSE(remote->find(7, &range));
    CHECK_FALSE(remote->find(0, &range));
    REQUIRE(table->add(7, 4096, 100, 3));
    REQUIRE(remote->find(7, &range));
    CHECK(range.base == 4096);
    CHECK(range.length == 100);
    CHECK(range.access == 3);
    CHECK_FALSE(remote->find(7 + kKeyEntries, &range));  // the same place
    CHECK_FALSE(remote->find(8, &range));
    table->remove(8);
    CHECK(remote->find(7, &range));
    table->remove(7);
    CHECK_FALSE(remote->find(7, &range));
    CHECK_FALSE(remote->find(0, &range));
  }

  TEST_CASE_FIXTURE(KeysFixture, "a full window takes no further key, and a hole hides none") {
    uint64_t last = kKeyEntries - 3;  // the window goes round the end
    auto key = [&](uint64_t n) { return last + (n << 16); };
    for (uint64_t n = 0; n < kKeyWindow; ++n) REQUIRE(table->add(key(n), n, 1, 1));
    CHECK_FALSE(table->add(key(99), 1, 1, 1));
    CHECK_FALSE(remote->find(key(99), &range));
    table->remove(key(3));
    for (uint64_t n = 0; n < kKeyWindow; ++n) CHECK(remote->find(key(n), &range) == (n != 3));
    CHECK(range.base == kKeyWindow - 1);
    CHECK(table->add(key(99), 1, 1, 1));
    CHECK(remote->find(key(99), &range));
  }

  TEST_CASE("a range refuses what it was not granted for") {
    KeyRange range{1000, 100, fabric::kRemoteRead};
    CHECK(range.refuses(1000, 100, fabric::kRemoteRead) == 0);
    CHECK(range.refuses(1099, 1, fabric::kRemoteRead) == 0);
    CHECK(range.refuses(1000, 1, fabric::kRemoteWrite) == EACCES);
    CHECK(range.refuses(999, 1, fabric::kRemoteRead) == ERANGE);
    CHECK(range.refuses(1000, 101, fabric::kRemoteRead) == ERANGE);
    CHECK(range.refuses(1100, 1, fabric::kRemoteRead) == ERANGE);
    CHECK(range.refuses(1099, UINT64_MAX, fabric::kRemoteRead) == ERANGE);
    CHECK(range.refuses(UINT64_MAX, 1, fabric::kRemoteRead) == ERANGE);
    KeyRange high{UINT64_MAX - 10, 10, fabric::kRemoteRead};
    CHECK(high.refuses(UINT64_MAX - 10, 10, fabric::kRemoteRead) == 0);
    CHECK(high.refuses(UINT64_MAX - 5, 8, fabric::kRemoteRead) == ERANGE);
    CHECK(high.refuses(3, 1, fabric::kRemoteRead) == ERANGE);
    CHECK(KeyRange().refuses(0, 1, fabric::kRemoteRead) == EACCES);
  }

  TEST_CASE_FIXTURE(KeysFixture, "nobody but its owner can write to a table") {
    CHECK(mmap(nullptr, kKeysBytes, PROT_READ | PROT_WRITE, MAP_SHARED, table->fd(), 0) ==
          MAP_FAILED);
    CHECK(write(table->fd(), "x", 1) == -1);
    CHECK(ftruncate(table->fd(), 1) == -1);
    CHECK(fcntl(table->fd(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  }

  TEST_CASE("descriptors that are no key table are refused") {
    auto adopt = [](size_t size, int seals) {
      Fd fd(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      REQUIRE(ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
      if (seals != 0) REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
      return RemoteKeys::adopt(std::move(fd)) != nullptr;
    };
    constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW;
    CHECK_FALSE(adopt(kKeysBytes, 0));
    CHECK_FALSE(adopt(kKeysBytes, kFixed));  // others could write
    CHECK_FALSE(adopt(kKeysBytes, F_SEAL_GROW | F_SEAL_FUTURE_WRITE));
    CHECK_FALSE(adopt(kKeysBytes, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE));
    CHECK_FALSE(adopt(kKeysBytes - 4096, kFixed | F_SEAL_FUTURE_WRITE));
    CHECK_FALSE(adopt(kKeysBytes + 4096, kFixed | F_SEAL_FUTURE_WRITE));
    CHECK(adopt(kKeysBytes, kFixed | F_SEAL_FUTURE_WRITE));
    CHECK(RemoteKeys::adopt(Fd(open("/dev/null", O_RDWR | O_CLOEXEC))) == nullptr);
    CHECK(RemoteKeys::adopt(Fd()) == nullptr);
  }

  TEST_CASE_FIXTURE(KeysFixture, "a reader never sees one key with the range of another") {
    std::atomic<bool> over{false};
    std::atomic<uint64_t> latest{0};
    std::thread owner([&] {
      for (uint64_t n = 1; n < 300'000; ++n) {
        uint64_t key = n << 16;  // all of one place
        table->add(key, key * 3, key ^ 0x5555, 3);
        latest = key;
        if (n % 2 == 0) sched_yield();  // where there is one processor only
        table->remove(key);
      }
      over = true;
    });
    uint64_t seen = 0, wrong = 0;
    while (!over) {
      uint64_t key = latest;
      KeyRange found;
      if (!remote->find(key, &found)) continue;
      ++seen;
      wrong += found.base != key * 3 || found.length != (key ^ 0x5555);
    }
    owner.join();
    CHECK(wrong == 0);
    CHECK(seen > 0);
  }

  struct GrantFixture {
    TestPort a{Scheme::shm}, b{Scheme::shm};
    int to = -1;
    std::vector<uint8_t> local = std::vector<uint8_t>(8192, 1);
    std::vector<uint8_t> granted = std::vector<uint8_t>(8192, 2);
    uint32_t here = 0, there = 0;
    uint64_t key = 0, base = 0;

    GrantFixture() {
      REQUIRE(haveLibfabric());
      REQUIRE(a.open());
      REQUIRE(b.open());
      to = a.admit(b);
      here = static_cast<uint32_t>(a.port->registerRegion(local.data(), local.size(), 0));
      grant(fabric::kRemoteRead);
    }
    void grant(uint32_t access) {
      there = static_cast<uint32_t>(b.port->registerRegion(granted.data(), 4096, access));
      key = b.port->region(there)->key();
      base = b.port->region(there)->base();
    }
    Entry run(std::vector<Extent> extents, Operation::Type type = Operation::Type::read) {
      a.entries.clear();
      REQUIRE(a.port->transfer(type, static_cast<uint32_t>(to), extents.data(), extents.size(),
                               1) == 0);
      REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == 1; }));
      return a.entries.back();
    }
    Extent extent(uint64_t k, uint64_t at, uint64_t bytes, uint64_t offset = 0) {
      return {here, offset, bytes, k, at};
    }
  };

  TEST_CASE_FIXTURE(GrantFixture, "over shm, memory is reached by its key and within it only") {
    CHECK(run({extent(key, base, 4096)}).status == 0);
    CHECK(local[4095] == 2);
    std::fill(local.begin(), local.end(), 1);
    CHECK(run({extent(key ^ 1, base, 16)}).status == FI_ENOKEY);
    CHECK(run({extent(key ^ (uint64_t{1} << 63), base, 16)}).status == FI_ENOKEY);
    CHECK(run({extent(0, base, 16)}).status == FI_ENOKEY);
    CHECK(run({extent(key, base, 16)}, Operation::Type::write).status == EACCES);
    CHECK(run({extent(key, base, 4097)}).status == ERANGE);
    CHECK(run({extent(key, base + 4096, 1)}).status == ERANGE);
    CHECK(run({extent(key, base - 1, 16)}).status == ERANGE);
    CHECK(run({extent(key, UINT64_MAX - 4096, 4096)}).status == ERANGE);
    CHECK(run({extent(key, 16, 16)}).status == ERANGE);
    CHECK(local == std::vector<uint8_t>(8192, 1));
    CHECK(granted == std::vector<uint8_t>(8192, 2));
    CHECK(a.port->gauge(Gauge::transfers) == 0);
  }

  TEST_CASE_FIXTURE(GrantFixture, "over shm, nothing is copied from a refused extent on") {
    Entry entry = run({extent(key, base, 100, 0), extent(key, base + 100, 100, 100),
                       extent(key ^ 1, base, 100, 200), extent(key, base, 100, 300)});
    CHECK(entry.status == FI_ENOKEY);
    CHECK(entry.bytes == 200);
    CHECK(local[199] == 2);
    CHECK(local[200] == 1);
    CHECK(local[300] == 1);
  }

  TEST_CASE_FIXTURE(GrantFixture,
                    "over shm, a key that was taken back is dead, and a new one is not") {
    uint64_t old = key;
    CHECK(run({extent(old, base, 16)}).status == 0);
    CHECK(b.port->deregisterRegion(there) == 0);
    CHECK(b.port->gauge(Gauge::regions) == 0);
    CHECK(run({extent(old, base, 16)}).status == FI_ENOKEY);
    grant(fabric::kRemoteWrite);
    CHECK(run({extent(old, base, 16)}).status == FI_ENOKEY);
    std::fill(local.begin(), local.end(), 1);
    CHECK(run({extent(key, base, 16)}, Operation::Type::write).status == 0);
    CHECK(granted[15] == 1);
    CHECK(run({extent(key, base, 16)}).status == EACCES);
  }

  TEST_CASE_FIXTURE(GrantFixture, "over shm, a key taken back ends a copy between two pieces") {
    std::vector<uint8_t> from(64 << 20, 5), into(64 << 20);
    auto large = static_cast<uint32_t>(b.port->registerRegion(from.data(), from.size(), 1));
    auto sink = static_cast<uint32_t>(a.port->registerRegion(into.data(), into.size(), 0));
    CHECK(run({extent(key, base, 16)}).status == 0);  // they have met
    a.entries.clear();
    const fabric::Region* region = b.port->region(large);
    Extent whole{sink, 0, from.size(), region->key(), region->base()};
    REQUIRE(a.port->transfer(Operation::Type::read, static_cast<uint32_t>(to), &whole, 1, 1) == 0);
    a.turn();
    CHECK(a.entries.empty());
    CHECK(b.port->deregisterRegion(large) == 0);
    REQUIRE(eventually({&a, &b}, [&] { return a.count(Completion::transfer) == 1; }));
    CHECK(a.entries.back().status == FI_ENOKEY);
    CHECK(a.entries.back().bytes > 0);
    CHECK(a.entries.back().bytes < from.size());
  }

  TEST_CASE_FIXTURE(GrantFixture, "over shm, memory that is not there is an error, not a success") {
    void* page = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto region = static_cast<uint32_t>(b.port->registerRegion(page, 8192, 3));
    uint64_t at = b.port->region(region)->base();
    uint64_t its = b.port->region(region)->key();
    memset(page, 9, 8192);
    mprotect(static_cast<uint8_t*>(page) + 4096, 4096, PROT_NONE);
    Entry entry = run({extent(its, at, 8192)});
    CHECK(entry.status == EFAULT);
    CHECK(entry.bytes == 4096);
    munmap(page, 8192);
  }

  TEST_CASE_FIXTURE(GrantFixture,
                    "as many regions as find room can be granted, and one more later") {
    std::vector<uint32_t> all;
    int status = 0;
    while (all.size() < kKeyEntries) {
      status = b.port->registerRegion(granted.data(), 1, 1);
      if (status < 0) break;
      all.push_back(static_cast<uint32_t>(status));
    }
    CHECK(all.size() > kKeyEntries / 2);
    uint64_t some = b.port->region(all[all.size() / 2])->key();
    CHECK(run({extent(some, b.port->region(all[0])->base(), 1)}).status == 0);
    for (uint32_t index : all) REQUIRE(b.port->deregisterRegion(index) == 0);
    CHECK(b.port->registerRegion(granted.data(), 1, 1) >= 0);
  }
}
