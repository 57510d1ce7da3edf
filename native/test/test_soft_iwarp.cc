// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "transport/verbs/soft_iwarp.h"

using namespace cinnabar::verbs;

namespace {

constexpr int kFine = 0;
constexpr int kWrongLength = 1;
constexpr int kFlushed = 5;

// Completions of the device's library, by queue, and the ids by which it knows requests.
std::deque<WorkCompletion> toTell[2];
std::vector<uint64_t> posted;
CompletionQueue queues[2];
QueuePairHandle pairs[2];
int doorbell = 0;

int tell(CompletionQueue* queue, int most, WorkCompletion* into) {
  auto& left = toTell[queue - queues];
  int count = 0;
  for (; count < most && !left.empty(); ++count) {
    into[count] = left.front();
    left.pop_front();
  }
  return count;
}

int ring(QueuePairHandle*, WorkRequest* request, WorkRequest**) {
  posted.push_back(request->id);
  return doorbell;
}

/// A device's table with one connection for each queue.
struct Mended {
  Mended() {
    for (auto& left : toTell) left.clear();
    posted.clear();
    doorbell = 0;
    operations.poll = tell;
    operations.postSend = ring;
    mendSoftIwarp(operations);
    mendSoftIwarp(operations);
  }
  ~Mended() {
    for (auto& pair : pairs) forgetSoftIwarp(&pair);
  }

  /// Returns what the device knows the request as.
  uint64_t post(uint64_t id, int pair = 0) {
    WorkRequest request{id, nullptr};
    operations.postSend(&pairs[pair], &request, nullptr);
    CHECK(request.id == id);
    return posted.back();
  }

  void complete(uint64_t number, int status = kFine, int queue = 0) {
    WorkCompletion made{};
    made.id = number;
    made.status = status;
    toTell[queue].push_back(made);
  }

  /// The ids of all reported completions, read `most` at a time.
  std::vector<uint64_t> ids(int queue = 0, int most = 1) {
    std::vector<uint64_t> all;
    WorkCompletion read[8];
    for (int count; (count = operations.poll(&queues[queue], most, read)) > 0;) {
      for (int i = 0; i < count; ++i) all.push_back(read[i].id);
    }
    return all;
  }

  DeviceOperations operations{};
};

using Ids = std::vector<uint64_t>;

}  // namespace

TEST_SUITE("soft-iWARP") {
  TEST_CASE("tells a read before the write that was posted behind it and has left") {
    for (int most : {1, 2, 8}) {
      Mended device;
      uint64_t read = device.post(10), write = device.post(20), last = device.post(30);
      device.complete(write);
      CHECK(device.ids(0, most).empty());
      device.complete(read);
      CHECK(device.ids(0, most) == Ids{10, 20});
      device.complete(last);
      CHECK(device.ids(0, most) == Ids{30});
    }
  }

  TEST_CASE("holds nothing up for another connection, nor a receive") {
    Mended device;
    device.post(10, 0);
    uint64_t behind = device.post(20, 0), other = device.post(30, 1);
    device.complete(behind);
    device.complete(0x7000);
    device.complete(other, kFine, 1);
    CHECK(device.ids(0) == Ids{0x7000});
    CHECK(device.ids(1) == Ids{30});
  }

  TEST_CASE("tells a request that is flushed twice once, also where its id is in use again") {
    Mended device;
    uint64_t first = device.post(10);
    device.complete(first, kFlushed);
    CHECK(device.ids() == Ids{10});
    uint64_t second = device.post(10);
    device.complete(first, kFlushed);
    CHECK(device.ids().empty());
    device.complete(second, kFlushed);
    device.complete(second, kFlushed);
    CHECK(device.ids() == Ids{10});
  }

  TEST_CASE("tells the error, and nothing behind a read that the device has forgotten") {
    Mended device;
    uint64_t wrong = device.post(10);
    device.post(20);
    uint64_t flushed = device.post(30);
    device.complete(wrong, kWrongLength);
    device.complete(flushed, kFlushed);
    CHECK(device.ids() == Ids{10});
    // The poster ends the rest as it closes the connection, and another may get its place.
    forgetSoftIwarp(&pairs[0]);
    uint64_t next = device.post(40);
    device.complete(flushed, kFlushed);
    device.complete(next);
    CHECK(device.ids() == Ids{40});
  }

  TEST_CASE("forgets what was ready to be told") {
    Mended device;
    uint64_t read = device.post(10), write = device.post(20);
    device.complete(write);
    device.complete(read);
    WorkCompletion one;
    CHECK(device.operations.poll(&queues[0], 1, &one) == 1);
    forgetSoftIwarp(&pairs[0]);
    CHECK(device.ids().empty());
  }

  TEST_CASE("takes a request for posted of which the kernel would not hear, and no other") {
    Mended device;
    for (auto [said, heard] : {std::pair(0, 0), {-1, 0}, {-12, -12}, {-22, -22}}) {
      doorbell = said;
      WorkRequest request{10, nullptr};
      CHECK(device.operations.postSend(&pairs[0], &request, nullptr) == heard);
    }
  }
}
