// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "transport/verbs/rdma_abi.h"

namespace cinnabar::verbs {

/// Reports each request to send, write or read once, in the order in which a connection's requests
/// were posted, whatever the device's order. Reports no request of a closed connection.
///
/// A request has a number of its own while the device has it. The poster's id is a pointer, and
/// another request soon has the same pointer.
class CompletionOrder {
 public:
  /// The poster is about to post a request that it knows as `id`. Returns the request's id for the
  /// device.
  uint64_t begin(QueuePairHandle* pair, uint64_t id);
  /// The request could not be posted.
  void refuse(uint64_t number);
  /// Whether the device's completion is for a request that got a number here.
  static bool isNumber(uint64_t id);
  /// Takes the device's completion of a request in `queue`. Ignores a second one, and one after the
  /// connection's end.
  void add(CompletionQueue* queue, const WorkCompletion& completion);
  /// The next completion to report: its request is the first of its connection's.
  bool take(CompletionQueue* queue, WorkCompletion* into);
  /// The connection is closed: its remaining completions are dropped.
  void forget(QueuePairHandle* pair);
  /// From now on reports completions as soon as they come; the end of connections is not visible
  /// then.
  void giveUpOrder() { isOrdered_ = false; }

 private:
  struct Request {
    uint64_t number;
    uint64_t id;
    CompletionQueue* queue = nullptr;  // once the device has reported it
    WorkCompletion completion{};
  };
  struct Ready {
    QueuePairHandle* pair;
    WorkCompletion completion;
  };

  std::deque<Request>::iterator find(std::deque<Request>& requests, uint64_t number);
  void release(QueuePairHandle* pair, const Request& request);

  std::mutex mutex_;
  uint64_t numbers_ = 0;
  std::unordered_map<uint64_t, QueuePairHandle*> pairOf_;
  std::unordered_map<QueuePairHandle*, std::deque<Request>> requests_;  // rising numbers
  std::unordered_map<CompletionQueue*, std::deque<Ready>> ready_;
  std::atomic<size_t> readyCount_ = 0;
  bool isOrdered_ = true;
};

}  // namespace cinnabar::verbs
