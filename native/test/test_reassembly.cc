// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "test/mutation.h"
#include "transport/shm/reassembly.h"

using namespace cinnabar;
using namespace cinnabar::shm;
using Outcome = Reassembly::Outcome;

TEST_SUITE("reassembly") {
  struct ReassemblyFixture {
    Reassembly pieces{100};
    uint8_t slot[100];
    size_t whole = 0;
    Outcome add(uint32_t sender, uint64_t offset, bool last, size_t bytes, uint8_t fill) {
      memset(slot, fill, bytes);
      return pieces.add(fragmentTag(sender, offset, last), slot, bytes, &whole);
    }
  };

  TEST_CASE_FIXTURE(ReassemblyFixture, "puts a message together in the last piece's slot") {
    CHECK(add(1, 0, false, 40, 'a') == Outcome::more);
    CHECK(add(1, 40, false, 40, 'b') == Outcome::more);
    CHECK(add(1, 80, true, 20, 'c') == Outcome::complete);
    CHECK(whole == 100);
    CHECK(slot[0] == 'a');
    CHECK(slot[39] == 'a');
    CHECK(slot[40] == 'b');
    CHECK(slot[80] == 'c');
    CHECK(slot[99] == 'c');
  }

  TEST_CASE_FIXTURE(ReassemblyFixture, "keeps senders apart") {
    CHECK(add(1, 0, false, 10, 'a') == Outcome::more);
    CHECK(add(2, 0, false, 10, 'x') == Outcome::more);
    CHECK(add(1, 10, true, 10, 'b') == Outcome::complete);
    CHECK(slot[0] == 'a');
    CHECK(add(2, 10, true, 10, 'y') == Outcome::complete);
    CHECK(slot[0] == 'x');
    CHECK(slot[10] == 'y');
  }

  TEST_CASE_FIXTURE(ReassemblyFixture, "reports a message larger than a slot at its end") {
    CHECK(add(1, 0, false, 60, 'a') == Outcome::more);
    CHECK(add(1, 60, false, 60, 'b') == Outcome::more);
    CHECK(add(1, 120, true, 60, 'c') == Outcome::tooLarge);
    CHECK(whole == 180);
    CHECK(add(1, 0, true, 10, 'd') == Outcome::complete);
  }

  TEST_CASE_FIXTURE(ReassemblyFixture, "begins anew when a sender gave a message up") {
    CHECK(add(1, 0, false, 60, 'a') == Outcome::more);
    CHECK(add(1, 0, false, 30, 'n') == Outcome::more);
    CHECK(add(1, 30, true, 5, 'm') == Outcome::complete);
    CHECK(whole == 35);
    CHECK(slot[29] == 'n');
  }

  TEST_CASE_FIXTURE(ReassemblyFixture, "drops a piece that fits nothing") {
    CHECK(add(1, 50, true, 10, 'a') == Outcome::garbage);
    CHECK(add(1, 0, false, 10, 'a') == Outcome::more);
    CHECK(add(1, 30, false, 10, 'a') == Outcome::garbage);
    CHECK(add(1, kFragmentOffset, true, 10, 'a') == Outcome::garbage);
    pieces.drop(1);
    CHECK(pieces.pending() == 0);
  }

  TEST_CASE("of mutated pieces makes nothing but messages of one sender in order") {
    test::Random random(9);
    constexpr size_t kSlot = 100;
    struct Begun {
      std::vector<uint8_t> bytes;
      uint64_t have = 0;
    };
    std::map<uint32_t, Begun> begun;
    Reassembly pieces(kSlot);
    long complete = 0;
    for (long round = test::mutatedMessages(); round > 0; --round) {
      uint32_t sender = random.below(5);
      Begun& one = begun[sender];
      uint64_t offset = random.oneIn(3) ? random.below(130) : random.oneIn(3) ? 0 : one.have;
      if (random.oneIn(50)) offset = kFragmentOffset - random.below(100);
      bool last = random.oneIn(3);
      std::vector<uint8_t> piece = random.bytes(random.below(kSlot + 1));
      // The slot and what follows it, which a sanitizer guards.
      std::vector<uint8_t> slot = piece;
      slot.resize(kSlot);
      size_t whole = 0;
      Outcome outcome =
          pieces.add(fragmentTag(sender, offset, last), slot.data(), piece.size(), &whole);
      if (offset == 0) one = {};
      Outcome expected = Outcome::garbage;
      if (offset == one.have) {
        one.have += piece.size();
        if (one.have <= kSlot) one.bytes.insert(one.bytes.end(), piece.begin(), piece.end());
        expected = !last ? Outcome::more : one.have > kSlot ? Outcome::tooLarge : Outcome::complete;
      }
      if (outcome != expected) FAIL("round " << round << ": another outcome");
      if (outcome == Outcome::complete) {
        ++complete;
        if (whole != one.bytes.size() ||
            !std::equal(one.bytes.begin(), one.bytes.end(), slot.begin()))
          FAIL("round " << round << ": other bytes");
      }
      if (outcome != Outcome::more) one = {};
      if (random.oneIn(100)) {
        pieces.drop(sender);
        one = {};
      }
    }
    CHECK(complete > 0);
  }
}
