// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "test/fake_provider.h"
#include "test/harness.h"
#include "transport/shm/shared_endpoint.h"

using namespace cinnabar;
using namespace cinnabar::test;
using shm::EndpointLease;
using shm::SharedEndpoint;

TEST_SUITE("shared endpoint") {
  TEST_CASE("is leased by its name until its port closes") {
    FakeProvider provider;
    auto shared = SharedEndpoint::publish("lease-a", provider.endpoint());
    CHECK_FALSE(SharedEndpoint::lease("lease-b"));
    CHECK_FALSE(shared->isLeased());
    EndpointLease one = SharedEndpoint::lease("lease-a");
    REQUIRE(one);
    {
      EndpointLease two = SharedEndpoint::lease("lease-a");
      EndpointLease moved = std::move(two);
      CHECK(moved);
      CHECK_FALSE(two);
    }
    CHECK(shared->isLeased());
    shared->retire();
    CHECK_FALSE(SharedEndpoint::lease("lease-a"));
    CHECK(shared->isLeased());
    bool copied = one->whileOpen([] { FAIL("its port has closed"); });
    CHECK_FALSE(copied);
    one = EndpointLease();
    CHECK_FALSE(shared->isLeased());
  }

  TEST_CASE("stays for the last lease after its port is gone") {
    FakeProvider provider;
    auto shared = SharedEndpoint::publish("lease-c", provider.endpoint());
    EndpointLease lease = SharedEndpoint::lease("lease-c");
    shared->retire();
    shared.reset();
    CHECK(provider.closed == 0);
    lease = EndpointLease();
    CHECK(provider.closed > 0);
  }

  // What another thread did with the endpoint is plain memory here, so that ThreadSanitizer sees
  // whether its end is ordered before the owner's decision.
  TEST_CASE("is not shut before what other threads do with it has happened") {
    constexpr size_t kThreads = 3;
    for (int round = 0; round < 200; ++round) {
      FakeProvider provider;
      auto shared = SharedEndpoint::publish("lease-d", provider.endpoint());
      size_t posts[kThreads] = {};
      std::atomic<size_t> begun = 0;
      std::vector<std::thread> threads;
      for (size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          EndpointLease lease = SharedEndpoint::lease("lease-d");
          ++begun;
          for (int post = 0; lease && post < 100; ++post) ++posts[i];
        });
      }
      while (begun < kThreads) std::this_thread::yield();
      shared->retire();
      if (!shared->isLeased()) {
        for (size_t count : posts) CHECK(count % 100 == 0);
      }
      for (std::thread& thread : threads) thread.join();
      CHECK_FALSE(shared->isLeased());
    }
  }

  TEST_CASE("ports of two threads that know each other close at the same moment") {
    REQUIRE(haveLibfabric());
    for (int round = 0; round < 20; ++round) {
      CAPTURE(round);
      TestPort a(fabric::Scheme::shm), b(fabric::Scheme::shm);
      REQUIRE(a.open());
      REQUIRE(b.open());
      int there = a.admit(b), back = b.admit(a);
      a.sendPattern(there, 0, 100, 1);
      b.sendPattern(back, 0, 100, 1);
      REQUIRE(
          eventually({&a, &b}, [&] { return a.messages.size() == 1 && b.messages.size() == 1; }));
      std::atomic<int> ready = 0;
      auto close = [&ready](TestPort& port) {
        ++ready;
        while (ready < 2) {
        }
        port.port.reset();
      };
      std::thread other(close, std::ref(b));
      close(a);
      other.join();
    }
  }
}
