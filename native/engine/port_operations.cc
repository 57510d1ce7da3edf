// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_errno.h>

#include <algorithm>

#include "base/clock.h"
#include "engine/port.h"

namespace cinnabar::engine {

using transport::kDone;
using transport::kMostExtents;
using transport::kTaken;
using transport::kTakenNow;

namespace {

// An unreachable peer answers EAGAIN for ever, and each try may be a connect(2). So the pauses
// between tries grow.
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLastPauseNs = 5'000'000;

constexpr size_t kMostOperations = 1 << 18;

// Tokens of messages without a slot begin here: no slab is so long.
constexpr uint32_t kFirstParked = 1u << 31;
// For one address. A further message stays in its slot and holds back its sender.
constexpr uint32_t kMostParked = 16;

}  // namespace

int Port::send(uint32_t index, uint64_t slotOffset, uint64_t bytes) {
  if (addresses_.find(index) == nullptr) return -FI_EINVAL;
  if (int status = slots_.takeSend(slotOffset, bytes); status != 0) return status;
  Operation* operation = operations_.take();
  operation->type = Operation::Type::send;
  operation->address = index;
  operation->token = static_cast<uint32_t>(slotOffset);
  operation->offset = slotOffset;
  operation->bytes = bytes;
  ++sends_;
  return submit(operation);
}

int Port::transfer(Operation::Type type, uint32_t index, const Extent* extents, size_t count,
                   uint32_t token, const uint64_t* notification) {
  if (addresses_.find(index) == nullptr || count == 0 || count > kMostExtents) return -FI_EINVAL;
  if (notification != nullptr) {
    if (type != Operation::Type::write || count > traits().extents) return -FI_EINVAL;
    if (traits().immediateBytes == 0) return -FI_EOPNOTSUPP;
  }
  if (operations_.used() >= kMostOperations) return -FI_ENOBUFS;
  Operation* operation = operations_.take();
  operation->extents.assign(extents, count);
  if (int status = measure(*operation); status != 0) {
    operations_.give(operation);
    return status;
  }
  if (traits().tornBytes > 0) {
    operation->extents.cutAtPages(traits().tornBytes, [&](const Extent& extent) {
      if (type == Operation::Type::read) return extent.remote;
      return reinterpret_cast<uint64_t>(regions_.find(extent.region)->bytes()) + extent.offset;
    });
  }
  for (const Extent& extent : operation->extents) {
    int status = transport_->prepareMemory(*regions_.find(extent.region));
    if (status == 0) continue;
    operations_.give(operation);
    return status;
  }
  operation->type = type;
  operation->address = index;
  operation->token = token;
  operation->notifies = notification != nullptr;
  operation->notification = notification != nullptr ? *notification : 0;
  for (const Extent& extent : operation->extents) ++regions_.find(extent.region)->users;
  ++transfers_;
  int status = submit(operation);
  return status < 0 ? status : 0;
}

/// Whether every extent lies in its region; adds up their bytes.
int Port::measure(Operation& operation) const {
  for (const Extent& extent : operation.extents) {
    const fabric::Region* region = regions_.find(extent.region);
    if (region == nullptr || region->isWithdrawn() || extent.bytes == 0) return -FI_EINVAL;
    if (extent.offset > region->length() || extent.bytes > region->length() - extent.offset)
      return -FI_EINVAL;
    if (extent.bytes > UINT64_MAX - extent.remote) return -FI_EINVAL;
    if (extent.bytes > maxTransferBytes() - operation.bytes) return -FI_EMSGSIZE;
    operation.bytes += extent.bytes;
  }
  return 0;
}

/// Posts an operation or lets it wait. 1: complete without a completion; 0: a completion follows;
/// negative: refused, and freed.
int Port::submit(Operation* operation) {
  Address& address = addresses_[operation->address];
  operation->peer = address.peer;
  int status = -FI_EAGAIN;
  if (address.peer->ended != 0) {
    finish(operation, address.peer->ended, address.peer->endedDetail);
    return 0;
  }
  if (address.queue.empty()) status = post(*operation, address);
  if (status == -FI_EAGAIN) {
    operation->state = Operation::State::waiting;
    if (address.queue.empty()) addresses_.waiting.push_back(operation->address);
    address.queue.push(operation);
    if (operation->type == Operation::Type::send && slots_.isScarce()) park(*operation);
    return 0;
  }
  if (status == 0 || status == kTaken) return 0;
  if (status == kTakenNow) {
    advance();
    return 0;
  }
  operation->answered = true;
  finish(operation, 0);
  return status < 0 ? status : 1;
}

/// Takes a message out of its slot. So messages for peers that accept none hold at most half of the
/// slots, however many such peers there are.
void Port::park(Operation& send) {
  // A provider that needs registered memory would not take the copy.
  Address& address = addresses_[send.address];
  if (slots_.descriptor() != nullptr || address.parked >= kMostParked) return;
  ++address.parked;
  send.parked = std::unique_ptr<uint8_t[]>(new uint8_t[send.bytes]);
  std::copy_n(slots_.at(send.offset), send.bytes, send.parked.get());
  slots_.freeSend(send.offset);
  uint32_t slot = send.token;
  if (freeParked_.empty()) freeParked_.push_back(kFirstParked + mostParked_++);
  send.token = freeParked_.back();
  freeParked_.pop_back();
  completions_.deliver({.kind = Completion::parked, .token = slot, .high = send.token});
}

/// Gives an operation to the transport: 0, kDone, kTaken, kTakenNow or a negated error.
int Port::post(Operation& operation, Address& address) {
  if (operation.type != Operation::Type::send) return postTransfer(operation, address);
  const uint8_t* bytes = operation.parked ? operation.parked.get() : slots_.at(operation.offset);
  int status = transport_->send(operation, bytes, slots_.descriptor());
  if (status == 0) {
    operation.state = Operation::State::posted;
    ++address.posted;
  }
  return status;
}

/// Posts all parts of a transfer at once. A later call posts the parts that the provider does not
/// take now; the operation is then the first in its address's queue.
int Port::postTransfer(Operation& operation, Address& address) {
  if (int status = transport_->beginTransfer(operation); status != 0) return status;
  int status = 0;
  while (status == 0 && operation.extent < operation.extents.size()) {
    status = postPart(operation, address);
  }
  transport_->endTransfer(operation);
  if (status == -FI_EAGAIN) return status;
  if (status != 0) {
    if (operation.parts == 0) return status;
    operation.status = static_cast<uint32_t>(-status);
  }
  operation.state = Operation::State::posted;
  return 0;
}

int Port::postPart(Operation& operation, Address& address) {
  iovec local[fabric::kMostExtentsAtOnce];
  fi_rma_iov remote[fabric::kMostExtentsAtOnce];
  void* descriptors[fabric::kMostExtentsAtOnce];
  size_t first = operation.extent;
  size_t count = std::min(traits().extents, operation.extents.size() - first);
  Part* part = parts_.take();
  part->operation = &operation;
  for (size_t i = 0; i < count; ++i) {
    const Extent& extent = operation.extents[first + i];
    fabric::Region& region = *regions_.find(extent.region);
    local[i] = {region.bytes() + extent.offset, extent.bytes};
    remote[i] = {extent.remote, extent.bytes, extent.key};
    descriptors[i] = region.descriptor();
    part->bytes += extent.bytes;
  }
  fi_msg_rma message{};
  message.msg_iov = local;
  message.desc = descriptors;
  message.iov_count = count;
  message.addr = operation.peer->address;
  message.rma_iov = remote;
  message.rma_iov_count = count;
  message.context = contextOf(*part);
  message.data = operation.notification;
  int stop = 0;
  if (int status = transport_->postPart(*part, message, &stop); status != 0) {
    parts_.retire(part);
    return status;
  }
  ++operation.parts;
  ++address.posted;
  if (stop == 0) operation.extent += count;
  return stop;
}

void Port::onPartDone(Part* part, uint32_t status, uint32_t providerError) {
  Operation* operation = part->operation;
  // soft-iWARP may report a refused or failed part a second time (docs/design/verbs.md).
  if (operation == nullptr) return;
  bool failed = status != 0 || operation->status != 0 || operation->unproven;
  if (status != 0) {
    transport_->onFailed(*operation->peer, part->connection);
    part->bytes = 0;
    if (operation->status == 0) {
      operation->status = status;
      operation->providerError = providerError;
    }
  }
  if (--part->left > 0) return;
  --operation->parts;
  operation->done += part->bytes;
  failed ? parts_.retire(part) : parts_.give(part);
  uint32_t index = operation->address;
  Address& address = addresses_[index];
  if (operation->state == Operation::State::waiting && operation->status != 0) {
    // The rest of it need not be posted. It is the first in its queue, as no other operation has
    // parts.
    address.queue.pop();
    if (address.queue.empty()) std::erase(addresses_.waiting, index);
    operation->state = Operation::State::posted;
  }
  if (operation->parts == 0 && operation->state == Operation::State::posted)
    finish(operation, operation->status, operation->providerError);
  --address.posted;
  settle(index);
}

void Port::onSent(Operation* send, uint32_t status, uint32_t providerError) {
  // As with parts.
  if (send->state != Operation::State::posted) return;
  if (status != 0) transport_->onFailed(*send->peer, send->connection);
  finish(send, status, providerError);
}

void Port::retryWaiting() {
  if (addresses_.waiting.empty()) return;
  std::vector<uint32_t>& waiting = addresses_.waiting;
  uint64_t now = base::nowNs();
  for (size_t i = 0; i < waiting.size();) {
    Address& address = addresses_[waiting[i]];
    if (now < address.retryAt) {
      ++i;
      continue;
    }
    int status = 0;
    while (!address.queue.empty()) {
      // Out of the queue first: the code that posts it may put it into another queue.
      Operation* operation = address.queue.pop();
      status = post(*operation, address);
      if (status == -FI_EAGAIN) {
        address.queue.pushFront(operation);
        break;
      }
      if (status == kDone) finish(operation, 0);
      if (status < 0) finish(operation, static_cast<uint32_t>(-status));
    }
    bool thins = status == -FI_EAGAIN && transport_->thinsRetries();
    address.pauseNs = thins ? std::clamp(address.pauseNs * 2, kFirstPauseNs, kLastPauseNs) : 0;
    address.retryAt = now + address.pauseNs;
    if (address.queue.empty()) {
      waiting[i] = waiting.back();
      waiting.pop_back();
    } else {
      ++i;
    }
  }
}

/// Completes the operations that the transport has moved by itself.
void Port::advance() {
  if (!transport_->isMoving()) return;
  for (const transport::Ended& over : transport_->advance(regions_))
    finish(over.operation, over.status);
}

/// Ends an operation before all of it is posted. JavaScript gets its completion now. A transfer
/// with parts at the provider keeps its record and its regions until the provider has completed
/// these.
void Port::cut(Operation* operation, uint32_t status, uint32_t providerError) {
  if (operation->parts == 0) return finish(operation, status, providerError);
  answer(*operation, status, providerError);
  operation->answered = true;
  operation->state = Operation::State::posted;
}

/// The end of an operation: delivers its completion, unless it is delivered already, and frees what
/// the operation held.
void Port::finish(Operation* operation, uint32_t status, uint32_t providerError) {
  if (!operation->answered) answer(*operation, status, providerError);
  uint32_t index = operation->address;
  bool send = operation->type == Operation::Type::send;
  bool wasPosted = operation->state == Operation::State::posted;
  if (send) {
    if (operation->parked) {
      --addresses_[index].parked;
      freeParked_.push_back(operation->token);
    } else {
      slots_.freeSend(operation->offset);
    }
    --sends_;
  } else {
    for (const Extent& extent : operation->extents) --regions_.find(extent.region)->users;
    --transfers_;
  }
  status != 0 ? operations_.retire(operation) : operations_.give(operation);
  if (!send || !wasPosted) return;
  --addresses_[index].posted;
  settle(index);
}

void Port::answer(Operation& operation, uint32_t status, uint32_t providerError) {
  bool send = operation.type == Operation::Type::send;
  Entry entry{send ? Completion::sent : Completion::transfer, status, operation.token};
  if (!send) entry.bytes = static_cast<uint32_t>(operation.done);
  entry.providerError = providerError;
  completions_.deliver(entry);
}

}  // namespace cinnabar::engine
