// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_errno.h>

#include <algorithm>

#include "engine/clock.h"
#include "engine/port.h"

namespace cinnabar::engine {
namespace {

// What post() says besides "at the provider" (0) and errors.
constexpr int kDone = 1;  // over, and no completion follows
constexpr int kMove = 2;  // belongs to the direct copies; the caller puts it there

// A peer that cannot be reached answers EAGAIN for ever, and each try may be a connect(2). So tries
// thin out.
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLastPauseNs = 5'000'000;

constexpr size_t kMostOperations = 1 << 18;

/// Where the provider copies, one operation may follow another without a gap, and a neighbour that
/// takes its memory back would wait for ever. So now and then nothing is begun for a while.
bool isPause(uint64_t busyNs) { return (busyNs >> 24) % 8 == 1; }  // 16.8 ms of 134

}  // namespace

int Port::send(uint32_t index, uint64_t slotOffset, uint64_t bytes) {
  Address* address = find(index);
  if (address == nullptr || slotOffset >= uint64_t{sendSlots_} * slotBytes_) return -FI_EINVAL;
  uint64_t slot = slotOffset / slotBytes_;
  if (bytes > slotBytes_ - slotOffset % slotBytes_) return -FI_EINVAL;
  if (busySlots_[slot]) return -FI_EBUSY;
  Operation* operation = operations_.take();
  operation->type = Operation::Type::send;
  operation->address = index;
  operation->token = static_cast<uint32_t>(slotOffset);
  operation->offset = slotOffset;
  operation->bytes = bytes;
  busySlots_[slot] = true;
  ++sends_;
  return submit(operation);
}

int Port::transfer(Operation::Type type, uint32_t index, const Extent* extents, size_t count,
                   uint32_t token, const uint64_t* notice) {
  if (find(index) == nullptr || count == 0 || count > kMostExtents) return -FI_EINVAL;
  if (notice != nullptr) {
    if (type != Operation::Type::write || count > traits().vectors) return -FI_EINVAL;
    if (traits().immediateBytes == 0) return -FI_EOPNOTSUPP;
  }
  if (operations_.used() >= kMostOperations) return -FI_ENOBUFS;
  Operation* operation = operations_.take();
  operation->extents.assign(extents, count);
  if (int status = measure(*operation); status != 0) {
    operations_.give(operation);
    return status;
  }
  for (const Extent& extent : operation->extents) {
    int status = findRegion(extent.region)->prepare(*endpoint_);
    if (status == 0) continue;
    operations_.give(operation);
    return status;
  }
  operation->type = type;
  operation->address = index;
  operation->token = token;
  operation->notifies = notice != nullptr;
  operation->notice = notice != nullptr ? *notice : 0;
  for (const Extent& extent : operation->extents) ++findRegion(extent.region)->users;
  ++transfers_;
  int status = submit(operation);
  return status < 0 ? status : 0;
}

/// Whether every extent lies in its region; sums up their bytes.
int Port::measure(Operation& operation) const {
  for (const Extent& extent : operation.extents) {
    const fabric::Region* region = findRegion(extent.region);
    if (region == nullptr || region->isWithdrawn() || extent.bytes == 0) return -FI_EINVAL;
    if (extent.offset > region->length() || extent.bytes > region->length() - extent.offset)
      return -FI_EINVAL;
    if (extent.bytes > UINT64_MAX - extent.remote) return -FI_EINVAL;
    if (extent.bytes > maxTransferBytes() - operation.bytes) return -FI_EMSGSIZE;
    operation.bytes += extent.bytes;
  }
  return 0;
}

/// Posts an operation or lets it wait. 1: over without a completion; 0: a completion follows;
/// negative: refused, and gone.
int Port::submit(Operation* operation) {
  Address& address = addresses_[operation->address];
  int status = -FI_EAGAIN;
  if (address.neighbour != nullptr && address.neighbour->isGone()) {
    finish(operation, address.neighbour->endStatus);
    return 0;
  }
  if (address.queue.empty()) status = post(*operation, address);
  if (status == -FI_EAGAIN) {
    operation->state = Operation::State::waiting;
    if (address.queue.empty()) waiting_.push_back(operation->address);
    address.queue.push(operation);
    return 0;
  }
  if (status == 0) return 0;
  if (status == kMove) {
    bool alone = copies_.empty();
    operation->state = Operation::State::copying;
    copies_.push(operation);
    if (alone && operation->bytes <= kCopyBytes) copyPieces();
    return 0;
  }
  bool begun = operation->done > 0;  // a message of which a part is on its way
  if (status < 0 && begun) {
    finish(operation, static_cast<uint32_t>(-status));
    return 0;
  }
  operation->answered = true;
  finish(operation, 0);
  return status < 0 ? status : 1;
}

/// Hands an operation to the provider: 0, kDone, kMove or a negated error.
int Port::post(Operation& operation, Address& address) {
  ssize_t status;
  if (address.neighbour != nullptr && !address.neighbour->isReady()) return -FI_EAGAIN;
  if (endpoint_->isResting(address.fabric)) return -FI_EAGAIN;
  if (operation.type != Operation::Type::send) {
    return postTransfer(operation, address);
  } else if (address.neighbour != nullptr) {
    return postFragments(operation, address);
  } else if (operation.bytes <= traits().injectBytes) {
    status = fi_inject(endpoint_->ep(), slab_ + operation.offset, operation.bytes, address.fabric);
    if (status == 0) return kDone;
  } else {
    void* descriptor = slabRegion_ ? slabRegion_->descriptor() : nullptr;
    status = fi_send(endpoint_->ep(), slab_ + operation.offset, operation.bytes, descriptor,
                     address.fabric, &operation);
  }
  operation.connection = onPosted(address, status);
  if (status == 0) {
    operation.state = Operation::State::posted;
    ++address.posted;
  }
  return static_cast<int>(status);
}

/// A message to an shm peer, as one injected piece or several; see reassembly.h.
int Port::postFragments(Operation& operation, Address& address) {
  Neighbour& neighbour = *address.neighbour;
  fi_addr_t to = neighbour.mapping->address;
  uint64_t most = std::min<uint64_t>(traits().injectBytes, neighbour.slotBytes);
  ssize_t status;
  bell_->beginPost();
  if (operation.bytes <= most) {
    status = fi_inject(endpoint_->ep(), slab_ + operation.offset, operation.bytes, to);
  } else {
    do {
      uint64_t piece = std::min(most, operation.bytes - operation.done);
      bool last = operation.done + piece == operation.bytes;
      uint64_t tag = fragmentTag(neighbour.theirId, operation.done, last);
      status =
          fi_injectdata(endpoint_->ep(), slab_ + operation.offset + operation.done, piece, tag, to);
      if (status == 0) operation.done += piece;
    } while (status == 0 && operation.done < operation.bytes);
  }
  bell_->endPost();
  // After EAGAIN too: the provider may have left its introduction in the peer's queue.
  neighbour.bell->ring();
  if (status != 0) return static_cast<int>(status);
  neighbour.mapping->answered = true;
  return kDone;
}

/// All parts of a transfer at once. What the provider does not take now is posted by a later call;
/// the operation is then the first in its address's queue.
int Port::postTransfer(Operation& operation, Address& address) {
  Neighbour* neighbour = address.neighbour;
  if (neighbour != nullptr && neighbour->copies) return kMove;
  int status = 0;
  while (status == 0 && operation.extent < operation.extents.size()) {
    status = postPart(operation, address);
  }
  if (neighbour != nullptr) {
    neighbour->bell->ring();
    if (operation.parts > 0) neighbour->mapping->answered = true;
  }
  if (status == -FI_EAGAIN) return status;
  if (status != 0) {
    if (operation.parts == 0) return status;
    operation.status = static_cast<uint32_t>(-status);
  }
  operation.state = Operation::State::posted;
  return 0;
}

int Port::postPart(Operation& operation, Address& address) {
  iovec local[fabric::kMostVectors];
  fi_rma_iov remote[fabric::kMostVectors];
  void* descriptors[fabric::kMostVectors];
  size_t first = operation.extent;
  size_t count = std::min(traits().vectors, operation.extents.size() - first);
  Neighbour* neighbour = address.neighbour;
  // Room for the write alone would bring it here again and again. Once it has ended, so has all in
  // front of it, and there is room for both.
  if (operation.unproven && operation.parts > 0) return -FI_EAGAIN;
  operation.unproven = false;
  if (neighbour != nullptr) {
    uint64_t now = nowNs();
    if (lent_ > 0 && isPause(now - lentNs_)) return -FI_EAGAIN;
    bell_->beginCopy();
    if (int refusal = checkKeys(operation, *neighbour, count); refusal != 0) {
      bell_->endCopy();
      return -refusal;
    }
    if (lent_++ == 0) lentNs_ = now;
  }
  Part* part = parts_.take();
  part->operation = &operation;
  part->lent = neighbour != nullptr;
  for (size_t i = 0; i < count; ++i) {
    const Extent& extent = operation.extents[first + i];
    fabric::Region& region = *findRegion(extent.region);
    local[i] = {region.bytes() + extent.offset, extent.bytes};
    remote[i] = {extent.remote, extent.bytes, extent.key};
    descriptors[i] = region.descriptor();
    part->bytes += extent.bytes;
  }
  fi_msg_rma message{};
  message.msg_iov = local;
  message.desc = descriptors;
  message.iov_count = count;
  message.addr = neighbour != nullptr ? neighbour->mapping->address : address.fabric;
  message.rma_iov = remote;
  message.rma_iov_count = count;
  message.context = part;
  message.data = operation.notice;
  // Writes complete when the data is in place, not when the buffer is free (fi_rma(3),
  // FI_DELIVERY_COMPLETE).
  uint64_t write = FI_COMPLETION | FI_DELIVERY_COMPLETE;
  if (operation.notifies) write |= FI_REMOTE_CQ_DATA;
  if (neighbour != nullptr) bell_->beginPost();
  ssize_t status = operation.type == Operation::Type::read
                       ? fi_readmsg(endpoint_->ep(), &message, FI_COMPLETION)
                       : fi_writemsg(endpoint_->ep(), &message, write);
  if (neighbour != nullptr) bell_->endPost();
  part->connection = onPosted(address, status);
  if (status != 0) {
    giveBack(*part);
    parts_.retire(part);
    return static_cast<int>(status);
  }
  ++operation.parts;
  ++address.posted;
  if (operation.type == Operation::Type::write && traits().provesWrites) {
    if (int refusal = postProof(message); refusal != 0) {
      // What that write did cannot be told any more. All of it is written again, with a proof.
      part->bytes = 0;
      operation.unproven = true;
      return refusal;
    }
    part->left = 2;
  }
  operation.extent += count;
  return 0;
}

/// Asks for nothing behind a write: the answer comes when the write is in place, or not at all. To
/// be posted in the same breath, so that it takes the same connection.
int Port::postProof(fi_msg_rma& message) {
  iovec nowhere{message.msg_iov[0].iov_base, 0};
  fi_rma_iov nothing{message.rma_iov[0].addr, 0, message.rma_iov[0].key};
  message.msg_iov = &nowhere;
  message.iov_count = 1;
  message.rma_iov = &nothing;
  message.rma_iov_count = 1;
  return static_cast<int>(fi_readmsg(endpoint_->ep(), &message, FI_COMPLETION));
}

/// Whether the peer lets us use the next `count` extents: 0 or an error.
int Port::checkKeys(const Operation& operation, const Neighbour& neighbour, size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    const Extent& extent = operation.extents[operation.extent + i];
    KeyRange range;
    if (!neighbour.keys->find(extent.key, &range)) return FI_ENOKEY;
    int refusal = range.refuses(extent.remote, extent.bytes, accessFor(operation));
    if (refusal != 0) return refusal;
  }
  return 0;
}

