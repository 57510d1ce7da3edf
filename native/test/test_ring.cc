// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <vector>

#include "engine/ring.h"

using namespace cinnabar::engine;

TEST_SUITE("ring") {
  struct RingFixture {
    std::vector<uint32_t> words = std::vector<uint32_t>(kRingBytes / sizeof(uint32_t));
    Ring ring{words.data()};
    std::vector<uint32_t> reclaimed() {
      std::vector<uint32_t> slots;
      ring.reclaim([&](uint32_t slot) { slots.push_back(slot); });
      return slots;
    }
  };

  TEST_CASE_FIXTURE(RingFixture, "writes an entry as the contract lays it out") {
    ring.push({Completion::transfer, 5, 77, 4096, 111});
    CHECK(words[0] == 1);
    CHECK(words[1] == 0);
    uint32_t* entry = words.data() + kHeaderWords;
    CHECK(entry[0] == 3);
    CHECK(entry[1] == 5);
    CHECK(entry[2] == 77);
    CHECK(entry[3] == 4096);
    CHECK(entry[4] == 111);
    CHECK(entry[5] == 0);
    CHECK(ring.readable() == 1);
  }

  TEST_CASE_FIXTURE(RingFixture, "tells how spins fared, in sums") {
    ring.countLost(std::chrono::nanoseconds(1'999));
    ring.countLost(std::chrono::milliseconds(4));
    ring.countCaught();
    CHECK(words[2] == 4'001);
    CHECK(words[3] == 1);
    CHECK(words[0] == 0);
  }

  TEST_CASE_FIXTURE(RingFixture,
                    "has no news while all that is unread tells of messages that left") {
    CHECK_FALSE(ring.hasNews());
    ring.push({Completion::sent});
    CHECK_FALSE(ring.hasNews());
    ring.push({Completion::message}, 3);
    ring.push({Completion::sent});
    CHECK(ring.hasNews());
    words[1] = 1;
    reclaimed();
    CHECK(ring.hasNews());
    words[1] = 2;
    reclaimed();
    CHECK_FALSE(ring.hasNews());
    CHECK(ring.readable() == 1);
    // A message that did not leave is news.
    ring.push({Completion::sent, 5});
    CHECK(ring.hasNews());
    words[1] = 4;
    reclaimed();
    CHECK_FALSE(ring.hasNews());
  }

  TEST_CASE_FIXTURE(RingFixture, "is full after as many entries as it has") {
    for (uint32_t i = 0; i < kRingEntries; ++i) {
      CHECK(ring.room() == kRingEntries - i);
      ring.push({Completion::sent, 0, i});
    }
    CHECK(ring.room() == 0);
    words[1] = 10;
    CHECK(ring.room() == 0);
    reclaimed();
    CHECK(ring.room() == 10);
  }

  TEST_CASE_FIXTURE(RingFixture, "wraps around its entries and around 2^32") {
    uint64_t total = 5 * kRingEntries + 3;
    for (uint64_t i = 0; i < total; ++i) {
      ring.push({Completion::message, 0, static_cast<uint32_t>(i)}, static_cast<uint32_t>(i % 100));
      uint32_t at = kHeaderWords + static_cast<uint32_t>(i % kRingEntries) * kEntryWords;
      REQUIRE(words[at + 2] == i);
      words[1] = static_cast<uint32_t>(i + 1);
      REQUIRE(reclaimed() == std::vector<uint32_t>{static_cast<uint32_t>(i % 100)});
    }
  }

  TEST_CASE_FIXTURE(RingFixture,
                    "gives a message's slot back once, and only after the head has passed it") {
    ring.push({Completion::message}, 4);
    ring.push({Completion::sent});
    ring.push({Completion::message}, 9);
    CHECK(reclaimed().empty());
    words[1] = 1;
    CHECK(reclaimed() == std::vector<uint32_t>{4});
    words[1] = 3;
    CHECK(reclaimed() == std::vector<uint32_t>{9});
    CHECK(reclaimed().empty());
  }

  TEST_CASE_FIXTURE(
      RingFixture,
      "takes a head beyond what was written, or before what was reclaimed, for no head") {
    for (uint32_t i = 0; i < 8; ++i) ring.push({Completion::message}, i);
    words[1] = 9;
    CHECK(reclaimed().empty());
    CHECK(ring.readable() == 8);
    words[1] = 0xffffffff;
    CHECK(reclaimed().empty());
    words[1] = 6;
    CHECK(reclaimed().size() == 6);
    words[1] = 2;
    CHECK(reclaimed().empty());
    CHECK(ring.readable() == 2);
  }

  TEST_CASE_FIXTURE(RingFixture, "does not believe what the reader wrote into the entries") {
    ring.push({Completion::message}, 3);
    for (uint32_t i = 0; i < kEntryWords; ++i) words[kHeaderWords + i] = 0xdeadbeef;
    words[1] = 1;
    CHECK(reclaimed() == std::vector<uint32_t>{3});
  }
}
