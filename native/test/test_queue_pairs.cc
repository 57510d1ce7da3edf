// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <poll.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <sstream>

#include "test/harness.h"
#include "test/queue_pair_client.h"
#include "transport/verbs/queue_pairs.h"

using namespace cinnabar;
using namespace cinnabar::test;
using verbs::QueuePairEvent;
using verbs::QueuePairs;
using verbs::Work;

namespace {

using Kind = QueuePairEvent::Kind;
using State = QueuePairClient::State;

/// tcp has connected endpoints with transfers too, and is everywhere. In the guest also its devices,
/// whose cables have a second end (test/matrix/verbs.ts).
std::vector<QueuePairPlace> queuePairPlaces() {
  std::vector<QueuePairPlace> places;
  const char* lent = getenv("CINNABAR_TEST_VERBS");
  std::istringstream words(lent == nullptr ? "" : lent);
  for (std::string word; words >> word;) {
    std::string host = word.substr(word.find('=') + 1);
    places.push_back({"verbs", host, host.substr(0, host.rfind('.')) + ".2"});
  }
  if (places.empty()) places.push_back({"tcp", "127.0.0.1", "127.0.0.1"});
  return places;
}

/// A listener and a client, whose turns alternate.
struct Pairs {
  static constexpr size_t kBytes = 1 << 16;

  explicit Pairs(const QueuePairPlace& at, uint32_t mostPairs = 8) : place(at) {
    auto opened = QueuePairs::listen(*fabric::library(), place.host, 0, mostPairs, place.provider);
    if (!opened) MESSAGE(opened.failure().op << ": " << opened.failure().message);
    REQUIRE(opened);
    pairs = std::move(*opened);
    auto made = QueuePairClient::open(place, pairs->address().port);
    if (!made) MESSAGE(made.failure().op << ": " << made.failure().message);
    REQUIRE(made);
    client = std::move(*made);
    bytes.resize(kBytes);
    memory = static_cast<uint32_t>(pairs->registerMemory(bytes.data(), bytes.size()));
    REQUIRE(memory > 0);
  }

  void turn() {
    take(16);
    client->turn();
  }
  size_t take(size_t most) {
    std::array<QueuePairEvent, 64> taken;
    size_t count = pairs->take(taken.data(), std::min(most, taken.size()));
    events.insert(events.end(), taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  template <typename F>
  bool until(F&& condition) {
    auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      turn();
    }
    return true;
  }

  std::vector<QueuePairEvent> of(Kind kind, uint32_t pair = 0) const {
    std::vector<QueuePairEvent> found;
    for (const auto& event : events) {
      if (event.kind == kind && (pair == 0 || event.pair == pair)) found.push_back(event);
    }
    return found;
  }
  std::vector<uint32_t> tokens(uint32_t pair) const {
    std::vector<uint32_t> all;
    for (const auto& event : of(Kind::completed, pair)) all.push_back(event.token);
    return all;
  }

  /// The pair that a new request of the client's asks for.
  uint32_t request(int* number) {
    size_t before = of(Kind::requested).size();
    *number = client->connect();
    REQUIRE(*number > 0);
    REQUIRE(until([&] { return of(Kind::requested).size() > before; }));
    return of(Kind::requested).back().pair;
  }
  /// A connected pair.
  uint32_t connect(int* number, uint32_t sends = 8, uint32_t receives = 8) {
    uint32_t pair = request(number);
    REQUIRE(pairs->open(pair, sends, receives) == 0);
    REQUIRE(pairs->accept(pair) == 0);
    REQUIRE(until([&] { return client->connection(*number).state == State::connected; }));
    return pair;
  }
  int post(uint32_t pair, Work work, uint64_t offset, uint64_t length, uint32_t token,
           uint64_t address = 0, uint64_t key = 0) {
    return pairs->post(pair, {work, memory, offset, length, token, address, key});
  }
  /// Messages still go through a pair, in both directions.
  void talk(uint32_t pair, int number) {
    REQUIRE(post(pair, Work::receive, 0, 64, 71) == 0);
    REQUIRE(client->receive(number, 64) == 0);
    REQUIRE(client->send(number, {1, 2, 3}) == 0);
    size_t before = client->connection(number).messages.size();
    REQUIRE(post(pair, Work::send, 0, 3, 72) == 0);
    REQUIRE(until([&] {
      auto done = tokens(pair);
      return std::count(done.begin(), done.end(), 71) > 0 &&
             std::count(done.begin(), done.end(), 72) > 0 &&
             client->connection(number).messages.size() > before;
    }));
    CHECK(of(Kind::ended, pair).empty());
  }
  bool isReadable() const {
    pollfd one{pairs->fd(), POLLIN, 0};
    return poll(&one, 1, 0) == 1;
  }

  QueuePairPlace place;
  std::vector<uint8_t> bytes;  // outlives the registration
  std::unique_ptr<QueuePairs> pairs;
  std::unique_ptr<QueuePairClient> client;
  uint32_t memory = 0;
  std::vector<QueuePairEvent> events;
};

template <typename F>
void onEachPlace(F&& test) {
  REQUIRE(haveLibfabric());
  for (const QueuePairPlace& place : queuePairPlaces()) {
    INFO(place.provider << " at " << place.host);
    test(place);
  }
}

}  // namespace

TEST_SUITE("queue pairs") {
  TEST_CASE("messages go both ways through a pair, whole") {
    onEachPlace([](const QueuePairPlace& place) {
      Pairs all(place);
      int number = 0;
      uint32_t pair = all.request(&number);
      REQUIRE(all.pairs->open(pair, 4, 4) == 0);
      CHECK(all.post(pair, Work::receive, 0, 4096, 5) == 0);
      REQUIRE(all.pairs->accept(pair) == 0);
      REQUIRE(all.until([&] { return all.client->connection(number).state == State::connected; }));
      std::vector<uint8_t> sent(3000);
      std::iota(sent.begin(), sent.end(), uint8_t{3});
      REQUIRE(all.client->receive(number, 4096) == 0);
      REQUIRE(all.client->send(number, sent) == 0);
      REQUIRE(all.until([&] { return !all.of(Kind::completed).empty(); }));
      CHECK(all.of(Kind::completed)[0].token == 5);
      CHECK(all.of(Kind::completed)[0].bytes == sent.size());
      CHECK(std::equal(sent.begin(), sent.end(), all.bytes.begin()));
      CHECK(all.post(pair, Work::send, 0, 2000, 6) == 0);
      auto& told = all.client->connection(number);
      REQUIRE(all.until([&] {
        return told.messages.size() == 1 && all.of(Kind::completed).size() == 2;
      }));
      sent.resize(2000);
      CHECK(told.messages[0] == sent);
    });
  }
}
