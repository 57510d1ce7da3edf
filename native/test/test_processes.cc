// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <sys/wait.h>

#include <sstream>

#include "test/child.h"
#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using fabric::Scheme;
using transport::Operation;

namespace {

struct Remote {
  Child child;
  fabric::RawAddress address;
  uint64_t key = 0;
  uint64_t base = 0;

  Remote(const std::string& scheme, const std::string& name)
      : child({"--part", "echo", scheme, name}) {
    std::string said = child.hear();
    REQUIRE_MESSAGE(!said.starts_with("failed"), said);
    std::istringstream line(said);
    std::string hex;
    line >> hex >> key >> base;
    address = fromHex(hex);
  }

  int meet(TestPort& here) {
    int to = here.port->admit(address.data(), address.size());
    if (to < 0) return to;
    fabric::RawAddress mine = here.port->address();
    memcpy(here.slot(31), mine.data(), mine.size());
    here.port->send(static_cast<uint32_t>(to), 31 * TestPort::kSlotBytes, mine.size());
    bool sent = eventually({&here}, [&] { return here.port->gauge(engine::Gauge::sends) == 0; });
    return sent && child.hear().starts_with("admitted") ? to : -1;
  }
};

bool roundTrip(TestPort& here, int to, size_t bytes) {
  here.messages.clear();
  if (here.sendPattern(to, 0, bytes, 3) < 0) return false;
  bool back = eventually({&here}, [&] {
    return here.messages.size() == 1 && here.port->gauge(engine::Gauge::sends) == 0;
  });
  return back && here.messages[0].size() == bytes && isPattern(here.messages[0], 3);
}

}  // namespace

