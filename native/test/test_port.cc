// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/ioctl.h>

#include <thread>
#include <vector>

#include "test/harness.h"
#include "transport/tcp/socket_calls.h"
#include "transport/tcp/socket_table.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using fabric::Scheme;
using transport::Operation;

namespace {

bool isReadable(const TestPort& port, int timeoutMs) {
  pollfd fd{port.port->waitFd(), POLLIN, 0};
  return poll(&fd, 1, timeoutMs) > 0;
}

}  // namespace

TEST_SUITE("port") {
  struct PortFixture {
    PortFixture() { REQUIRE(haveLibfabric()); }
  };

  void exchange(Scheme scheme) {
    TestPort a(scheme), b(scheme);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    REQUIRE(to >= 0);
    for (size_t bytes : {0, 1, 64, 128, 129, 4096, 4097, 8192, 16384}) {
      CAPTURE(bytes);
      auto seed = static_cast<uint8_t>(bytes % 251);
      REQUIRE(a.sendPattern(to, 0, bytes, seed) >= 0);
      REQUIRE(eventually({&a, &b}, [&] {
        return !b.messages.empty() && a.port->gauge(engine::Gauge::sends) == 0;
      }));
      CHECK(b.messages[0].size() == bytes);
      CHECK(isPattern(b.messages[0], seed));
      b.messages.clear();
    }
  }
  TEST_CASE_FIXTURE(PortFixture, "messages of all sizes arrive whole over shm") {
    exchange(Scheme::shm);
  }
  TEST_CASE_FIXTURE(PortFixture, "messages of all sizes arrive whole over tcp") {
    exchange(Scheme::tcp);
  }

  void manyInOrder(Scheme scheme) {
    TestPort a(scheme), b(scheme, "", 32, 8);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    uint32_t sent = 0;
    size_t seen = 0;
    bool ordered = true;
    std::vector<bool> busy(32);
    REQUIRE(eventually({&a, &b}, [&] {
      for (const auto& entry : a.entries) {
        uint32_t freed = a.freedSlot(entry);
        if (freed != UINT32_MAX) busy[freed] = false;
      }
      a.entries.clear();
      for (uint32_t slot = 0; slot < 32 && sent < 3000; ++slot) {
        if (busy[slot]) continue;
        size_t bytes = 1 + sent * 577 % 16384;
        busy[slot] = a.sendPattern(to, slot, bytes, static_cast<uint8_t>(sent++)) == 0;
      }
      for (const auto& message : b.messages) {
        ordered = ordered && message.size() == 1 + seen * 577 % 16384 &&
                  isPattern(message, static_cast<uint8_t>(seen));
        ++seen;
      }
      b.messages.clear();
      return seen == 3000;
    }));
    CHECK(ordered);
  }
  TEST_CASE_FIXTURE(PortFixture, "thousands of mixed messages keep their order over shm") {
    manyInOrder(Scheme::shm);
  }
  TEST_CASE_FIXTURE(PortFixture, "thousands of mixed messages keep their order over tcp") {
    manyInOrder(Scheme::tcp);
  }

  void tooLarge(Scheme scheme) {
    TestPort a(scheme), b(scheme, "", 8, 8, 1000);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    bool tellsSender = scheme == Scheme::shm;
    for (int round = 0; round < 20; ++round) {
      size_t bytes = round % 2 == 0 ? 2000 : 9000;
      a.sendPattern(to, 0, bytes, 1);
      if (tellsSender) {
        // The first waits until the two have met.
        REQUIRE(eventually({&a, &b}, [&] { return a.port->gauge(engine::Gauge::sends) == 0; }));
        CHECK(a.count(Completion::sent) == 1);
        continue;
      }
      REQUIRE(eventually({&a, &b}, [&] {
        return b.count(Completion::message) == 1 && a.port->gauge(engine::Gauge::sends) == 0;
      }));
      CHECK(b.last(Completion::message)->status != 0);
      b.entries.clear();
    }
    a.sendPattern(to, 0, 1000, 9);
    REQUIRE(eventually({&a, &b}, [&] { return !b.messages.empty(); }));
    CHECK(isPattern(b.messages[0], 9));
  }
  TEST_CASE_FIXTURE(PortFixture,
                    "a message larger than the slots is an error and costs no slot over shm") {
    tooLarge(Scheme::shm);
  }

  void sleeping(Scheme scheme) {
    TestPort a(scheme), b(scheme);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    a.sendPattern(to, 0, 8, 1);
    REQUIRE(eventually({&a, &b}, [&] { return b.messages.size() == 1; }));
    for (int round = 0; round < 200; ++round) {
      CAPTURE(round);
      REQUIRE(eventually({&a, &b}, [&] { return b.port->arm() == 1; }));
      size_t before = b.messages.size();
      a.sendPattern(to, 0, round % 2 == 0 ? 8 : 5000, 1);
      // The sender may have to work on a message that left in part.
      REQUIRE(eventually({&a}, [&] { return isReadable(b, 0); }));
      b.port->wake();
      REQUIRE(eventually({&a, &b}, [&] { return b.messages.size() == before + 1; }));
      REQUIRE(eventually({&a, &b}, [&] { return a.port->gauge(engine::Gauge::sends) == 0; }));
    }
    // At rest the descriptor is quiet.
    REQUIRE(eventually({&a, &b}, [&] { return b.port->arm() == 1; }));
    CHECK_FALSE(isReadable(b, 20));
  }
  TEST_CASE_FIXTURE(PortFixture, "a sleeper is woken by every message over shm") {
    sleeping(Scheme::shm);
  }
  TEST_CASE_FIXTURE(PortFixture, "a sleeper is woken by every message over tcp") {
    sleeping(Scheme::tcp);
  }

  TEST_CASE_FIXTURE(PortFixture, "a sleeper takes in what peers write, and wakes for a message") {
    TestPort a(Scheme::tcp), b(Scheme::tcp);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    a.sendPattern(to, 0, 8, 1);
    REQUIRE(eventually({&a, &b}, [&] { return b.messages.size() == 1; }));
    std::vector<uint8_t> local(9 << 20, 3), remote(9 << 20, 7);
    auto region = static_cast<uint32_t>(a.port->registerRegion(local.data(), local.size(), 0));
    auto exposed = static_cast<uint32_t>(b.port->registerRegion(remote.data(), remote.size(), 3));
    const fabric::Region* target = b.port->region(exposed);
    REQUIRE(eventually({&a, &b}, [&] { return b.port->arm() == 1; }));
    REQUIRE(a.transfer(transport::Operation::Type::write, to, region, 0, local.size(),
                       target->key(), target->base(), 1) == 0);
    // Nobody else turns it.
    int slept = 0;
    REQUIRE(eventually({&a}, [&] {
      if (isReadable(b, 0)) slept += b.port->sleepsOn();
      return a.count(Completion::transfer) == 1;
    }));
    CHECK(a.last(Completion::transfer)->status == 0);
    CHECK(remote == local);
    CHECK(slept > 0);
    CHECK(b.ring[0] == b.ring[1]);
    a.sendPattern(to, 0, 8, 2);
    REQUIRE(eventually({&a}, [&] { return isReadable(b, 0) && !b.port->sleepsOn(); }));
    CHECK(b.ring[0] != b.ring[1]);
    b.port->wake();
    CHECK_FALSE(b.port->sleepsOn());
    REQUIRE(eventually({&a, &b}, [&] { return b.messages.size() == 2; }));
  }

  TEST_CASE_FIXTURE(PortFixture,
                    "nothing that leaves between the requests of a read is kept back") {
    TestPort a(Scheme::tcp), one(Scheme::tcp), other(Scheme::tcp);
    for (TestPort* port : {&a, &one, &other}) REQUIRE(port->open());
    std::vector<uint8_t> memory(4096, 1);
    auto exposed = static_cast<uint32_t>(a.port->registerRegion(memory.data(), memory.size(), 1));
    const fabric::Region* source = a.port->region(exposed);
    std::vector<uint8_t> into(4096);
    auto read = [&](TestPort& reader, int from) {
      auto region = static_cast<uint32_t>(reader.port->registerRegion(into.data(), 64, 0));
      REQUIRE(reader.transfer(transport::Operation::Type::read, from, region, 0, 64, source->key(),
                              source->base(), 1) == 0);
    };
    // Both are connected, and what they ask for next lies in a's sockets.
    int fromOne = one.admit(a), fromOther = other.admit(a);
    read(one, fromOne);
    read(other, fromOther);
    REQUIRE(eventually({&a, &one, &other}, [&] {
      return one.count(Completion::transfer) + other.count(Completion::transfer) == 2;
    }));
    read(one, fromOne);
    read(other, fromOther);
    // As libfabric 2 does within a read whose peer it is not connected to.
    {
      tcp::MoreFollows more;
      a.port->progress(0);
    }
    tcp::sendWhatWaits();
    size_t connections = 0;
    tcp::SocketTable::each([&](int fd, tcp::Socket& socket) {
      if (socket.stage != tcp::Socket::Stage::streaming) return;
      ++connections;
      int unsent = -1;
      CHECK(ioctl(fd, SIOCOUTQNSD, &unsent) == 0);
      CHECK(unsent == 0);
    });
    // Both ends of two.
    if (a.port->transport().watchesSockets()) CHECK(connections >= 4);
    REQUIRE(eventually({&one, &other}, [&] {
      return one.count(Completion::transfer) + other.count(Completion::transfer) == 4;
    }));
  }

  TEST_CASE_FIXTURE(PortFixture,
                    "the answer to a read is not kept back by a message that finds no receive") {
    TestPort a(Scheme::tcp, "", 32, 1), b(Scheme::tcp);
    REQUIRE(a.open());
    REQUIRE(b.open());
    std::vector<uint8_t> memory(4096, 1), into(4096);
    auto exposed = static_cast<uint32_t>(a.port->registerRegion(memory.data(), memory.size(), 1));
    const fabric::Region* source = a.port->region(exposed);
    auto region = static_cast<uint32_t>(b.port->registerRegion(into.data(), into.size(), 0));
    int to = b.admit(a);
    auto read = [&](uint32_t token) {
      REQUIRE(b.transfer(transport::Operation::Type::read, to, region, 0, 64, source->key(),
                         source->base(), token) == 0);
    };
    auto readsDone = [&] { return b.count(Completion::transfer); };
    // The only receive is taken, and nobody looks at what has come into it.
    b.sendPattern(to, 0, 8, 1);
    read(1);
    auto end = std::chrono::steady_clock::now() + kDeadline;
    while (readsDone() < 1 && std::chrono::steady_clock::now() < end) {
      a.port->progress(0);
      b.turn();
    }
    REQUIRE(readsDone() == 1);
    REQUIRE(a.port->progress(0) == 1);
    // All of this comes in one piece.
    read(2);
    b.sendPattern(to, 1, 8, 2);
    read(3);
    a.port->progress(0);
    tcp::SocketTable::each([&](int fd, tcp::Socket& socket) {
      if (socket.stage != tcp::Socket::Stage::streaming) return;
      int unsent = -1;
      CHECK(ioctl(fd, SIOCOUTQNSD, &unsent) == 0);
      CHECK(unsent == 0);
    });
    while (readsDone() < 2 && std::chrono::steady_clock::now() < end) {
      a.port->progress(0);
      b.turn();
    }
    // The message still waits for its receive, and what was asked for behind it waits with it.
    CHECK(a.port->progress(0) == 1);
    CHECK(readsDone() == 2);
    REQUIRE(eventually({&a, &b}, [&] { return a.messages.size() == 2 && readsDone() == 3; }));
  }

  TEST_CASE_FIXTURE(PortFixture, "arm declines while completions are unread") {
    TestPort a(Scheme::shm), b(Scheme::shm);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    a.sendPattern(to, 0, 8, 1);
    auto end = std::chrono::steady_clock::now() + kDeadline;
    while (b.port->progress(10) == 0 && std::chrono::steady_clock::now() < end) a.turn();
    CHECK(b.port->arm() == 0);
    b.turn();
    CHECK(b.port->arm() == 1);
    CHECK(b.port->arm() == 1);
  }

  TEST_CASE_FIXTURE(PortFixture, "arm takes in that a message has left, and sleeps") {
    TestPort a(Scheme::tcp), b(Scheme::tcp);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int to = a.admit(b);
    a.sendPattern(to, 0, 8, 1);
    REQUIRE(eventually({&a, &b}, [&] {
      return b.messages.size() == 1 && a.port->gauge(engine::Gauge::sends) == 0;
    }));
    REQUIRE(eventually({&a, &b}, [&] { return a.port->arm() == 1; }));
    a.port->wake();
    // Too long to be injected, so the provider reports its departure: at once, on a connection at
    // rest.
    a.sendPattern(to, 0, 5000, 1);
    CHECK(a.port->gauge(engine::Gauge::sends) == 1);
    CHECK(a.port->arm() == 2);
    // Asleep already, and the ring has reported it.
    CHECK(a.port->arm() == 1);
    CHECK(a.ring[0] - a.ring[1] == 1);
    a.port->wake();
    a.turn();
    CHECK(a.port->gauge(engine::Gauge::sends) == 0);
    REQUIRE(eventually({&b}, [&] { return b.messages.size() == 2; }));
  }

  TEST_CASE_FIXTURE(PortFixture,
                    "a spin goes on when the only message has left, and ends with the answer") {
    TestPort a(Scheme::tcp), b(Scheme::tcp);
    REQUIRE(a.open());
    REQUIRE(b.open());
    int toB = a.admit(b), toA = b.admit(a);
    // Longer than what the provider sends without a completion.
    constexpr size_t bytes = 1000;
    a.sendPattern(toB, 0, bytes, 1);
    b.sendPattern(toA, 0, bytes, 2);
    REQUIRE(eventually({&a, &b}, [&] {
      return a.messages.size() == 1 && b.messages.size() == 1 &&
             a.port->gauge(engine::Gauge::sends) + b.port->gauge(engine::Gauge::sends) == 0;
    }));
    a.turn();
    std::thread answering([&] {
      REQUIRE(eventually({&b}, [&] { return b.messages.size() == 2; }));
      b.sendPattern(toA, 1, bytes, 3);
      REQUIRE(eventually({&b}, [&] { return b.port->gauge(engine::Gauge::sends) == 0; }));
    });
    a.sendPattern(toB, 1, bytes, 4);
    auto most = std::chrono::duration_cast<std::chrono::microseconds>(kDeadline);
    CHECK(a.port->progress(static_cast<uint32_t>(most.count())) == 2);
    a.turn();
    answering.join();
    CHECK(a.messages.size() == 2);
    CHECK(a.count(engine::Completion::sent) == 2);
  }

  TEST_CASE_FIXTURE(
      PortFixture, "an open tcp port tells its real number, and the number cannot be taken twice") {
    TestPort a(Scheme::tcp);
    REQUIRE(a.open());
    fabric::RawAddress raw = a.port->address();
    auto bound = fabric::decodeSocketAddress(raw.data(), raw.size());
    REQUIRE(bound);
    CHECK(bound->port != 0);
    TestPort b(Scheme::tcp);
    b.request.service = bound->port;
    CHECK_FALSE(b.open());
    CHECK(b.failure.code == EADDRINUSE);
  }

  TEST_CASE_FIXTURE(PortFixture, "a tcp port listens where it was asked to, at a wildcard too") {
    for (const char* host : {"", "0.0.0.0", "::", "127.0.0.1", "::1"}) {
      CAPTURE(host);
      // A number that is free: the first port's, which is closed again.
      uint32_t service = 0;
      for (int time = 0; time < 2; ++time) {
        TestPort a(Scheme::tcp);
        a.request.host = host;
        a.request.service = service;
        REQUIRE(a.open());
        fabric::RawAddress raw = a.port->address();
        auto bound = fabric::decodeSocketAddress(raw.data(), raw.size());
        REQUIRE(bound);
        if (time > 0) CHECK(bound->port == service);
        service = bound->port;
        CHECK(bound->host == (*host == 0 ? "0.0.0.0" : host));
      }
    }
  }

  TEST_CASE_FIXTURE(
      PortFixture, "addresses of the other IP version, without a port, or of no kind are refused") {
    TestPort a(Scheme::tcp);
    REQUIRE(a.open());
    auto admit = [&](const char* host, uint32_t service) {
      auto raw = fabric::encodeSocketAddress(host, service);
      return a.port->admit(raw->data(), raw->size());
    };
    CHECK(admit("::1", 1) == -EAFNOSUPPORT);
    CHECK(admit("127.0.0.1", 0) == -EINVAL);
    uint8_t junk[3] = {1, 2, 3};
    CHECK(a.port->admit(junk, 3) == -EINVAL);
    CHECK_FALSE(a.port->addressOf("::1", 1));
    CHECK_FALSE(a.port->addressOf("host", 1));
    CHECK(a.port->addressOf("10.0.0.1", 7));
  }

  TEST_CASE_FIXTURE(PortFixture, "a port can be admitted by itself over shm") {
    TestPort a(Scheme::shm);
    REQUIRE(a.open());
    int to = a.admit(a);
    REQUIRE(to >= 0);
    a.sendPattern(to, 0, 10000, 3);
    REQUIRE(eventually({&a}, [&] { return a.messages.size() == 1; }));
    CHECK(isPattern(a.messages[0], 3));
  }

  TEST_CASE_FIXTURE(PortFixture,
                    "closing with messages unreceived harms nothing that is on its way to their "
                    "sender over shm") {
    constexpr size_t kBytes = 4096;
    constexpr uint32_t kMessages = 20;
    TestPort full(Scheme::shm, "", 32, 1), sender(Scheme::shm), other(Scheme::shm);
    REQUIRE(full.open());
    REQUIRE(sender.open());
    REQUIRE(other.open());
    int toFull = sender.admit(full), toSender = other.admit(sender), alsoToFull = other.admit(full);
    sender.sendPattern(toFull, 0, 8, 1);
    other.sendPattern(toSender, 0, 8, 1);
    other.sendPattern(alsoToFull, 1, 8, 1);
    REQUIRE(eventually({&full, &sender, &other},
                       [&] { return full.messages.size() == 2 && sender.messages.size() == 1; }));
    sender.messages.clear();

    for (uint32_t slot = 0; slot < kMessages; ++slot)
      REQUIRE(sender.sendPattern(toFull, slot, kBytes, 2) >= 0);
    full.port->progress(0);  // nobody reads its ring, so one is received and the others are not
    full.port->close();
    sender.port->forget(static_cast<uint32_t>(toFull));
    for (int i = 0; i < 200; ++i) sender.turn();
    for (uint32_t slot = 0; slot < kMessages; ++slot)
      REQUIRE(other.sendPattern(toSender, slot, kBytes, 3) >= 0);
    other.port->forget(static_cast<uint32_t>(alsoToFull));
    for (int i = 0; i < 200; ++i) other.turn();
    REQUIRE(eventually({&sender, &other}, [&] { return sender.messages.size() == kMessages; }));
    for (const auto& message : sender.messages) CHECK(isPattern(message, 3));
  }

  TEST_CASE_FIXTURE(PortFixture, "closing with everything under way is clean, in any order") {
    for (Scheme scheme : {Scheme::shm, Scheme::tcp}) {
      for (int order = 0; order < 2; ++order) {
        TestPort a(scheme), b(scheme);
        REQUIRE(a.open());
        REQUIRE(b.open());
        int to = a.admit(b);
        int back = b.admit(a);
        std::vector<uint8_t> memory(4 << 20), other(4 << 20);
        auto region =
            static_cast<uint32_t>(a.port->registerRegion(memory.data(), memory.size(), 0));
        auto exposed = static_cast<uint32_t>(b.port->registerRegion(other.data(), other.size(), 3));
        const fabric::Region* target = b.port->region(exposed);
        for (uint32_t slot = 0; slot < 32; ++slot) {
          a.sendPattern(to, slot, 16000, 1);
          b.sendPattern(back, slot, 100, 1);
          a.transfer(Operation::Type::write, to, region, 0, memory.size(), target->key(),
                     target->base(), slot);
          a.turn();
        }
        (order == 0 ? a : b).port->close();
        (order == 0 ? a : b).port.reset();
        TestPort& left = order == 0 ? b : a;
        for (int i = 0; i < 200; ++i) left.turn();
        if (scheme == Scheme::shm) {
          CHECK(eventually({&left}, [&] { return left.count(Completion::peerGone) >= 1; }));
          // A name that was closed can be taken again at once, and met again.
          TestPort again(scheme, own("again"));
          REQUIRE(again.open());
          int next = left.admit(again);
          REQUIRE(next >= 0);
          left.messages.clear();
          left.port->forget(0);
          uint32_t free = 0;
          while (left.sendPattern(next, free, 9000, 5) == -FI_EBUSY && free < 31) ++free;
          CHECK(eventually({&left, &again}, [&] { return again.messages.size() == 1; }));
        }
      }
    }
  }
}