void Port::giveBack(Part& part) {
  if (!part.lent) return;
  part.lent = false;
  --lent_;
  bell_->endCopy();
}

void Port::onPartDone(Part* part, uint32_t status, uint32_t providerError) {
  Operation* operation = part->operation;
  // What was refused or has failed may be told of once more on soft-iWARP (docs/design/verbs.md).
  if (operation == nullptr) return;
  bool failed = status != 0 || operation->status != 0 || operation->unproven;
  if (status != 0) {
    onBroken(operation->address, part->connection);
    part->bytes = 0;
    if (operation->status == 0) {
      operation->status = status;
      operation->providerError = providerError;
    }
  }
  if (--part->left > 0) return;
  --operation->parts;
  giveBack(*part);
  operation->done += part->bytes;
  failed ? parts_.retire(part) : parts_.give(part);
  uint32_t index = operation->address;
  Address& address = addresses_[index];
  if (operation->state == Operation::State::waiting && operation->status != 0) {
    // What is left of it need not be posted. It is the first in its queue, as no other has parts.
    address.queue.pop();
    if (address.queue.empty()) std::erase(waiting_, index);
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
  if (status != 0) onBroken(send->address, send->connection);
  finish(send, status, providerError);
}

/// The number of the connection that a post went to, where those are of any concern.
uint32_t Port::onPosted(const Address& address, ssize_t status) {
  return traits().endsConnections ? endpoint_->onPosted(address.fabric, status) : 0;
}

/// Whatever fails takes its connection along, and not every provider has noticed when it says so.
void Port::onBroken(uint32_t index, uint32_t connection) {
  if (traits().endsConnections) endpoint_->disconnect(addresses_[index].fabric, connection);
}

void Port::retryWaiting(bool evenIfEarly) {
  if (waiting_.empty()) return;
  uint64_t now = nowNs();
  for (size_t i = 0; i < waiting_.size();) {
    Address& address = addresses_[waiting_[i]];
    if (!evenIfEarly && now < address.retryAt) {
      ++i;
      continue;
    }
    int status = 0;
    while (!address.queue.empty()) {
      Operation* operation = address.queue.front();
      status = post(*operation, address);
      if (status == -FI_EAGAIN) break;
      address.queue.pop();
      if (status == kDone) finish(operation, 0);
      if (status == kMove) {
        operation->state = Operation::State::copying;
        copies_.push(operation);
      }
      if (status < 0) finish(operation, static_cast<uint32_t>(-status));
    }
    bool slow = status == -FI_EAGAIN && address.neighbour == nullptr;
    address.pauseNs = slow ? std::clamp(address.pauseNs * 2, kFirstPauseNs, kLastPauseNs) : 0;
    address.retryAt = now + address.pauseNs;
    if (address.queue.empty()) {
      waiting_[i] = waiting_.back();
      waiting_.pop_back();
    } else {
      ++i;
    }
  }
}

/// Ends an operation whose turn never comes. JavaScript is told now; a transfer that is at the
/// provider in part keeps its record and its regions until the provider has let go of them.
void Port::cut(Operation* operation, uint32_t status) {
  if (operation->parts == 0) return finish(operation, status);
  answer(*operation, status, 0);
  operation->answered = true;
  operation->state = Operation::State::posted;
}

/// The end of an operation: the completion if there was none yet, and whatever it held is free
/// again.
void Port::finish(Operation* operation, uint32_t status, uint32_t providerError) {
  if (!operation->answered) answer(*operation, status, providerError);
  uint32_t index = operation->address;
  bool send = operation->type == Operation::Type::send;
  bool wasPosted = operation->state == Operation::State::posted;
  if (send) {
    busySlots_[operation->offset / slotBytes_] = false;
    --sends_;
  } else {
    for (const Extent& extent : operation->extents) --findRegion(extent.region)->users;
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
  deliver(entry);
}

}  // namespace cinnabar::engine
