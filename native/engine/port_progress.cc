// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "engine/port.h"

namespace cinnabar::engine {
namespace {

constexpr size_t kBatch = 64;
// Completions taken in one call, so that a flood cannot keep the caller's loop from turning.
constexpr size_t kMostAtOnce = 512;
// The doorbell costs a system call, so it is looked at once in so many calls, and whenever spinning
// ended with nothing.
constexpr uint32_t kDoorbellEvery = 32;
// A yield that takes so long has given the processor to somebody who needs it for more than a
// moment.
constexpr auto kLateYield = std::chrono::microseconds(100);

uint32_t positive(int code) { return static_cast<uint32_t>(std::abs(code)); }

}  // namespace

uint32_t Port::progress(uint32_t spinUs) {
  reclaim();
  bool doorbell = neighbours_ &&
                  (++sinceDoorbell_ >= kDoorbellEvery || neighbours_->isMeeting() || isStopped());
  poll(doorbell);
  if (ring_.readable() == 0 && spinUs > 0 && copies_.empty()) spin(spinUs, doorbell);
  copyNs_ = 0;
  return ring_.readable();
}

/// Takes back what the reader of the ring is through with.
void Port::reclaim() {
  // Both levels fall here only, so this sees every height that they reach.
  if (ring_.readable() > 0) noteLevels();
  ring_.reclaim([this](uint32_t slot) { postReceive(slot); });
  if (usedAddresses_.empty() || ring_.readable() > 0 || !overflow_.empty()) return;
  freeAddresses_.insert(freeAddresses_.end(), usedAddresses_.begin(), usedAddresses_.end());
  usedAddresses_.clear();
}

void Port::noteLevels() {
  mostReceives_ = std::max(mostReceives_, usedReceives());
  mostCompletions_ = std::max(mostCompletions_, unreadCompletions());
}

void Port::spin(uint32_t spinUs, bool rang) {
  using std::chrono::steady_clock;
  auto now = steady_clock::now();
  auto end = now + std::chrono::microseconds(spinUs);
  do {
    // Whom we wait for may need this very processor: a spin that does not give way holds up the
    // answer for the rest of our time slice. Costs a third of a microsecond when nobody waits.
    sched_yield();
    auto away = steady_clock::now() - now;
    if (away > kLateYield) ring_.countLost(away);
    poll(false);
    now = steady_clock::now();
  } while (ring_.readable() == 0 && now < end);
  if (ring_.readable() > 0) return ring_.countCaught();
  if (neighbours_ && !rang) poll(true);
}

void Port::poll(bool doorbell) {
  flushOverflow();
  retryReceives();
  retryWaiting(false);
  copyPieces();
  reap();
  if (!neighbours_) return;
  if (doorbell) pollDoorbell();
  // Behind a place that nobody fills there may be anything.
  if (mappings_->hasRetired() && queueDrained_ && !isStopped()) mappings_->onDrained();
  if (bell_->takeStarved()) neighbours_->ringAll();
}

void Port::pollDoorbell() {
  sinceDoorbell_ = 0;
  std::vector<Neighbour*> gone;
  neighbours_->poll(gone);
  bool goesOn = stopped_ && stopped_->passOver(*neighbours_);
  if (gone.empty() && !goesOn) return;
  // What a peer sent before it went is already here, and comes first.
  reap();
  for (Neighbour* neighbour : gone) peerGone(neighbour);
}

int Port::arm() {
  if (asleep_) return 1;
  reclaim();
  if (ring_.readable() > 0) return 0;
  int status = prepareSleep();
  asleep_ = status == 1;
  return status;
}

/// Polls, and makes sure that the descriptor tells of what comes next: 1. 0 if something came, or
/// is to be done now.
int Port::prepareSleep() {
  uint32_t tail = ring_.tail();
  auto busy = [&] { return ring_.tail() != tail || !copies_.empty() || !overflow_.empty(); };
  if (neighbours_) {
    // In this order: swallow old rings, announce the sleep, ask full peers to ring back, look once
    // more. See bell.h. A ring that comes after the announcement must stay in the eventfd.
    poll(true);
    if (busy()) return 0;
    bell_->fallAsleep();
    for (uint32_t index : waiting_) {
      Neighbour* neighbour = addresses_[index].neighbour;
      if (neighbour->isReady()) neighbour->bell->setStarved();
    }
    poll(false);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (bell_->takeStarved()) neighbours_->ringAll();
    if (!busy()) return 1;
    bell_->wake();
    return 0;
  }
  poll(false);
  if (busy()) return 0;
  int status = endpoint_->tryWait();
  if (status == -FI_EAGAIN) return 0;
  if (status != 0) return status;
  reap();
  return busy() ? 0 : 1;
}

void Port::wake() {
  if (!asleep_) return;
  asleep_ = false;
  if (bell_) bell_->wake();
  sinceDoorbell_ = kDoorbellEvery;  // it may have been a socket
}

void Port::deliver(const Entry& entry) {
  if (overflow_.empty() && ring_.room() > 0) {
    ring_.push(entry);
  } else {
    overflow_.push_back(entry);
  }
}

void Port::flushOverflow() {
  while (!overflow_.empty() && ring_.room() > 0) {
    ring_.push(overflow_.front());
    overflow_.pop_front();
  }
}

void Port::postReceive(uint32_t slot) {
  uint8_t* bytes = slab_ + uint64_t{slotBytes_} * (sendSlots_ + slot);
  void* descriptor = slabRegion_ ? slabRegion_->descriptor() : nullptr;
  ssize_t status =
      fi_recv(endpoint_->ep(), bytes, slotBytes_, descriptor, FI_ADDR_UNSPEC, &receives_[slot]);
  if (status == 0) {
    ++postedReceives_;
  } else {
    unposted_.push_back(slot);
  }
}

void Port::retryReceives() {
  if (unposted_.empty()) return;
  std::vector<uint32_t> slots;
  slots.swap(unposted_);
  for (uint32_t slot : slots) postReceive(slot);
}

/// Moves completions from the queue into the ring while there is room for one each. True if there
/// were any.
bool Port::reap() {
  fi_cq_data_entry entries[kBatch];
  size_t taken = 0;
  while (taken < kMostAtOnce && overflow_.empty()) {
    size_t room = std::min<size_t>(ring_.room(), kBatch);
    if (room == 0) {
      // Nothing can be taken, but the provider still moves what peers read and write.
      fi_cq_read(endpoint_->cq(), entries, 0);
      break;
    }
    ssize_t count = fi_cq_read(endpoint_->cq(), entries, room);
    if (count == -FI_EAVAIL) {
      reapError();
      ++taken;
      continue;
    }
    if (count <= 0) {
      queueDrained_ = postedReceives_ > 0;
      return taken > 0;
    }
    taken += static_cast<size_t>(count);
    for (ssize_t i = 0; i < count; ++i) {
      // Of a peer's making: no receive of ours is used up, and the context is not ours.
      if (entries[i].flags & FI_REMOTE_WRITE) {
        onNotice(entries[i]);
        continue;
      }
      auto* context = static_cast<Context*>(entries[i].op_context);
      if (context == nullptr) continue;
      switch (context->kind) {
        case Context::Kind::receive:
          onReceived(static_cast<Receive&>(*context), entries[i]);
          break;
        case Context::Kind::operation:
          onSent(static_cast<Operation*>(context), 0, 0);
          break;
        case Context::Kind::part:
          onPartDone(static_cast<Part*>(context), 0, 0);
          break;
      }
    }
  }
  queueDrained_ = false;
  return taken > 0;
}

void Port::reapError() {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(endpoint_->cq(), &error, 0) != 1) return;
  // A peer's write that did not arrive whole is for the peer to hear of.
  if (error.flags & FI_REMOTE_WRITE) return;
  auto* context = static_cast<Context*>(error.op_context);
  if (context == nullptr) return;
  uint32_t status = error.err == 0 ? FI_EIO : positive(error.err);
  if (context->kind == Context::Kind::operation) {
    onSent(static_cast<Operation*>(context), status, positive(error.prov_errno));
    return;
  }
  if (context->kind == Context::Kind::part) {
    onPartDone(static_cast<Part*>(context), status, positive(error.prov_errno));
    return;
  }
  uint32_t slot = static_cast<Receive*>(context)->slot;
  --postedReceives_;
  Entry entry{Completion::message, status};
  entry.token = slotBytes_ * (sendSlots_ + slot);
  entry.bytes = static_cast<uint32_t>(std::min<size_t>(error.len, slotBytes_));
  entry.providerError = positive(error.prov_errno);
  ring_.push(entry, slot);
}

