// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "engine/port.h"

namespace cinnabar::engine {
namespace {

// How often to look. No descriptor reports work that a provider finishes only while it is polled,
// nor a peer that accepts messages again.
constexpr uint64_t kGlanceNs = 10'000'000;

/// Seals a vouch's next message. Returns false if no message is left.
bool sealNext(Vouch& vouch, uint8_t (&message)[kSealedBytes]) {
  if (vouch.sealed >= kMostSealed) return false;
  std::memcpy(message, vouch.message.data(), kSealedBytes);
  ++vouch.sealed;
  for (size_t i = 0; i < 8; ++i)
    message[kSealedCountAt + i] = static_cast<uint8_t>(vouch.sealed >> 8 * i);
  uint8_t* text = message + kSealedClearBytes;
  size_t length = kSealedBytes - kSealedClearBytes - crypto::kTagBytes;
  return vouch.seal->seal(vouch.sealed, {message, kSealedClearBytes}, text, text, length,
                          text + length);
}

}  // namespace

int Port::vouch(uint32_t index, Vouch vouch) {
  Address* address = addresses_.find(index);
  if (address == nullptr) return -FI_EINVAL;
  if (vouch.message.size() > traits().sayBytes || vouch.everyNs == 0) return -FI_EINVAL;
  if (vouch.seal && vouch.message.size() != kSealedBytes) return -FI_EINVAL;
  unvouch(index);
  if (!vouches_.byMark.emplace(vouch.mark, index).second) return -FI_EADDRINUSE;
  address->vouch = std::make_unique<Vouch>(std::move(vouch));
  return 0;
}

void Port::unvouch(uint32_t index) {
  Address* address = addresses_.find(index);
  if (address == nullptr || !address->vouch) return;
  vouches_.byMark.erase(address->vouch->mark);
  address->vouch.reset();
}

void Port::beginAbsence() {
  vouches_.isAbsent = true;
  for (auto [mark, index] : vouches_.byMark) addresses_[index].vouch->asked = false;
}

void Port::endAbsence() {
  vouches_.isAbsent = false;
  transport_->wake();
}

StandIn Port::standIn(uint64_t nowNs, uint64_t absentNs) {
  transport_->endTurn();
  // Before the descriptor is asked: an answer may have to wait for it.
  answerAsking(nowNs, absentNs);
  int status = prepareSleep();
  bool full = completions_.ring.room() == 0 || completions_.hasOverflow() || slots_.posted() == 0;
  if (full) {
    // No receive is left for a question, so every peer counts as having asked.
    for (auto [mark, index] : vouches_.byMark) addresses_[index].vouch->asked = true;
  }
  StandIn outlook;
  if (wantsRetry() || sends_ + transfers_ > 0) outlook.untilNs = nowNs + kGlanceNs;
  for (auto [mark, index] : vouches_.byMark) {
    const Vouch& vouch = *addresses_[index].vouch;
    if (vouch.asked && absentNs < vouch.forNs)
      outlook.untilNs = std::min(outlook.untilNs, vouch.dueNs);
  }
  if (full || status < 0 || isPolled()) {
    outlook.next = StandIn::Next::pause;
  } else if (status == 1) {
    outlook.next = StandIn::Next::sleep;
  }
  return outlook;
}

/// A message is for the reader. In the reader's absence it only shows that its sender waits for an
/// answer.
void Port::onMessageInAbsence(const uint8_t* bytes, size_t length) {
  if (length < kMarkAt + kMarkBytes) return;
  uint64_t mark;
  static_assert(sizeof mark == kMarkBytes);
  std::memcpy(&mark, bytes + kMarkAt, sizeof mark);
  auto found = vouches_.byMark.find(mark);
  if (found == vouches_.byMark.end()) return;
  Vouch& vouch = *addresses_[found->second].vouch;
  if (vouch.asked) return;
  vouch.asked = true;
  vouch.dueNs = 0;
}

void Port::answerAsking(uint64_t nowNs, uint64_t absentNs) {
  for (auto [mark, index] : vouches_.byMark) {
    Vouch& vouch = *addresses_[index].vouch;
    if (!vouch.asked || vouch.dueNs > nowNs || absentNs >= vouch.forNs) continue;
    vouch.dueNs = nowNs + vouch.everyNs;
    // Past the operations that wait for the same address: the peer sees no difference. A message
    // that the provider does not accept now is sent the next time.
    const uint8_t* message = vouch.message.data();
    uint8_t sealed[kSealedBytes];
    if (vouch.seal) {
      if (!sealNext(vouch, sealed)) continue;
      message = sealed;
    }
    transport_->say(*addresses_[index].peer, message, vouch.message.size());
  }
}

}  // namespace cinnabar::engine