TEST_SUITE("processes") {
  struct ProcessesFixture {
    ProcessesFixture() { REQUIRE(haveLibfabric()); }
  };

  void talk(Scheme scheme) {
    TestPort here(scheme);
    REQUIRE(here.open());
    Remote remote(fabric::schemeName(scheme), "");
    int to = remote.meet(here);
    REQUIRE(to >= 0);
    for (size_t bytes : {1, 100, 1000, 4096, 16384}) CHECK(roundTrip(here, to, bytes));
    std::vector<uint8_t> memory(1 << 20, 42);
    auto region = static_cast<uint32_t>(here.port->registerRegion(memory.data(), memory.size(), 0));
    auto run = [&](Operation::Type type, uint32_t token) {
      REQUIRE(here.transfer(type, to, region, 0, memory.size(), remote.key, remote.base, token) ==
              0);
      REQUIRE(eventually({&here}, [&] {
        auto* entry = here.last(Completion::transfer);
        return entry != nullptr && entry->token == token;
      }));
      CHECK(here.last(Completion::transfer)->status == 0);
    };
    run(Operation::Type::read, 1);
    CHECK(memory[12345] == 1);
    std::fill(memory.begin(), memory.end(), 42);
    run(Operation::Type::write, 2);
    std::fill(memory.begin(), memory.end(), 0);
    run(Operation::Type::read, 3);
    CHECK(memory[12345] == 42);
  }
  TEST_CASE_FIXTURE(ProcessesFixture, "two processes exchange messages and memory over shm") {
    talk(Scheme::shm);
  }
  TEST_CASE_FIXTURE(ProcessesFixture, "two processes exchange messages and memory over tcp") {
    talk(Scheme::tcp);
  }

  void flood(Scheme scheme) {
    constexpr uint32_t kMessages = 10000;
    TestPort here(scheme, "", kMessages, 4, 256);
    REQUIRE(here.open());
    Child child({"--part", "late", fabric::schemeName(scheme), std::to_string(kMessages)});
    fabric::RawAddress address = fromHex(child.hear());
    int to = here.port->admit(address.data(), address.size());
    REQUIRE(to >= 0);
    for (uint32_t i = 0; i < kMessages; ++i) {
      memcpy(here.slot(i), &i, sizeof i);
      REQUIRE(here.port->send(static_cast<uint32_t>(to), uint64_t{i} * 256, 200) >= 0);
      if (i % 100 == 0) here.turn();
    }
    child.tell("go");
    REQUIRE(eventually({&here}, [&] { return here.port->gauge(engine::Gauge::sends) == 0; }));
    CHECK(child.hear() == "ordered");
  }
  TEST_CASE_FIXTURE(ProcessesFixture,
                    "ten thousand messages to a receiver that is late arrive in order over shm") {
    flood(Scheme::shm);
  }
  TEST_CASE_FIXTURE(ProcessesFixture,
                    "ten thousand messages to a receiver that is late arrive in order over tcp") {
    flood(Scheme::tcp);
  }

  TEST_CASE_FIXTURE(ProcessesFixture,
                    "the death of an shm peer is told at once and ends everything to it") {
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    Remote victim("shm", own("victim")), witness("shm", "");
    int to = victim.meet(here);
    int second = here.port->admit(victim.address.data(), victim.address.size());
    int other = witness.meet(here);
    REQUIRE(to >= 0);
    REQUIRE(second >= 0);
    REQUIRE(other >= 0);
    std::vector<uint8_t> memory(1 << 20);
    auto region = static_cast<uint32_t>(here.port->registerRegion(memory.data(), memory.size(), 0));

    victim.child.kill(SIGSTOP);
    for (uint32_t slot = 0; slot < 30; ++slot) REQUIRE(here.sendPattern(to, slot, 16384, 1) >= 0);
    here.entries.clear();
    victim.child.kill(SIGKILL);
    REQUIRE(eventually({&here}, [&] { return here.count(Completion::peerGone) == 2; }));
    CHECK(here.port->gauge(engine::Gauge::sends) == 0);

    here.entries.clear();
    CHECK(here.sendPattern(to, 0, 100, 1) == 0);
    CHECK(here.transfer(Operation::Type::write, to, region, 0, 4096, victim.key, victim.base, 1) ==
          0);
    here.turn();
    CHECK(here.last(Completion::sent)->status == FI_ECONNABORTED);
    CHECK(here.last(Completion::transfer)->status == FI_ECONNABORTED);
    CHECK(roundTrip(here, other, 16384));

    CHECK(here.port->admit(victim.address.data(), victim.address.size()) == -ECONNREFUSED);
    CHECK(here.port->forget(static_cast<uint32_t>(to)) == 0);
    CHECK(here.port->forget(static_cast<uint32_t>(second)) == 0);
  }

  TEST_CASE_FIXTURE(ProcessesFixture,
                    "a peer that starts again under its name is met again, many times") {
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    Remote witness("shm", "");
    int other = witness.meet(here);
    for (int round = 0; round < 6; ++round) {
      CAPTURE(round);
      Remote remote("shm", own("phoenix"));
      int to = remote.meet(here);
      REQUIRE(to >= 0);
      CHECK(roundTrip(here, to, 64));
      CHECK(roundTrip(here, to, 16384));
      here.entries.clear();
      remote.child.kill(SIGKILL);
      REQUIRE(eventually({&here}, [&] { return here.count(Completion::peerGone) == 1; }));
      CHECK(here.last(Completion::peerGone)->token == static_cast<uint32_t>(to));
      CHECK(here.port->forget(static_cast<uint32_t>(to)) == 0);
      CHECK(roundTrip(here, other, 5000));
    }
    CHECK(here.port->gauge(engine::Gauge::addresses) == 1);
  }

  struct Grant {
    std::vector<uint8_t> memory = std::vector<uint8_t>(4 << 20, 7);
    uint32_t index;
    uint64_t key, base;
    explicit Grant(TestPort& port, uint32_t access = 3)
        : index(static_cast<uint32_t>(
              port.port->registerRegion(memory.data(), memory.size(), access))),
          key(port.port->region(index)->key()),
          base(port.port->region(index)->base()) {}
  };

  TEST_CASE_FIXTURE(ProcessesFixture,
                    "memory is held up by a peer stopped in the middle of a copy until it goes on, "
                    "or has gone") {
    for (int signal : {SIGCONT, SIGKILL}) {
      CAPTURE(signal);
      TestPort here(Scheme::shm), other(Scheme::shm);
      REQUIRE(here.open());
      REQUIRE(other.open());
      Remote remote("shm", "");
      int to = remote.meet(here);
      REQUIRE(to >= 0);
      CHECK(roundTrip(here, to, 100));
      int back = other.admit(here);
      other.sendPattern(back, 0, 8, 1);
      REQUIRE(eventually({&here, &other}, [&] { return here.messages.size() == 2; }));
      Grant granted(here), later(here), own(here, 0);
      auto read = [&](const Grant& from) {
        other.entries.clear();
        uint64_t bytes = own.memory.size();
        static std::vector<uint8_t> into(4 << 20);
        auto region =
            static_cast<uint32_t>(other.port->registerRegion(into.data(), into.size(), 0));
        REQUIRE(other.transfer(Operation::Type::read, back, region, 0, bytes, from.key, from.base,
                               1) == 0);
        REQUIRE(eventually({&other}, [&] { return other.count(Completion::transfer) == 1; }));
        CHECK(other.port->deregisterRegion(region) == 0);
        return other.entries.back().status;
      };
      CHECK(read(granted) == 0);

      remote.child.kill(SIGSTOP);
      int status = 0;
      REQUIRE(waitpid(remote.child.pid(), &status, WUNTRACED) == remote.child.pid());
      REQUIRE(WIFSTOPPED(status));
      // As it looks when the stop hits between the two ends of a copy.
      REQUIRE(setCopying(remote.child.pid(), 1));
      CHECK(here.port->deregisterRegion(granted.index) == -FI_EBUSY);
      CHECK(read(granted) == FI_ENOKEY);  // dead for all who begin now
      CHECK(here.port->deregisterRegion(own.index) == 0);
      uint32_t regions = here.port->gauge(engine::Gauge::regions);
      CHECK(regions == 2);
      for (int i = 0; i < 1000; ++i) here.turn();
      CHECK(here.port->deregisterRegion(granted.index) == -FI_EBUSY);
      CHECK(here.port->gauge(engine::Gauge::regions) == regions);
      CHECK(read(later) == 0);

      if (signal == SIGCONT) REQUIRE(setCopying(remote.child.pid(), 2));
      remote.child.kill(signal);
      CHECK(eventually({&here}, [&] { return here.port->deregisterRegion(granted.index) == 0; }));
      CHECK(here.port->deregisterRegion(later.index) == 0);
      CHECK(here.port->gauge(engine::Gauge::regions) == 0);
      if (signal == SIGCONT) CHECK(roundTrip(here, to, 100));
    }
  }

  TEST_CASE_FIXTURE(ProcessesFixture, "a copy that begins after the withdrawal holds nothing up") {
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    Remote remote("shm", "");
    int to = remote.meet(here);
    REQUIRE(to >= 0);
    CHECK(roundTrip(here, to, 100));
    Grant granted(here), later(here);
    REQUIRE(setCopying(remote.child.pid(), 1));
    CHECK(here.port->deregisterRegion(granted.index) == -FI_EBUSY);
    REQUIRE(setCopying(remote.child.pid(), 3));  // another one
    CHECK(here.port->deregisterRegion(granted.index) == 0);
    CHECK(here.port->deregisterRegion(later.index) == -FI_EBUSY);
    REQUIRE(setCopying(remote.child.pid(), 4));
    CHECK(here.port->deregisterRegion(later.index) == 0);
  }

  TEST_CASE_FIXTURE(ProcessesFixture,
                    "a port closes beside a peer stopped in the middle of a copy") {
    Remote remote("shm", "");
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    int to = remote.meet(here);
    REQUIRE(to >= 0);
    CHECK(roundTrip(here, to, 100));
    Grant granted(here);
    REQUIRE(setCopying(remote.child.pid(), 1));
    here.port->close();
  }

  void moved(const std::string& part) {
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    Child child({"--part", part, "shm", toHex(here.port->address())});
    REQUIRE(eventually({&here}, [&] { return here.messages.size() == 1; }));
    REQUIRE(child.hear() == "1");
    Grant granted(here), readable(here, fabric::kRemoteRead);
    auto ask = [&](const std::string& what, uint64_t key, uint64_t remote, uint64_t bytes) {
      child.tell(what + " " + std::to_string(key) + " " + std::to_string(remote) + " " +
                 std::to_string(bytes));
      REQUIRE(eventually({&here}, [&] { return child.hasSaid(); }));
      return child.hear();
    };
    for (uint64_t bytes : {100, 5000, 4 << 20}) {
      std::string all = "0 " + std::to_string(bytes);
      CHECK(ask("read", granted.key, granted.base, bytes) == all);
      CHECK(ask("write", granted.key, granted.base, bytes) == all);
      CHECK(granted.memory[bytes - 1] == 7);
    }
    CHECK(ask("read", readable.key, readable.base + 10, 10) == "0 10");
    auto refusal = [](int code) { return std::to_string(code) + " 0"; };
    CHECK(ask("write", readable.key, readable.base, 10) == refusal(EACCES));
    CHECK(ask("write", granted.key, granted.base + 1, granted.memory.size()) == refusal(ERANGE));
    CHECK(ask("write", granted.key, granted.base - 1, 10) == refusal(ERANGE));
    CHECK(ask("write", granted.key ^ 4, granted.base, 10) == refusal(FI_ENOKEY));
    CHECK(ask("read", granted.key ^ 4, granted.base, 10) == refusal(FI_ENOKEY));
    CHECK(here.port->deregisterRegion(granted.index) == 0);
    CHECK(ask("read", granted.key, granted.base, 10) == refusal(FI_ENOKEY));
    CHECK(ask("read", readable.key, readable.base, 10) == "0 10");
  }
  TEST_CASE_FIXTURE(ProcessesFixture, "another process reaches what it was granted, by copies") {
    moved("mover");
  }
  // Forbidding is for good, so these run in a process of their own.
  struct ForbiddenFixture : ProcessesFixture {
    ForbiddenFixture() { REQUIRE(forbidCopies()); }
  };
  TEST_CASE_FIXTURE(
      ForbiddenFixture,
      "another process reaches what it was granted, where it may not copy" * doctest::skip()) {
    moved("mover-without-copies");
  }

  TEST_CASE("where processes may not copy, the rings carry what they move") {
    Child forbidden({"--test-case=*where it may not copy*", "--no-skip"});
    std::string output;
    for (int blank = 0; blank < 2;) {
      std::string line = forbidden.hear();
      blank = line.empty() ? blank + 1 : 0;
      output += line + "\n";
    }
    CAPTURE(output);
    CHECK(forbidden.wait() == 0);
    CHECK(output.find("1 passed") != std::string::npos);
  }

  TEST_CASE_FIXTURE(ProcessesFixture, "a peer learns of our end, however we end") {
    Remote remote("shm", "");
    {
      TestPort here(Scheme::shm);
      REQUIRE(here.open());
      REQUIRE(remote.meet(here) >= 0);
    }
    CHECK(remote.child.hear() == "gone");
  }

  TEST_CASE_FIXTURE(ProcessesFixture,
                    "a tcp peer that died can be forgotten, and its slots come back") {
    TestPort here(Scheme::tcp);
    REQUIRE(here.open());
    Remote victim("tcp", ""), witness("tcp", "");
    int to = victim.meet(here);
    int other = witness.meet(here);
    victim.child.kill(SIGKILL);
    victim.child.wait();
    for (uint32_t slot = 1; slot < 30; ++slot) here.sendPattern(to, slot, 16384, 1);
    CHECK(roundTrip(here, other, 16384));
    CHECK(here.port->forget(static_cast<uint32_t>(to)) == 0);
    CHECK(eventually({&here}, [&] { return here.port->gauge(engine::Gauge::sends) == 0; }));
    CHECK(roundTrip(here, other, 16384));
  }
}
