// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "verbs/soft_iwarp.h"

using namespace cinnabar::verbs;

namespace {

constexpr int kFine = 0;
constexpr int kFlushed = 5;
constexpr int kWrite = 1;
constexpr int kRead = 2;

// What the device's library has to tell, by queue.
std::deque<WorkCompletion> toTell[2];
CompletionQueue queues[2];
int bell = 0;

int tell(CompletionQueue* queue, int most, WorkCompletion* into) {
  auto& left = toTell[queue - queues];
  int count = 0;
  for (; count < most && !left.empty(); ++count) {
    into[count] = left.front();
    left.pop_front();
  }
  return count;
}

int ring(QueuePairHandle*, void*, void**) { return bell; }

WorkCompletion completion(uint64_t id, int status, int operation, uint32_t pair = 1) {
  WorkCompletion made{};
  made.id = id;
  made.status = status;
  made.operation = operation;
  made.queuePair = pair;
  return made;
}

struct Mended {
  Mended() {
    for (auto& left : toTell) left.clear();
    operations.poll = tell;
    operations.postSend = ring;
    mendSoftIwarp(operations);
    mendSoftIwarp(operations);
  }

  /// The ids of all that is told, read `most` at a time.
  std::vector<uint64_t> ids(CompletionQueue* queue, int most = 1) {
    std::vector<uint64_t> all;
    WorkCompletion read[8];
    for (int count; (count = operations.poll(queue, most, read)) > 0;) {
      for (int i = 0; i < count; ++i) all.push_back(read[i].id);
    }
    return all;
  }

  DeviceOperations operations{};
};

}  // namespace

TEST_SUITE("soft-iWARP") {
  TEST_CASE("tells a read that is flushed twice once") {
    for (int most : {1, 2, 8}) {
      Mended device;
      toTell[0] = {completion(1, kFine, kWrite),    completion(2, kFlushed, kRead),
                   completion(3, kFlushed, kRead),  completion(3, kFlushed, kRead),
                   completion(4, kFlushed, kWrite), completion(5, kFine, kRead)};
      CHECK(device.ids(queues, most) == std::vector<uint64_t>{1, 2, 3, 4, 5});
    }
  }

  TEST_CASE("drops nothing else") {
    Mended device;
    // Of another connection; told a first time; and fine.
    toTell[0] = {completion(1, kFlushed, kRead, 1), completion(1, kFlushed, kRead, 2),
                 completion(2, kFlushed, kWrite),   completion(2, kFlushed, kWrite),
                 completion(3, kFine, kRead),       completion(3, kFine, kRead)};
    CHECK(device.ids(queues) == std::vector<uint64_t>{1, 1, 2, 2, 3, 3});
  }

  TEST_CASE("keeps what was read too early for its own queue") {
    Mended device;
    toTell[0] = {completion(1, kFlushed, kRead), completion(2, kFine, kWrite)};
    toTell[1] = {completion(3, kFine, kWrite)};
    WorkCompletion read;
    CHECK(device.operations.poll(queues, 1, &read) == 1);
    CHECK(device.ids(queues + 1) == std::vector<uint64_t>{3});
    CHECK(device.ids(queues) == std::vector<uint64_t>{2});
  }

  TEST_CASE("takes a request for posted of which the kernel would not hear, and no other") {
    Mended device;
    for (auto [said, heard] : {std::pair(0, 0), {-1, 0}, {-12, -12}, {-22, -22}}) {
      bell = said;
      CHECK(device.operations.postSend(nullptr, nullptr, nullptr) == heard);
    }
  }
}
