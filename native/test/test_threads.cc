// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "test/harness.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using fabric::Scheme;

TEST_SUITE("threads") {
  TEST_CASE("ports of several threads meet, talk, copy and end while others post to them") {
    REQUIRE(haveLibfabric());
    constexpr int kRounds = 12;
    std::atomic<bool> over{false};
    TestPort server(Scheme::shm, own("thread-server"), 64, 64);
    REQUIRE(server.open());
    std::vector<uint8_t> shared(1 << 20);
    auto exposed =
        static_cast<uint32_t>(server.port->registerRegion(shared.data(), shared.size(), 3));
    uint64_t key = server.port->region(exposed)->key();
    uint64_t base = server.port->region(exposed)->base();
    fabric::RawAddress address = server.port->address();
    std::atomic<int> failures{0};

    auto client = [&] {
      for (int round = 0; round < kRounds; ++round) {
        TestPort here(Scheme::shm);
        if (!here.open()) {
          ++failures;
          continue;
        }
        int to = here.port->admit(address.data(), address.size());
        std::vector<uint8_t> memory(1 << 20);
        int region = here.port->registerRegion(memory.data(), memory.size(), 3);
        if (to < 0 || region < 0) {
          ++failures;
          continue;
        }
        fabric::RawAddress mine = here.port->address();
        memcpy(here.slot(31), mine.data(), mine.size());
        here.port->send(static_cast<uint32_t>(to), 31 * TestPort::kSlotBytes, mine.size());
        bool answered = eventually({&here}, [&] {
          here.transfer(transport::Operation::Type::write, to, static_cast<uint32_t>(region), 0,
                        4096, key, base, 1);
          return here.messages.size() >= 3;
        });
        if (!answered) ++failures;
        // Closed in the middle of what the server sends.
      }
    };
    std::thread one(client), two(client);
    std::thread watcher([&] {
      one.join();
      two.join();
      over = true;
    });
    std::vector<int> peers;
    uint32_t slot = 0;
    while (!over) {
      server.turn();
      for (const auto& message : server.messages) {
        int to = server.port->admit(message.data(), message.size());
        if (to >= 0) peers.push_back(to);
      }
      server.messages.clear();
      for (const auto& entry : server.entries) {
        if (entry.kind != Completion::peerGone) continue;
        server.port->forget(entry.token);
        std::erase(peers, static_cast<int>(entry.token));
      }
      server.entries.clear();
      for (int peer : peers) {
        slot = (slot + 1) % 64;
        server.sendPattern(peer, slot, 100 + slot * 200, 1);
      }
    }
    watcher.join();
    CHECK(failures == 0);
  }
}
