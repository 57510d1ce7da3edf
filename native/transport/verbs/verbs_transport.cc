// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/verbs_transport.h"

#include <rdma/fi_errno.h>

#include <cerrno>
#include <utility>

namespace cinnabar::verbs {

using transport::Operation;

namespace {

// Writes that one proof is for, which are posted again if there is no room for it. Each proof is a
// read for the device at the other side.
constexpr size_t kMostUnproven = 16;
constexpr uint64_t kMostUnprovenBytes = 16 << 10;

}  // namespace

VerbsTransport::VerbsTransport(fabric::Scheme scheme, std::unique_ptr<fabric::Endpoint> endpoint)
    : FabricTransport(scheme, std::move(endpoint)), addresses_(*endpoint_) {
  if (!traits().hidesRefusals) return;
  refusals_ = RefusalWatch::open(endpoint_->name());
  if (refusals_) news_ = &refusals_->news();
}

fi_addr_t VerbsTransport::insert(const uint8_t* address) { return addresses_.insert(address); }

void VerbsTransport::remove(fi_addr_t address) { addresses_.remove(address); }

int VerbsTransport::send(Operation& operation, const uint8_t* bytes, void* descriptor) {
  fi_addr_t to = operation.peer->address;
  if (addresses_.isResting(to)) return -FI_EAGAIN;
  int status = FabricTransport::send(operation, bytes, descriptor);
  if (status != transport::kDone) operation.connection = addresses_.onPosted(to, status);
  return status;
}

void VerbsTransport::say(transport::Peer& peer, const uint8_t* bytes, size_t length) {
  if (addresses_.isResting(peer.address)) return;
  addresses_.onPosted(peer.address, fi_inject(endpoint_->ep(), bytes, length, peer.address));
}

int VerbsTransport::beginTransfer(Operation& operation) {
  return addresses_.isResting(operation.peer->address) ? -FI_EAGAIN : 0;
}

int VerbsTransport::postPart(transport::Part& part, const fi_msg_rma& message, int* stop) {
  Operation& operation = *part.operation;
  // Room for the write alone would bring it here again and again. Once the write has ended, so has
  // all in front of it, and both have room.
  if (operation.unproven && operation.parts > 0) return -FI_EAGAIN;
  bool mayShare = !operation.unproven;
  operation.unproven = false;
  int status = postMessage(part, message);
  part.connection = addresses_.onPosted(message.addr, status);
  if (operation.type != Operation::Type::write || !traits().provesWrites) return status;
  if (status != 0) {
    // A proof that is posted later may take another connection than the writes in front of it.
    if (unproven_.last != nullptr) writeAgain(operation);
    return status;
  }
  bool isFirst = unproven_.last == nullptr;
  if (isFirst) unproven_.first = operation.extent;
  bool isTogether = isFirst || unproven_.last->connection == part.connection;
  unproven_.add(part);
  if (!isTogether) {
    writeAgain(operation);
    *stop = -FI_EAGAIN;
    return 0;
  }
  bool isLast = operation.extent + message.iov_count == operation.extents.size();
  if (mayShare && !isLast && unproven_.hasRoom()) return 0;
  *stop = postProof(message);
  addresses_.onPosted(message.addr, *stop);
  if (*stop == 0) {
    part.left = 2;
    unproven_ = {};
  } else {
    writeAgain(operation);
  }
  return 0;
}

/// The result of the unproven writes is unknown. All of them are written again, with a proof.
void VerbsTransport::writeAgain(Operation& operation) {
  unproven_.last->bytes = 0;
  operation.extent = unproven_.first;
  operation.unproven = true;
  unproven_ = {};
}

void VerbsTransport::Unproven::add(transport::Part& part) {
  // One proof covers all of them.
  if (last != nullptr) part.bytes += std::exchange(last->bytes, 0);
  last = &part;
  ++writes;
}

bool VerbsTransport::Unproven::hasRoom() const {
  return writes < kMostUnproven && last->bytes < kMostUnprovenBytes;
}

/// Asks for nothing behind writes: the answer comes when they are in place, or not at all. To be
/// posted in the same breath, so that it takes the same connection.
int VerbsTransport::postProof(fi_msg_rma message) {
  iovec nowhere{message.msg_iov[0].iov_base, 0};
  fi_rma_iov nothing{message.rma_iov[0].addr, 0, message.rma_iov[0].key};
  message.msg_iov = &nowhere;
  message.iov_count = 1;
  message.rma_iov = &nothing;
  message.rma_iov_count = 1;
  return static_cast<int>(fi_readmsg(endpoint_->ep(), &message, FI_COMPLETION));
}

/// A failure ends its connection, and some providers report it before they notice that.
void VerbsTransport::onFailed(transport::Peer& peer, uint32_t connection) {
  addresses_.disconnect(peer.address, connection);
}

/// Refused connections, for lack of a listener. rxm makes them again at the next post.
transport::News VerbsTransport::takeNews() {
  transport::News told;
  for (const Refusal& refusal : refusals_->take()) {
    for (fi_addr_t address : addresses_.refuse(refusal.peer, refusal.isInside))
      told.unreachable.push_back({address, ECONNREFUSED});
  }
  return told;
}

void VerbsTransport::endConnection(transport::Peer& peer) { addresses_.disconnect(peer.address); }

}  // namespace cinnabar::verbs
