// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "engine/guard.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using engine::Guard;
using fabric::Scheme;
using transport::Operation;

namespace {

/// A port with its guard, as a process has it. What is not `port.turn()` here is done under the
/// guard's lock.
struct Guarded : TestPort {
  using TestPort::TestPort;

  bool open() {
    if (!TestPort::open()) return false;
    guard = std::make_unique<Guard>(*port, [this] { ++nudges; });
    return true;
  }
  ~Guarded() { guard.reset(); }

  void turn() {
    auto lock = guard->drive();
    TestPort::turn();
  }
  /// Lends memory to all peers that learn the key.
  int grant(std::vector<uint8_t>& memory) {
    auto lock = guard->use();
    int region = port->registerRegion(memory.data(), memory.size(), 3);
    guard->update();
    return region;
  }
  engine::Absences absences() {
    auto lock = guard->use();
    return guard->absences();
  }

  std::unique_ptr<Guard> guard;
  std::atomic<int> nudges = 0;
};

/// A peer of a guarded port, which turns on the test's thread while the other's owner is absent.
struct Caller : TestPort {
  explicit Caller(Scheme scheme) : TestPort(scheme), memory(1 << 20, 0x5a) {}

  bool meet(Guarded& other) {
    if (!open()) return false;
    to = admit(other);
    local = port->registerRegion(memory.data(), memory.size(), 0);
    if (to < 0 || local < 0) return false;
    // One message, so that both know each other.
    sendPattern(to, 0, 100, 1);
    return eventually({this}, [&] {
      other.turn();
      return other.messages.size() == 1;
    });
  }
  void write(uint64_t key, uint64_t base) {
    transfer(Operation::Type::write, to, static_cast<uint32_t>(local), 0, memory.size(), key, base,
             0);
  }

  std::vector<uint8_t> memory;
  int to = -1;
  int local = -1;
};

bool in(std::initializer_list<TestPort*> ports, const std::function<bool()>& condition) {
  return eventually(ports, condition);
}

}  // namespace

