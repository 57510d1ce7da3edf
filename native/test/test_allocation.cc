// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/allocation.h"

using cinnabar::base::Allocation;

TEST_SUITE("allocation") {
  TEST_CASE("gives pages of zeros, and takes them back with the last owner") {
    size_t before = Allocation::totalBytes();
    for (bool hugePages : {false, true}) {
      for (size_t bytes : {size_t{1}, size_t{4096}, size_t{4097}, (size_t{5} << 20) + 1}) {
        auto allocation = Allocation::create(bytes, hugePages);
        REQUIRE(allocation != nullptr);
        size_t page = hugePages ? size_t{2} << 20 : static_cast<size_t>(sysconf(_SC_PAGESIZE));
        CHECK(reinterpret_cast<uintptr_t>(allocation->bytes()) % page == 0);
        CHECK(allocation->length() >= bytes);
        CHECK(allocation->length() < bytes + page);
        uint8_t* end = allocation->bytes() + allocation->length();
        CHECK(std::all_of(allocation->bytes(), end, [](uint8_t byte) { return byte == 0; }));
        std::fill(allocation->bytes(), end, uint8_t{0xaa});
        CHECK(Allocation::totalBytes() == before + allocation->length());
        auto second = allocation;
        allocation.reset();
        CHECK(Allocation::totalBytes() > before);
        second.reset();
        CHECK(Allocation::totalBytes() == before);
      }
    }
  }

  TEST_CASE("is found by each of its addresses, and by no other") {
    auto allocation = Allocation::create(10'000, false);
    REQUIRE(allocation != nullptr);
    uint8_t* bytes = allocation->bytes();
    CHECK(Allocation::of(bytes) == allocation);
    CHECK(Allocation::of(bytes + allocation->length() - 1) == allocation);
    CHECK(Allocation::of(bytes + allocation->length()) != allocation);
    CHECK(Allocation::of(bytes - 1) != allocation);
    int local = 0;
    CHECK(Allocation::of(&local) == nullptr);
    CHECK(Allocation::of(nullptr) == nullptr);
    allocation.reset();
    CHECK(Allocation::of(bytes) == nullptr);
  }

  TEST_CASE("refuses what no system has") {
    CHECK(Allocation::create(0, false) == nullptr);
    CHECK(Allocation::create(SIZE_MAX, false) == nullptr);
    CHECK(Allocation::create(SIZE_MAX, true) == nullptr);
  }

  TEST_CASE("may be found by one thread while another lets go") {
    auto steady = Allocation::create(4096, false);
    std::thread other([&] {
      for (int i = 0; i < 2000; ++i) Allocation::of(steady->bytes());
    });
    for (int i = 0; i < 2000; ++i) {
      auto brief = Allocation::create(4096, false);
      Allocation::of(brief->bytes());
    }
    other.join();
    CHECK(Allocation::of(steady->bytes()) == steady);
  }
}
