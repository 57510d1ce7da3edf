// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "engine/port.h"

namespace cinnabar::engine {
namespace {

constexpr size_t kBatch = 64;
// Completions taken in one call, so that a flood cannot keep the caller's loop from turning.
constexpr size_t kMostAtOnce = 512;
// The longest spin while bytes move: as long as a share of shm's copies.
constexpr auto kLongestSpin = std::chrono::microseconds(120);
// A yield that takes so long has given the processor to a thread that needs it for longer.
constexpr auto kLateYield = std::chrono::microseconds(100);
// A yield that takes longer than this has let another thread run.
constexpr auto kEmptyYield = std::chrono::nanoseconds(1500);
// How long spins look before they yield, if the last yield let no other thread run. An answer that
// comes at once comes sooner.
constexpr auto kPatience = std::chrono::microseconds(20);

// More bytes come while others are taken in. Bounded, so that the caller's loop turns.
constexpr int kLooksInSleep = 4;

uint32_t positive(int code) { return static_cast<uint32_t>(std::abs(code)); }

}  // namespace

uint32_t Port::progress(uint32_t spinUs) {
  reclaim();
  // Completions of the last look before a sleep need no further look.
  if (std::exchange(tookIn_, false) && completions_.ring.readable() > 0)
    return completions_.ring.readable();
  bool looks = transport_->beginTurn();
  poll(looks);
  if (!hasNews() && spinUs > 0 && !transport_->isMoving()) spin(spinUs, looks);
  if (hasNews()) yieldAt_ = {};
  transport_->endTurn();
  return completions_.ring.readable();
}

/// Whether the reader has something to do. The departure of the only message under way is not news:
/// its slot was not scarce, and the reader waits for the answer.
bool Port::hasNews() const {
  const Ring& ring = completions_.ring;
  return ring.hasNews() || ring.readable() > (sends_ == 0 ? 1 : 0);
}

/// Takes back the slots that the reader of the ring has passed.
void Port::reclaim() {
  // Both levels fall here only, so this sees each of their peaks.
  if (completions_.ring.readable() > 0) {
    slots_.noteLevel();
    completions_.noteLevel();
  }
  completions_.ring.reclaim([this](uint32_t slot) { slots_.post(slot); });
  if (addresses_.hasWorn() && completions_.unread() == 0) addresses_.onRingRead();
}

void Port::spin(uint32_t spinUs, bool looked) {
  using std::chrono::steady_clock;
  auto now = steady_clock::now();
  const auto pause = std::chrono::microseconds(spinUs);
  const auto latest = now + std::max<steady_clock::duration>(kLongestSpin, pause);
  auto end = now + pause;
  uint64_t moved = transport_->movedBytes();
  bool hasMoved = false;
  // The peer may need this very processor: a spin that does not yield delays the answer for the
  // rest of our time slice. If the last yield let another thread run, each look follows a yield.
  // Otherwise a yield costs more than many looks, so it is rare. While bytes move, no peer is
  // waited for.
  if (yieldsGiveWay_)
    yieldAt_ = now;
  else if (yieldAt_ == steady_clock::time_point{})
    yieldAt_ = now + kPatience;
  do {
    if (!hasMoved && now >= yieldAt_) {
      sched_yield();
      auto back = steady_clock::now();
      auto away = back - now;
      if (away > kLateYield) completions_.ring.countLost(away);
      yieldsGiveWay_ = away > kEmptyYield;
      yieldAt_ = yieldsGiveWay_ ? back : back + kPatience;
    }
    poll(false);
    // Before the clock is read, which takes as long as the look.
    if (hasNews()) return completions_.ring.countCaught();
    now = steady_clock::now();
    hasMoved = transport_->movedBytes() != moved;
    if (!hasMoved) continue;
    moved = transport_->movedBytes();
    end = std::min(now + pause, latest);
  } while (now < end);
  if (transport_->looks() && !looked) poll(true);
}

void Port::poll(bool looks) {
  completions_.flush();
  slots_.retry();
  retryWaiting();
  advance();
  reap();
  if (transport_->hasNews()) takeNews();
  if (!disconnected_.empty() && isDrained_) tellDisconnected();
  if (endsLingering_) endLingering();
  if (looks) look();
  transport_->endPoll();
}

void Port::look() {
  std::vector<transport::Peer*> gone;
  if (!transport_->look(gone)) return;
  reap();
  for (transport::Peer* peer : gone) peerGone(*peer);
}

int Port::arm() {
  if (asleep_) return 1;
  reclaim();
  if (completions_.ring.readable() > 0) return 0;
  int status = prepareSleep();
  asleep_ = status == 1;
  tookIn_ = !asleep_;
  return asleep_ ? 1 + static_cast<int>(completions_.ring.readable()) : status;
}

bool Port::sleepsOn() {
  if (!asleep_ || (!transport_->movesBytes() && !isPolled())) return false;
  transport_->beginTurn();
  for (int looks = 0; looks < kLooksInSleep; ++looks) {
    // Completions of the guard, or of this look.
    tookIn_ = completions_.unread() > 0;
    if (tookIn_) return false;
    int status = prepareSleep();
    if (status < 0) return false;
    if (status == 1 && completions_.unread() == 0) return true;
    // The reader is absent and cannot take in sent messages.
    if (status == 1) transport_->wake();
  }
  return false;
}

/// Polls, and makes sure that the descriptor reports what comes next. Returns 1 then; 0 if
/// something came or is to be done now. Sent messages are not news: the ring may report them later.
int Port::prepareSleep() {
  uint32_t before = completions_.ring.newsTail();
  auto busy = [&] {
    bool tellsSoon = !disconnected_.empty() && slots_.posted() > 0;
    return completions_.ring.newsTail() != before || transport_->isMoving() ||
           completions_.hasOverflow() || tellsSoon;
  };
  // In this order: take completions in, announce the sleep, ask full peers to ring back, look once
  // more.
  poll(transport_->looksBeforeSleep());
  if (busy()) return 0;
  int status = transport_->announceSleep();
  if (status != 0) return status == -FI_EAGAIN ? 0 : status;
  for (uint32_t index : addresses_.waiting) transport_->askForRoom(*addresses_[index].peer);
  // A descriptor that stays readable while the queue holds completions needs no second look.
  if (!holdsBack_ && traits().tellsReliably) return 1;
  poll(false);
  if (!busy()) return 1;
  transport_->wake();
  return 0;
}

void Port::wake() {
  if (!asleep_) return;
  asleep_ = false;
  transport_->wake();
}

/// Moves completions from the queue into the ring while there is room for one each. True if there
/// were any.
bool Port::reap() {
  fi_cq_data_entry entries[kBatch];
  size_t taken = 0;
  bool isAll = false;
  while (taken < kMostAtOnce && !completions_.hasOverflow()) {
    size_t room = std::min<size_t>(completions_.ring.room(), kBatch);
    if (room == 0) {
      // No completion can be taken, but the provider still moves peers' reads and writes.
      transport_->read(entries, 0);
      break;
    }
    ssize_t count = transport_->read(entries, room);
    if (count == -FI_EAVAIL) {
      reapError();
      ++taken;
      continue;
    }
    if (count <= 0) {
      isDrained_ = slots_.posted() > 0;
      holdsBack_ = !isDrained_;
      return taken > 0;
    }
    taken += static_cast<size_t>(count);
    isAll = static_cast<size_t>(count) < room;
    for (ssize_t i = 0; i < count; ++i) {
      // A peer's write made it: it uses no receive of ours, and the context is not ours.
      if (entries[i].flags & FI_REMOTE_WRITE) {
        onNotification(entries[i]);
        continue;
      }
      auto* context = static_cast<transport::Context*>(entries[i].op_context);
      if (context == nullptr) continue;
      switch (context->kind) {
        case transport::Context::Kind::receive:
          onReceived(static_cast<transport::Receive&>(*context), entries[i]);
          break;
        case transport::Context::Kind::operation:
          onSent(static_cast<Operation*>(context), 0, 0);
          break;
        case transport::Context::Kind::part:
          onPartDone(static_cast<Part*>(context), 0, 0);
          break;
      }
    }
    // Fewer than requested: the queue is empty, or an error comes next. Another read would make the
    // provider look again, which over tcp is a system call.
    if (isAll && !reapError()) break;
    isAll = false;
  }
  isDrained_ = false;
  if (!isAll || slots_.posted() == 0) holdsBack_ = true;
  return taken > 0;
}

/// Whether there was an error in the queue.
bool Port::reapError() {
  fi_cq_err_entry error{};
  if (transport_->readError(&error) != 1) return false;
  // A peer's write that did not arrive whole is reported to the peer.
  if (error.flags & FI_REMOTE_WRITE) return true;
  auto* context = static_cast<transport::Context*>(error.op_context);
  if (context == nullptr) return true;
  uint32_t status = error.err == 0 ? FI_EIO : positive(error.err);
  if (context->kind == transport::Context::Kind::operation) {
    onSent(static_cast<Operation*>(context), status, positive(error.prov_errno));
    return true;
  }
  if (context->kind == transport::Context::Kind::part) {
    onPartDone(static_cast<Part*>(context), status, positive(error.prov_errno));
    return true;
  }
  uint32_t slot = static_cast<transport::Receive*>(context)->slot;
  slots_.onReceived();
  Entry entry{Completion::message, status};
  entry.token = slots_.offsetOf(slot);
  entry.bytes = static_cast<uint32_t>(std::min<size_t>(error.len, slots_.slotBytes()));
  entry.providerError = positive(error.prov_errno);
  completions_.ring.push(entry, slot);
  return true;
}

/// A peer's write with data has arrived. Some providers also report writes without data
/// (FI_RMA_EVENT). They are ignored.
void Port::onNotification(const fi_cq_data_entry& completion) {
  if (!(completion.flags & FI_REMOTE_CQ_DATA)) return;
  Entry entry{Completion::notification};
  entry.token = static_cast<uint32_t>(completion.data);
  entry.high = static_cast<uint32_t>(completion.data >> 32);
  entry.bytes = static_cast<uint32_t>(std::min<size_t>(completion.len, UINT32_MAX));
  completions_.ring.push(entry);
}

void Port::onReceived(transport::Receive& receive, const fi_cq_data_entry& completion) {
  slots_.onReceived();
  Entry entry{Completion::message};
  entry.token = slots_.offsetOf(receive.slot);
  entry.bytes = static_cast<uint32_t>(completion.len);
  completions_.ring.push(entry, receive.slot);
  if (vouches_.isAbsent) onMessageInAbsence(slots_.at(entry.token), entry.bytes);
}

}  // namespace cinnabar::engine