/// A peer's write with data has arrived. Where writes without data are told of too (FI_RMA_EVENT),
/// they are nothing to us.
void Port::onNotice(const fi_cq_data_entry& completion) {
  if (!(completion.flags & FI_REMOTE_CQ_DATA)) return;
  Entry entry{Completion::notice};
  entry.token = static_cast<uint32_t>(completion.data);
  entry.high = static_cast<uint32_t>(completion.data >> 32);
  entry.bytes = static_cast<uint32_t>(std::min<size_t>(completion.len, UINT32_MAX));
  ring_.push(entry);
}

void Port::onReceived(Receive& receive, const fi_cq_data_entry& completion) {
  --postedReceives_;
  Entry entry{Completion::message};
  entry.token = slotBytes_ * (sendSlots_ + receive.slot);
  entry.bytes = static_cast<uint32_t>(completion.len);
  if (neighbours_ && (completion.flags & FI_REMOTE_CQ_DATA)) {
    uint32_t sender = static_cast<uint32_t>(completion.data >> 32);
    size_t whole = 0;
    auto outcome = Reassembly::Outcome::garbage;
    if (neighbours_->findById(sender) != nullptr) {
      outcome = reassembly_.add(completion.data, slab_ + entry.token, completion.len, &whole);
    }
    if (outcome == Reassembly::Outcome::more || outcome == Reassembly::Outcome::garbage) {
      return postReceive(receive.slot);
    }
    entry.bytes = static_cast<uint32_t>(std::min<size_t>(whole, slotBytes_));
    if (outcome == Reassembly::Outcome::tooLarge) entry.status = FI_ETRUNC;
  }
  ring_.push(entry, receive.slot);
  if (absent_) onMessageInAbsence(slab_ + entry.token, entry.bytes);
}

}  // namespace cinnabar::engine
