// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "engine/port.h"

namespace cinnabar::engine {
namespace {

// Work that a provider finishes only while it is polled tells of it by no descriptor, nor does a
// peer that takes messages again.
constexpr uint64_t kGlanceNs = 10'000'000;

}  // namespace

int Port::vouch(uint32_t index, Vouch vouch) {
  Address* address = find(index);
  if (address == nullptr) return -FI_EINVAL;
  if (vouch.message.size() > traits().sayBytes || vouch.everyNs == 0) return -FI_EINVAL;
  unvouch(index);
  if (!vouched_.emplace(vouch.mark, index).second) return -FI_EADDRINUSE;
  address->vouch = std::make_unique<Vouch>(std::move(vouch));
  return 0;
}

void Port::unvouch(uint32_t index) {
  Address* address = find(index);
  if (address == nullptr || !address->vouch) return;
  vouched_.erase(address->vouch->mark);
  address->vouch.reset();
}

void Port::beginAbsence() {
  absent_ = true;
  for (auto [mark, index] : vouched_) addresses_[index].vouch->asked = false;
}

void Port::endAbsence() {
  absent_ = false;
  if (bell_) bell_->wake();
}

StandIn Port::standIn(uint64_t nowNs, uint64_t absentNs) {
  copyNs_ = 0;
  // Before the descriptor is asked: what is said may have to wait for it.
  answerAsking(nowNs, absentNs);
  int status = prepareSleep();
  bool full = ring_.room() == 0 || !overflow_.empty() || postedReceives_ == 0;
  if (full) {
    // Who asks now cannot be heard any more.
    for (auto [mark, index] : vouched_) addresses_[index].vouch->asked = true;
  }
  StandIn outlook;
  if (wantsRetry() || sends_ + transfers_ > 0) outlook.untilNs = nowNs + kGlanceNs;
  for (auto [mark, index] : vouched_) {
    const Vouch& vouch = *addresses_[index].vouch;
    if (vouch.asked && absentNs < vouch.forNs)
      outlook.untilNs = std::min(outlook.untilNs, vouch.dueNs);
  }
  if (full || status < 0) {
    outlook.next = StandIn::Next::pause;
  } else if (status == 1) {
    outlook.next = StandIn::Next::sleep;
  }
  return outlook;
}

/// A message is for the reader. Here it only tells that its sender is waiting for a word.
void Port::onMessageInAbsence(const uint8_t* bytes, size_t length) {
  if (length < kMarkAt + kMarkBytes) return;
  uint64_t mark;
  static_assert(sizeof mark == kMarkBytes);
  std::memcpy(&mark, bytes + kMarkAt, sizeof mark);
  auto found = vouched_.find(mark);
  if (found == vouched_.end()) return;
  Vouch& vouch = *addresses_[found->second].vouch;
  if (vouch.asked) return;
  vouch.asked = true;
  vouch.dueNs = 0;
}

void Port::answerAsking(uint64_t nowNs, uint64_t absentNs) {
  for (auto [mark, index] : vouched_) {
    Vouch& vouch = *addresses_[index].vouch;
    if (!vouch.asked || vouch.dueNs > nowNs || absentNs >= vouch.forNs) continue;
    vouch.dueNs = nowNs + vouch.everyNs;
    say(addresses_[index]);
  }
}

/// Sends what is vouched, past whatever waits for the same address: to the peer it makes no
/// difference. What the provider will not take now is said the next time.
void Port::say(Address& address) {
  const std::vector<uint8_t>& message = address.vouch->message;
  Neighbour* neighbour = address.neighbour;
  if (endpoint_->isResting(address.fabric)) return;
  if (neighbour == nullptr) {
    onPosted(address, fi_inject(endpoint_->ep(), message.data(), message.size(), address.fabric));
    return;
  }
  if (!neighbour->isReady() || message.size() > neighbour->slotBytes) return;
  fi_addr_t to = neighbour->mapping->address;
  bell_->beginPost();
  if (fi_inject(endpoint_->ep(), message.data(), message.size(), to) == 0)
    neighbour->mapping->answered = true;
  bell_->endPost();
  neighbour->bell->ring();
}

}  // namespace cinnabar::engine
