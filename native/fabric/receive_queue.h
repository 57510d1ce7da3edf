// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fi_endpoint.h>
#include <sys/uio.h>

#include <cstdint>
#include <deque>

namespace cinnabar::fabric {

/// A queue of receives that a provider takes from and we own: libfabric's peer shared receive
/// context (fi_peer(3)).
///
/// shm of 2.1 takes messages out of its region until that is empty, and a peer may fill it
/// meanwhile. A message without a receive goes to memory that is never given back. This queue makes
/// the provider stop after the first such message: the rest stays in the region, and a sender waits
/// for room there. The message that was taken goes into the next receive.
///
/// One thread at a time, and the provider calls back inside its caller's calls. Must outlive the
/// endpoint.
class ReceiveQueue {
 public:
  ReceiveQueue();
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  /// The provider's half, which an endpoint of the domain is to be bound to. 0 or a negated error.
  int open(fid_domain* domain, fid_ep** into);
  /// As fi_recv, from any sender: 0 or a negated error.
  int post(void* bytes, size_t length, void* descriptor, void* context);

 private:
  // As rdma/providers/fi_peer.h of libfabric 2.1 has them; earlier versions do not install it.
  struct Peer;
  struct Entry {
    Entry* next;
    Entry* previous;
    Peer* queue;
    fi_addr_t address;
    size_t messageBytes;
    uint64_t tag;
    uint64_t data;
    uint64_t flags;
    void* context;
    size_t count;
    void** descriptors;
    void* providers;
    void* owners;
    iovec* runs;
  };
  struct Match {
    fi_addr_t address;
    size_t messageBytes;
    uint64_t tag;
  };
  struct OwnerOperations {
    size_t size;
    int (*getMessage)(Peer* queue, Match* match, Entry** into);
    int (*getTagged)(Peer* queue, Match* match, Entry** into);
    int (*queueMessage)(Entry* entry);
    int (*queueTagged)(Entry* entry);
    void (*eachWithoutAddress)(Peer* queue, fi_addr_t (*addressOf)(Entry* entry));
    void (*free)(Entry* entry);
  };
  struct ProviderOperations {
    size_t size;
    int (*startMessage)(Entry* entry);
    int (*startTagged)(Entry* entry);
    int (*discardMessage)(Entry* entry);
    int (*discardTagged)(Entry* entry);
  };
  struct Peer {
    fid_ep endpoint;
    OwnerOperations* owner;
    ProviderOperations* provider;
  };
  struct PeerContext {
    size_t size;
    Peer* queue;
  };

  /// One receive, or one message that has none yet.
  struct Record : Entry {
    iovec run;
    void* descriptor;
  };
  /// First in, first out, through the entries themselves.
  struct List {
    Record* first = nullptr;
    Record* last = nullptr;

    void push(Record* record);
    Record* pop();
  };

  static ReceiveQueue& of(Peer* queue);
  static int takeReceive(Peer* queue, Match* match, Entry** into);
  static int keep(Entry* entry);
  static void release(Entry* entry);
  Record* newRecord();

  OwnerOperations operations_;
  Peer peer_;
  std::deque<Record> records_;  // the provider has pointers to them
  List free_;
  List receives_;
  List kept_;                      // messages without a receive
  Entry* underKeeping_ = nullptr;  // which the provider wants to free, since it was told to stop
};

}  // namespace cinnabar::fabric
