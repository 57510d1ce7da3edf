// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/receive_queue.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

namespace cinnabar::fabric {

ReceiveQueue::ReceiveQueue() : operations_{}, peer_{} {
  operations_.size = sizeof operations_;
  operations_.getMessage = takeReceive;
  operations_.getTagged = [](Peer*, Match*, Entry**) { return -FI_ENOSYS; };
  operations_.queueMessage = keep;
  operations_.queueTagged = [](Entry*) { return -FI_ENOSYS; };
  // Any receive is for any sender, so nobody waits for an address.
  operations_.eachWithoutAddress = [](Peer*, fi_addr_t (*)(Entry*)) {};
  operations_.free = release;
  peer_.endpoint.fid.fclass = FI_CLASS_SRX_CTX;
  peer_.endpoint.fid.context = this;
  peer_.owner = &operations_;
}

int ReceiveQueue::open(fid_domain* domain, fid_ep** into) {
  fi_rx_attr attributes{};
  attributes.op_flags = FI_PEER;
  PeerContext context{sizeof context, &peer_};
  return fi_srx_context(domain, &attributes, into, &context);
}

int ReceiveQueue::post(void* bytes, size_t length, void* descriptor, void* context) {
  Record* record = kept_.pop();
  bool isKept = record != nullptr;
  if (!isKept) record = newRecord();
  record->run = {bytes, length};
  record->descriptor = descriptor;
  record->context = context;
  record->flags = FI_MSG | FI_RECV | FI_COMPLETION;
  if (isKept) return peer_.provider->startMessage(record);
  receives_.push(record);
  return 0;
}

ReceiveQueue& ReceiveQueue::of(Peer* queue) {
  return *static_cast<ReceiveQueue*>(queue->endpoint.fid.context);
}

int ReceiveQueue::takeReceive(Peer* queue, Match* match, Entry** into) {
  ReceiveQueue& self = of(queue);
  Record* record = self.receives_.pop();
  bool isThere = record != nullptr;
  if (!isThere) record = self.newRecord();
  record->address = match->address;
  record->messageBytes = match->messageBytes;
  *into = record;
  return isThere ? 0 : -FI_ENOENT;
}

/// The provider has copied the message. It takes an error here for the end of its turn, and frees
/// the entry, which is kept nevertheless.
int ReceiveQueue::keep(Entry* entry) {
  ReceiveQueue& self = of(entry->queue);
  self.kept_.push(static_cast<Record*>(entry));
  self.underKeeping_ = entry;
  return -FI_EAGAIN;
}

void ReceiveQueue::release(Entry* entry) {
  ReceiveQueue& self = of(entry->queue);
  if (entry != self.underKeeping_) self.free_.push(static_cast<Record*>(entry));
  self.underKeeping_ = nullptr;
}

ReceiveQueue::Record* ReceiveQueue::newRecord() {
  Record* record = free_.pop();
  if (record == nullptr) record = &records_.emplace_back();
  *record = {};
  record->queue = &peer_;
  record->runs = &record->run;
  record->descriptors = &record->descriptor;
  record->count = 1;
  return record;
}

void ReceiveQueue::List::push(Record* record) {
  record->next = nullptr;
  if (first == nullptr) {
    first = record;
  } else {
    last->next = record;
  }
  last = record;
}

ReceiveQueue::Record* ReceiveQueue::List::pop() {
  Record* record = first;
  if (record != nullptr) first = static_cast<Record*>(record->next);
  return record;
}

}  // namespace cinnabar::fabric
