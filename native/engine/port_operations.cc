// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <poll.h>
#include <rdma/fi_errno.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "engine/port.h"
#include "engine/process_memory.h"

namespace cinnabar::engine {
namespace {

// What post() says besides "at the provider" (0) and errors.
constexpr int kDone = 1;  // over, and no completion follows
constexpr int kMove = 2;  // belongs to the direct copies; the caller puts it there

// A peer that cannot be reached answers EAGAIN for ever, and each try may be a connect(2). So tries
// thin out.
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLastPauseNs = 5'000'000;

// Direct copies share the thread with everything else: pieces this large, and so many bytes a call
// of progress.
constexpr uint64_t kPieceBytes = 1 << 20;
constexpr uint64_t kBudgetBytes = 4 << 20;
constexpr uint64_t kInlineBytes = 256 << 10;

constexpr size_t kMostOperations = 1 << 18;

uint64_t nowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool hasEnded(int socket) {
  pollfd watched{socket, POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

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

int Port::transfer(Operation::Type type, uint32_t index, uint32_t regionIndex, uint64_t offset,
                   uint64_t bytes, uint64_t key, uint64_t remote, uint32_t token) {
  Address* address = find(index);
  fabric::Region* region = findRegion(regionIndex);
  if (address == nullptr || region == nullptr) return -FI_EINVAL;
  if (offset > region->length() || bytes > region->length() - offset) return -FI_EINVAL;
  if (bytes > UINT64_MAX - remote) return -FI_EINVAL;
  if (bytes > maxTransferBytes()) return -FI_EMSGSIZE;
  if (operations_.used() >= kMostOperations) return -FI_ENOBUFS;
  Operation* operation = operations_.take();
  operation->type = type;
  operation->address = index;
  operation->token = token;
  operation->region = regionIndex;
  operation->offset = offset;
  operation->bytes = bytes;
  operation->key = key;
  operation->remote = remote;
  ++region->users;
  ++transfers_;
  int status = submit(operation);
  return status < 0 ? status : 0;
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
  if (operation->type != Operation::Type::send && operation->bytes == 0) {
    finish(operation, 0);
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
    if (alone && operation->bytes <= kInlineBytes) copyPieces();
    return 0;
  }
  bool begun = operation->done > 0;
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
  if (operation.type != Operation::Type::send) {
    status = postTransfer(operation, address);
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
  // After EAGAIN too: the provider may have left its introduction in the peer's queue.
  neighbour.bell->ring();
  if (status != 0) return static_cast<int>(status);
  neighbour.mapping->answered = true;
  return kDone;
}

int Port::postTransfer(Operation& operation, Address& address) {
  fabric::Region& region = *findRegion(operation.region);
  Neighbour* neighbour = address.neighbour;
  if (neighbour != nullptr && neighbour->copies) return kMove;
  iovec local{region.bytes() + operation.offset, operation.bytes};
  fi_rma_iov remote{operation.remote, operation.bytes, operation.key};
  void* descriptor = region.descriptor();
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = neighbour != nullptr ? neighbour->mapping->address : address.fabric;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &operation;
  // Writes complete when the data is in place, not when the buffer is free (fi_rma(3),
  // FI_DELIVERY_COMPLETE).
  ssize_t status =
      operation.type == Operation::Type::read
          ? fi_readmsg(endpoint_->ep(), &message, FI_COMPLETION)
          : fi_writemsg(endpoint_->ep(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
  if (neighbour != nullptr) {
    neighbour->bell->ring();
    if (status == 0) neighbour->mapping->answered = true;
  }
  return static_cast<int>(status);
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

void Port::copyPieces() {
  for (uint64_t budget = kBudgetBytes; budget > 0 && !copies_.empty();) {
    Operation* operation = copies_.pop();
    uint64_t piece = std::min(kPieceBytes, operation->bytes - operation->done);
    budget -= std::min(budget, std::max<uint64_t>(piece, 1));
    if (copyPiece(*operation)) copies_.push(operation);
  }
}

/// Copies the next piece; false if the operation is over.
bool Port::copyPiece(Operation& operation) {
  Neighbour& neighbour = *addresses_[operation.address].neighbour;
  fabric::Region& region = *findRegion(operation.region);
  uint64_t piece = std::min(kPieceBytes, operation.bytes - operation.done);
  uint8_t* local = region.bytes() + operation.offset + operation.done;
  uint64_t remote = operation.remote + operation.done;
  int code = ECONNABORTED;
  auto copy = [&] {
    code = operation.type == Operation::Type::read ? copyFrom(neighbour.pid, local, remote, piece)
                                                   : copyTo(neighbour.pid, local, remote, piece);
  };
  // The process number could be another's once the peer is gone.
  if (!neighbour.isGone() && !hasEnded(neighbour.socket.get())) {
    SharedEndpoint* here = neighbour.mapping->local.get();
    if (here == nullptr) {
      copy();
    } else {
      here->whileOpen(copy);
    }
  }
  if (code == 0) {
    operation.done += piece;
    if (operation.done < operation.bytes) return true;
  }
  if (code == ESRCH) code = ECONNABORTED;
  finish(&operation, static_cast<uint32_t>(code));
  return false;
}

/// The end of an operation: the completion if there was none yet, and whatever it held is free
/// again.
void Port::finish(Operation* operation, uint32_t status, uint32_t providerError) {
  if (!operation->answered) answer(*operation, status, providerError);
  uint32_t index = operation->address;
  bool wasPosted = operation->state == Operation::State::posted;
  if (operation->type == Operation::Type::send) {
    busySlots_[operation->offset / slotBytes_] = false;
    --sends_;
  } else {
    --findRegion(operation->region)->users;
    --transfers_;
  }
  operations_.give(operation);
  if (!wasPosted) return;
  --addresses_[index].posted;
  settle(index);
}

void Port::answer(Operation& operation, uint32_t status, uint32_t providerError) {
  bool send = operation.type == Operation::Type::send;
  Entry entry{send ? Completion::sent : Completion::transfer, status, operation.token};
  if (!send) entry.bytes = static_cast<uint32_t>(status == 0 ? operation.bytes : operation.done);
  entry.providerError = providerError;
  deliver(entry);
}

}  // namespace cinnabar::engine
