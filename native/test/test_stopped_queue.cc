// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>

#include "fabric/quirks.h"
#include "test/child.h"
#include "test/harness.h"
#include "test/region_queue.h"
#include "transport/shm/stopped_queue.h"

using namespace cinnabar;
using namespace cinnabar::test;
using namespace cinnabar::engine;
using namespace cinnabar::shm;
using fabric::Scheme;

namespace {

/// A region like those of libfabric 2.1, as far as it is looked at.
struct MadeUpRegion {
  static constexpr int64_t kSize = 8;
  static constexpr size_t kQueueAt = 192;
  static constexpr size_t kQueueEnds =
      kQueueAt + sizeof(RegionQueue) + kSize * sizeof(RegionQueue::Entry);

  alignas(64) uint8_t bytes[kQueueEnds] = {};
  RegionQueue& queue = *reinterpret_cast<RegionQueue*>(bytes + kQueueAt);

  MadeUpRegion() {
    bytes[0] = 8;
    put<size_t>(80, kQueueAt);
    put<size_t>(88, kQueueEnds);
    queue.size = kSize;
    queue.mask = kSize - 1;
    for (int64_t place = 0; place < kSize; ++place) queue.entry(place).seq = place;
  }
  template <typename T>
  void put(size_t at, T value) {
    memcpy(bytes + at, &value, sizeof value);
  }

  /// Reads on as the provider does; the place that was read, or -1.
  int64_t readOne() {
    for (;;) {
      int64_t place = queue.read;
      RegionQueue::Entry& entry = queue.entry(place);
      if (entry.seq != place + 1) return -1;
      queue.read = place + 1;
      bool givenUp = std::exchange(entry.givenUp, false);
      entry.seq = place + kSize;
      if (!givenUp) return place;
    }
  }
};

struct MadeUpPosters {
  uint64_t endings = 0;
  std::vector<UnderWay> posts;
  std::set<uint32_t> through;

  uint64_t ended() const { return endings; }
  std::vector<UnderWay> postsUnderWay() const { return posts; }
  bool isPosting(const UnderWay& post) const { return through.count(post.neighbour) == 0; }
};

bool stopsQueues() {
  bool does = haveLibfabric() &&
              fabric::hasQuirk(fabric::Quirk::stopsQueues, "shm", fabric::library()->loadedVersion);
  if (!does) MESSAGE("not run: no dead process stops a queue of this libfabric");
  return does;
}

/// Sends what comes back as it was.
bool comesBack(TestPort& here, int to, size_t bytes) {
  here.messages.clear();
  if (here.sendPattern(to, 0, bytes, 3) < 0) return false;
  bool back = eventually({&here}, [&] { return here.messages.size() == 1; });
  return back && here.messages[0].size() == bytes && isPattern(here.messages[0], 3);
}

/// Another process that sends everything back.
struct Echo {
  Child child{{"--part", "echo", "shm", ""}};
  int to = -1;

  explicit Echo(TestPort& here) {
    std::string said = child.hear();
    fabric::RawAddress address = fromHex(said.substr(0, said.find(' ')));
    to = here.port->admit(address.data(), address.size());
    REQUIRE(to >= 0);
    fabric::RawAddress mine = here.port->address();
    memcpy(here.slot(31), mine.data(), mine.size());
    here.port->send(static_cast<uint32_t>(to), 31 * TestPort::kSlotBytes, mine.size());
    REQUIRE(eventually({&here}, [&] { return here.port->gauge(Gauge::sends) == 0; }));
    REQUIRE(child.hear().starts_with("admitted"));
  }
};

/// Another process that takes a place in our queue when it is told, and is killed.
struct Victim {
  Child child;

  explicit Victim(TestPort& here)
      : child({"--part", "die-posting", "shm", toHex(here.port->address())}) {
    size_t before = here.messages.size();
    REQUIRE(eventually({&here}, [&] { return here.messages.size() > before; }));
    REQUIRE(child.hear() == "met");
  }
  void die() {
    child.tell("die");
    REQUIRE(child.hear() == "taken");
    child.wait();
  }
};

}  // namespace