TEST_SUITE("guard") {
  TEST_CASE("memory of an absent owner is written, and what is sent to it waits in order") {
    REQUIRE(haveLibfabric());
    for (Scheme scheme : {Scheme::shm, Scheme::tcp}) {
      CAPTURE(fabric::schemeName(scheme));
      std::vector<uint8_t> memory(1 << 20);
      Guarded owner(scheme);
      REQUIRE(owner.open());
      Caller caller(scheme);
      REQUIRE(caller.meet(owner));
      int region = owner.grant(memory);
      REQUIRE(region >= 0);
      uint64_t key = owner.port->region(static_cast<uint32_t>(region))->key();
      uint64_t base = owner.port->region(static_cast<uint32_t>(region))->base();
      // From here on nobody turns the owner.
      caller.write(key, base);
      REQUIRE(in({&caller}, [&] { return caller.count(Completion::transfer) == 1; }));
      CHECK(caller.last(Completion::transfer)->status == 0);
      CHECK(memory == caller.memory);
      REQUIRE(in({&caller}, [&] { return owner.nudges == 1; }));
      owner.messages.clear();
      for (uint8_t i = 0; i < 20; ++i) caller.sendPattern(caller.to, i, 1000, i);
      REQUIRE(in({&caller}, [&] { return caller.port->gauge(engine::Gauge::sends) == 0; }));
      CHECK(owner.absences().count == 1);
      CHECK(owner.nudges == 1);
      // And now it comes.
      REQUIRE(in({&caller}, [&] {
        owner.turn();
        return owner.messages.size() == 20;
      }));
      for (uint8_t i = 0; i < 20; ++i) CHECK(isPattern(owner.messages[i], i));
      engine::Absences absences = owner.absences();
      CHECK(absences.longestNs >= 5'000'000);
      CHECK(absences.longestNs <= absences.totalNs);
    }
  }

  TEST_CASE("an owner that sleeps is absent only when there is something to wake up for") {
    REQUIRE(haveLibfabric());
    for (Scheme scheme : {Scheme::shm, Scheme::tcp}) {
      CAPTURE(fabric::schemeName(scheme));
      std::vector<uint8_t> memory(64);
      Guarded owner(scheme);
      REQUIRE(owner.open());
      Caller caller(scheme);
      REQUIRE(caller.meet(owner));
      REQUIRE(owner.grant(memory) >= 0);
      auto arm = [&] {
        auto lock = owner.guard->drive();
        int armed = owner.port->arm();
        if (armed == 1) owner.guard->sleeps();
        return armed == 1;
      };
      while (!arm()) owner.turn();
      uint32_t before = owner.absences().count;
      // Longer than a guard waits for one that is awake; the machine may make it longer still.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      CHECK(owner.absences().count == before);
      int nudges = owner.nudges;
      caller.sendPattern(caller.to, 1, 100, 2);
      REQUIRE(in({&caller}, [&] { return owner.nudges == nudges + 1; }));
      CHECK(owner.absences().count == before + 1);
      {
        auto lock = owner.guard->drive();
        owner.port->wake();
      }
      REQUIRE(in({&caller}, [&] {
        owner.turn();
        return owner.messages.size() == 2;
      }));
    }
  }

  TEST_CASE("an owner that falls asleep while the guard counts its time is not absent") {
    REQUIRE(haveLibfabric());
    std::vector<uint8_t> memory(64);
    Guarded owner(Scheme::tcp);
    REQUIRE(owner.open());
    REQUIRE(owner.grant(memory) >= 0);
    uint32_t before = 0;
    for (bool armed = false; !armed;) {
      owner.turn();
      auto lock = owner.guard->drive();
      // Longer than the guard waits for one that is awake: it sees the turn that ends in sleep.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      armed = owner.port->arm() == 1;
      if (armed) owner.guard->sleeps();
      before = owner.guard->absences().count;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    CHECK(owner.absences().count == before);
  }

  TEST_CASE("a port that nobody could miss is left alone") {
    REQUIRE(haveLibfabric());
    Guarded owner(Scheme::tcp);
    REQUIRE(owner.open());
    std::vector<uint8_t> memory(64);
    int region = owner.grant(memory);
    REQUIRE(in({}, [&] { return owner.nudges == 1; }));
    owner.turn();
    {
      auto lock = owner.guard->use();
      REQUIRE(owner.port->deregisterRegion(static_cast<uint32_t>(region)) == 0);
      owner.guard->update();
    }
    owner.turn();
    int nudges = owner.nudges;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(owner.nudges <= nudges + 1);  // one could have been on its way
    // And it takes the port up again.
    nudges = owner.nudges;
    owner.turn();
    owner.grant(memory);
    CHECK(in({}, [&] { return owner.nudges > nudges; }));
  }

  TEST_CASE("guards end with their owners present, absent and asleep") {
    REQUIRE(haveLibfabric());
    std::vector<uint8_t> memory(64);
    for (int i = 0; i < 30; ++i) {
      Guarded owner(i % 2 == 0 ? Scheme::shm : Scheme::tcp);
      REQUIRE(owner.open());
      owner.grant(memory);
      if (i % 3 == 1) REQUIRE(in({}, [&] { return owner.nudges == 1; }));
      if (i % 3 == 2) owner.turn();
    }
  }

  TEST_CASE("nothing is lost, doubled or reordered when the owner comes and goes") {
    REQUIRE(haveLibfabric());
    constexpr uint32_t kMessages = 20'000;
    for (Scheme scheme : {Scheme::shm, Scheme::tcp}) {
      CAPTURE(fabric::schemeName(scheme));
      std::vector<uint8_t> memory(1 << 20);
      Guarded owner(scheme, "", 32, 32);
      REQUIRE(owner.open());
      std::atomic<int> failures{0};
      std::atomic<bool> over{false};
      fabric::RawAddress address = owner.port->address();
      int region = owner.grant(memory);
      uint64_t key = owner.port->region(static_cast<uint32_t>(region))->key();
      uint64_t base = owner.port->region(static_cast<uint32_t>(region))->base();
      std::thread peer([&] {
        TestPort here(scheme);
        std::vector<uint8_t> mine(64 << 10);
        if (!here.open()) {
          ++failures;
          return;
        }
        int to = here.port->admit(address.data(), address.size());
        int local = here.port->registerRegion(mine.data(), mine.size(), 0);
        uint32_t sent = 0;
        std::vector<uint32_t> free;
        for (uint32_t slot = 0; slot < 32; ++slot) free.push_back(slot);
        while (!over) {
          here.turn();
          for (const engine::Entry& entry : here.entries) {
            uint32_t freed = here.freedSlot(entry);
            if (freed != UINT32_MAX) free.push_back(freed);
          }
          here.entries.clear();
          for (; !free.empty() && sent < kMessages; ++sent) {
            uint32_t slot = free.back();
            free.pop_back();
            memcpy(here.slot(slot), &sent, sizeof sent);
            int status = here.port->send(static_cast<uint32_t>(to),
                                         uint64_t{slot} * TestPort::kSlotBytes, 8 + sent % 3000);
            if (status < 0) ++failures;
            if (status != 0) free.push_back(slot);
          }
          if (here.port->gauge(engine::Gauge::transfers) < 4)
            here.transfer(Operation::Type::write, to, static_cast<uint32_t>(local), 0, mine.size(),
                          key, base, 0);
        }
      });
      uint32_t expected = 0;
      uint32_t random = 12345;
      auto end = std::chrono::steady_clock::now() + kDeadline * 3;
      while (expected < kMessages && std::chrono::steady_clock::now() < end) {
        owner.turn();
        for (const auto& message : owner.messages) {
          uint32_t number;
          memcpy(&number, message.data(), sizeof number);
          if (number != expected || message.size() != 8 + number % 3000) ++failures;
          ++expected;
        }
        owner.messages.clear();
        owner.entries.clear();
        random = random * 1664525 + 1013904223;
        // Now and then it computes.
        if ((random >> 16) % 64 != 0) continue;
        auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(12);
        while (std::chrono::steady_clock::now() < until) {
        }
      }
      over = true;
      peer.join();
      CHECK(expected == kMessages);
      CHECK(failures == 0);
      CHECK(owner.absences().count > 0);
    }
  }

  TEST_CASE("the guards of many ports of one thread look little more often than one") {
    constexpr size_t kMany = 64;
    std::vector<uint8_t> memory(64);
    std::vector<std::unique_ptr<Guarded>> ports;
    auto another = [&] {
      ports.push_back(std::make_unique<Guarded>(Scheme::shm, "", 4, 4, 256));
      REQUIRE(ports.back()->open());
      REQUIRE(ports.back()->grant(memory) >= 0);
    };
    // Looks a second of all guards, while the first looks so often and the owner is present.
    auto lookRate = [&](uint64_t looks) {
      auto sum = [&] {
        uint64_t all = 0;
        for (auto& port : ports) all += port->guard->looks();
        return all;
      };
      auto begun = std::chrono::steady_clock::now();
      uint64_t before = sum(), first = ports[0]->guard->looks();
      while (ports[0]->guard->looks() < first + looks) {
        for (auto& port : ports) port->turn();
      }
      std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
      return static_cast<double>(sum() - before) / took.count();
    };
    another();
    // A busy machine keeps guards from looking: the best of several rounds, and once of many times.
    double alone = 0;
    for (int round = 0; round < 10; ++round) alone = std::max(alone, lookRate(4));
    while (ports.size() < kMany) another();
    // A share for sixteen. Without it there were as many as ports.
    bool isLittle = false;
    for (int tries = 0; tries < 10 && !isLittle; ++tries)
      isLittle = lookRate(20) < alone * kMany / 2;
    CHECK(isLittle);
  }

  TEST_CASE("an owner that stays present gets more time, until it is absent") {
    constexpr uint64_t kUsualNs = 5'000'000, kMostNs = 20'000'000;
    std::vector<uint8_t> memory(64);
    Guarded owner(Scheme::shm);
    REQUIRE(owner.open());
    REQUIRE(owner.grant(memory) >= 0);
    for (int i = 0; i < 2; ++i) {
      // The nudge of an absence that has begun already may have come, and there is one for each.
      int nudges = owner.nudges;
      owner.turn();
      REQUIRE(in({}, [&] { return owner.nudges > nudges; }));
      CHECK(owner.guard->leaveNs() == kUsualNs);
      CHECK(in({}, [&] {
        owner.turn();
        return owner.guard->leaveNs() > kUsualNs;
      }));
      CHECK(in({}, [&] {
        owner.turn();
        return owner.guard->leaveNs() == kMostNs;
      }));
      uint64_t first = owner.guard->looks();
      while (owner.guard->looks() < first + 40) owner.turn();
      CHECK(owner.guard->leaveNs() <= kMostNs);
    }
  }

  TEST_CASE("an owner that is at another of its ports is not absent") {
    std::vector<uint8_t> memory(64);
    Guarded busy(Scheme::shm), waiting(Scheme::shm);
    REQUIRE(busy.open());
    REQUIRE(waiting.open());
    REQUIRE(busy.grant(memory) >= 0);
    REQUIRE(waiting.grant(memory) >= 0);
    // The guard looks ten times, finds its own port left each time, and the owner at the other. A
    // busy machine may keep the owner from both: once of many times it does not.
    bool isLeftAlone = false;
    for (int tries = 0; tries < 100 && !isLeftAlone; ++tries) {
      waiting.turn();
      int nudges = waiting.nudges;
      uint64_t from = waiting.guard->looks();
      while (waiting.nudges == nudges && waiting.guard->looks() < from + 10) busy.turn();
      isLeftAlone = waiting.nudges == nudges;
    }
    CHECK(isLeftAlone);
    // For ever it is not believed.
    int nudges = waiting.nudges;
    waiting.turn();
    CHECK(eventually({}, [&] {
      busy.turn();
      return waiting.nudges > nudges;
    }));
  }
}
