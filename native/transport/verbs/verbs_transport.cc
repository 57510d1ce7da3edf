// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/verbs_transport.h"

namespace cinnabar::verbs {

using transport::Operation;

VerbsTransport::VerbsTransport(fabric::Scheme scheme, std::shared_ptr<fabric::Endpoint> endpoint)
    : Transport(scheme, std::move(endpoint)), addresses_(*endpoint_) {}

fi_addr_t VerbsTransport::insert(const uint8_t* address) { return addresses_.insert(address); }

void VerbsTransport::remove(fi_addr_t address) { addresses_.remove(address); }

int VerbsTransport::send(Operation& operation, const uint8_t* bytes, void* descriptor) {
  fi_addr_t to = operation.peer->address;
  if (addresses_.isResting(to)) return -FI_EAGAIN;
  int status = Transport::send(operation, bytes, descriptor);
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
  // Room for the write alone would bring it here again and again. Once it has ended, so has all in
  // front of it, and there is room for both.
  if (operation.unproven && operation.parts > 0) return -FI_EAGAIN;
  operation.unproven = false;
  int status = postMessage(part, message);
  part.connection = addresses_.onPosted(message.addr, status);
  if (status != 0 || operation.type != Operation::Type::write || !traits().provesWrites)
    return status;
  *stop = postProof(message);
  addresses_.onPosted(message.addr, *stop);
  if (*stop == 0) {
    part.left = 2;
  } else {
    // What that write did cannot be told any more. All of it is written again, with a proof.
    part.bytes = 0;
    operation.unproven = true;
  }
  return 0;
}

/// Asks for nothing behind a write: the answer comes when the write is in place, or not at all. To
/// be posted in the same breath, so that it takes the same connection.
int VerbsTransport::postProof(fi_msg_rma message) {
  iovec nowhere{message.msg_iov[0].iov_base, 0};
  fi_rma_iov nothing{message.rma_iov[0].addr, 0, message.rma_iov[0].key};
  message.msg_iov = &nowhere;
  message.iov_count = 1;
  message.rma_iov = &nothing;
  message.rma_iov_count = 1;
  return static_cast<int>(fi_readmsg(endpoint_->ep(), &message, FI_COMPLETION));
}

/// Whatever fails takes its connection along, and not every provider has noticed when it says so.
void VerbsTransport::onFailed(transport::Peer& peer, uint32_t connection) {
  addresses_.disconnect(peer.address, connection);
}

}  // namespace cinnabar::verbs