TEST_SUITE("stopped queue") {
  TEST_CASE("is known by all of its layout, and only before it was used") {
    MadeUpRegion known;
    CHECK(StoppedQueue::in(known.bytes) != nullptr);
    std::vector<std::function<void(MadeUpRegion&)>> others = {
        [](auto& it) { it.bytes[0] = 4; },
        [](auto& it) { it.bytes[2] = 2; },  // with debugging aids
        [](auto& it) { it.template put<size_t>(80, 200); },
        [](auto& it) { it.template put<size_t>(88, MadeUpRegion::kQueueEnds + 64); },
        [](auto& it) { it.template put<size_t>(88, 0); },
        [](auto& it) { it.queue.size = 7; },
        [](auto& it) { it.queue.size = 0; },
        [](auto& it) { it.queue.mask = 3; },
        [](auto& it) { it.queue.taken = 1; },
        [](auto& it) { it.queue.read = 1; },
        [](auto& it) { it.queue.entry(5).seq = 6; },
        [](auto& it) { it.queue.entry(5).givenUp = true; },
    };
    for (size_t i = 0; i < others.size(); ++i) {
      CAPTURE(i);
      MadeUpRegion other;
      others[i](other);
      CHECK(StoppedQueue::in(other.bytes) == nullptr);
    }
  }

  TEST_CASE("goes on past what the dead took and did not fill, and nothing else is touched") {
    MadeUpRegion region;
    auto stopped = StoppedQueue::in(region.bytes);
    REQUIRE(stopped);
    MadeUpPosters posters;
    // The places wrap around on the way.
    for (int64_t round = 0; round < 3; ++round) {
      CAPTURE(round);
      RegionQueue& queue = region.queue;
      int64_t first = queue.take();
      queue.fill(first);
      queue.take();
      int64_t third = queue.take();
      queue.fill(third);
      queue.take();
      int64_t fifth = queue.take();
      queue.fill(fifth);
      CHECK(region.readOne() == first);
      CHECK(region.readOne() == -1);
      auto touched = [&] {
        std::vector<int64_t> places;
        MadeUpRegion before;
        memcpy(before.bytes, region.bytes, sizeof before.bytes);
        bool goesOn = stopped->passOver(posters);
        for (int64_t place = first; place < first + MadeUpRegion::kSize; ++place) {
          if (memcmp(&before.queue.entry(place), &region.queue.entry(place),
                     sizeof(RegionQueue::Entry)) != 0)
            places.push_back(place);
        }
        CHECK(memcmp(before.bytes, region.bytes, MadeUpRegion::kQueueAt + sizeof(RegionQueue)) ==
              0);
        CHECK(goesOn == !places.empty());
        return places;
      };
      CHECK(touched().empty());  // nobody has ended
      ++posters.endings;
      CHECK(touched() == std::vector<int64_t>{first + 1, first + 3});
      CHECK_FALSE(stopped->isStopped());
      CHECK(region.readOne() == third);
      CHECK(region.readOne() == fifth);
      CHECK(region.readOne() == -1);
      CHECK(queue.read == queue.taken);
      ++posters.endings;
      CHECK(touched().empty());
    }
  }

  TEST_CASE("waits for everybody who was inside a post, and takes nothing from them") {
    MadeUpRegion region;
    auto stopped = StoppedQueue::in(region.bytes);
    REQUIRE(stopped);
    RegionQueue& queue = region.queue;
    queue.take();
    int64_t slow = queue.take();
    MadeUpPosters posters{.endings = 1, .posts = {{1, 1}, {2, 7}}};
    CHECK_FALSE(stopped->passOver(posters));
    CHECK(stopped->isStopped());
    posters.through = {2};
    posters.posts = {};  // who posts now is none of those
    CHECK_FALSE(stopped->passOver(posters));
    CHECK(region.readOne() == -1);
    int64_t later = queue.take();
    queue.fill(slow);
    posters.through = {1, 2};
    CHECK(stopped->passOver(posters));
    CHECK_FALSE(stopped->isStopped());
    CHECK(region.readOne() == slow);
    // Taken after the look.
    CHECK(queue.entry(later).seq == later);
    CHECK(region.readOne() == -1);
    queue.fill(later);
    CHECK(region.readOne() == later);
  }

  TEST_CASE("who dies while it is waited for is waited for no more, and its place is passed over") {
    MadeUpRegion region;
    auto stopped = StoppedQueue::in(region.bytes);
    REQUIRE(stopped);
    RegionQueue& queue = region.queue;
    queue.take();
    MadeUpPosters posters{.endings = 1, .posts = {{1, 1}}};
    CHECK_FALSE(stopped->passOver(posters));
    queue.take();
    int64_t last = queue.take();
    queue.fill(last);
    posters = {.endings = 2, .posts = {}, .through = {1}};
    CHECK(stopped->passOver(posters));
    CHECK(region.readOne() == last);
  }

  TEST_CASE("a peer killed between taking a place and filling it does not stop its receiver") {
    if (!stopsQueues()) return;
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    Echo witness(here);
    for (int round = 0; round < 3; ++round) {
      CAPTURE(round);
      Victim victim(here);
      victim.die();
      for (size_t bytes : {10, 1000, 16384}) CHECK(comesBack(here, witness.to, bytes));
    }
    CHECK_FALSE(here.port->wantsRetry());
  }

  TEST_CASE("what a live peer is still posting is waited for, and arrives") {
    if (!stopsQueues()) return;
    alarm(60);
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    Echo witness(here);
    CHECK(comesBack(here, witness.to, 1000));
    Victim victim(here);
    here.messages.clear();
    DoorbellPage* page = doorbellPageOf(witness.child.pid());
    RegionQueue* queue = RegionQueue::of(getpid());
    auto region = regionOf(getpid());
    REQUIRE(page != nullptr);
    REQUIRE(queue != nullptr);
    REQUIRE(region);
    // A post of more than fits a place takes a place first, then a buffer, for which it needs the
    // lock. Once a peer has died the lock is taken away from us (stale_lock_reaper.h).
    pthread_spin_lock(region->lock());
    int64_t place = queue->taken;
    REQUIRE(here.sendPattern(witness.to, 0, 1000, 3) >= 0);
    REQUIRE(eventually({}, [&] { return queue->taken == place + 1 && page->posting % 2 == 1; }));
    victim.die();
    CHECK(queue->taken == place + 2);
    CHECK(eventually({&here}, [&] { return here.messages.size() == 1; }));
    CHECK(isPattern(here.messages.at(0), 3));
    CHECK(comesBack(here, witness.to, 16384));
    CHECK(page->posting % 2 == 0);
    alarm(0);
  }

  TEST_CASE("a peer that is stopped inside a post is waited for until it goes on, or is killed") {
    if (!stopsQueues()) return;
    for (int signal : {SIGCONT, SIGKILL}) {
      CAPTURE(signal);
      TestPort here(Scheme::shm);
      REQUIRE(here.open());
      Echo witness(here), stopped(here);
      Victim victim(here);
      DoorbellPage* page = doorbellPageOf(stopped.child.pid());
      RegionQueue* queue = RegionQueue::of(getpid());
      REQUIRE(page != nullptr);
      REQUIRE(queue != nullptr);
      // As it looks when the stop hits in the midst of a post.
      stopped.child.kill(SIGSTOP);
      page->posting = page->posting + 1;
      int64_t place = queue->take();
      victim.die();
      here.messages.clear();
      REQUIRE(here.sendPattern(witness.to, 0, 100, 3) >= 0);
      REQUIRE(eventually({&here}, [&] {
        return here.port->wantsRetry() && queue->entry(place + 2).seq == place + 3;
      }));
      for (int i = 0; i < 1000; ++i) here.turn();
      CHECK(here.messages.empty());
      CHECK(queue->entry(place).seq == place);
      CHECK(queue->entry(place + 1).seq == place + 1);
      if (signal == SIGCONT) {
        queue->entry(place).givenUp = true;
        queue->fill(place);
        page->posting = page->posting + 1;
      }
      stopped.child.kill(signal);
      CHECK(eventually({&here}, [&] { return here.messages.size() == 1; }));
      CHECK(comesBack(here, witness.to, 5000));
      if (signal == SIGCONT) CHECK(comesBack(here, stopped.to, 5000));
      CHECK_FALSE(here.port->wantsRetry());
    }
  }
}
