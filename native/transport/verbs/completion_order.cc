// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/completion_order.h"

#include <algorithm>
#include <iterator>

namespace cinnabar::verbs {
namespace {

// No pointer begins with this mark, so no id of libfabric or of another user of the device does.
constexpr uint64_t kMark = 0x5a17'0000'0000'0000;
constexpr uint64_t kMarkBits = 0xffff'0000'0000'0000;

}  // namespace

bool CompletionOrder::isNumber(uint64_t id) { return (id & kMarkBits) == kMark; }

uint64_t CompletionOrder::begin(QueuePairHandle* pair, uint64_t id) {
  std::lock_guard lock(mutex_);
  uint64_t number = kMark | (++numbers_ & ~kMarkBits);
  pairOf_[number] = pair;
  requests_[pair].push_back({number, id});
  return number;
}

void CompletionOrder::refuse(uint64_t number) {
  std::lock_guard lock(mutex_);
  auto found = pairOf_.find(number);
  if (found == pairOf_.end()) return;
  auto& requests = requests_[found->second];
  requests.erase(find(requests, number));
  pairOf_.erase(found);
}

void CompletionOrder::add(CompletionQueue* queue, const WorkCompletion& completion) {
  std::lock_guard lock(mutex_);
  auto found = pairOf_.find(completion.id);
  if (found == pairOf_.end()) return;
  QueuePairHandle* pair = found->second;
  pairOf_.erase(found);
  auto& requests = requests_[pair];
  auto request = find(requests, completion.id);
  request->queue = queue;
  request->completion = completion;
  request->completion.id = request->id;
  if (!isOrdered_) {
    release(pair, *request);
    requests.erase(request);
    return;
  }
  while (!requests.empty() && requests.front().queue != nullptr) {
    release(pair, requests.front());
    requests.pop_front();
  }
}

bool CompletionOrder::take(CompletionQueue* queue, WorkCompletion* into) {
  if (readyCount_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(mutex_);
  auto found = ready_.find(queue);
  if (found == ready_.end()) return false;
  *into = found->second.front().completion;
  found->second.pop_front();
  if (found->second.empty()) ready_.erase(found);
  --readyCount_;
  return true;
}

void CompletionOrder::forget(QueuePairHandle* pair) {
  std::lock_guard lock(mutex_);
  auto found = requests_.find(pair);
  if (found == requests_.end()) return;
  for (const Request& request : found->second) pairOf_.erase(request.number);
  requests_.erase(found);
  for (auto entry = ready_.begin(); entry != ready_.end();) {
    readyCount_ -= std::erase_if(entry->second, [&](auto& each) { return each.pair == pair; });
    entry = entry->second.empty() ? ready_.erase(entry) : std::next(entry);
  }
}

std::deque<CompletionOrder::Request>::iterator CompletionOrder::find(std::deque<Request>& requests,
                                                                     uint64_t number) {
  return std::ranges::lower_bound(requests, number, {}, &Request::number);
}

void CompletionOrder::release(QueuePairHandle* pair, const Request& request) {
  ready_[request.queue].push_back({pair, request.completion});
  ++readyCount_;
}

}  // namespace cinnabar::verbs
