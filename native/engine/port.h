// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/address_table.h"
#include "engine/message_slots.h"
#include "engine/ring.h"
#include "engine/vouch.h"
#include "transport/transport.h"

namespace cinnabar::engine {

using transport::Extent;
using transport::Operation;
using transport::Part;

struct PortRequest : transport::OpenRequest {
  /// Send slots followed by receive slots. Stays valid until the port is closed.
  uint8_t* slab = nullptr;
  uint32_t sendSlots = 0;
  uint32_t* ring = nullptr;  // kRingBytes; likewise
};

enum class Gauge : uint32_t {
  sends = 0,
  transfers = 1,
  waiting = 2,
  regions = 3,
  addresses = 4,
  /// Receive slots that hold a message, or are not posted for another reason; and the most so far.
  receivesUsed = 5,
  mostReceives = 6,
  /// Completions that the reader has not passed, in the ring and behind it; and the most so far.
  completions = 7,
  mostCompletions = 8,
  /// Memory known to the provider, the slots included where it needs them, too.
  registeredBytes = 9,
  /// Open connections of the provider, where it is known.
  connections = 10,
  /// Connections that were turned away since the port was opened: for lack of descriptors, and for
  /// bytes that are not libfabric's.
  turnedAway = 11,
  malformed = 12,
  /// Connections that were ended to bound the memory that peers make the port hold.
  shed = 13,
};
constexpr uint32_t kLastGauge = 13;

/// Not an address: the key of this memory is for every peer.
constexpr uint32_t kAnybody = UINT32_MAX;

/// One endpoint with its slots, regions, addresses and queues. Does not know Node.
///
/// For one thread at a time: the one that reads the ring, or the guard in its absence (guard.h).
/// The guard calls `standIn` and const functions; all others are the reader's.
///
/// Hot functions return 0 or more on success and a negated libfabric error otherwise. They never
/// return -FI_EAGAIN. What the provider cannot take now waits here, in order for each address, and
/// progress tries it again.
class Port {
 public:
  static fabric::Result<std::unique_ptr<Port>> open(const PortRequest& request);
  /// A port over an open endpoint; needs `start` before use.
  Port(const PortRequest& request, std::unique_ptr<transport::Transport> transport);
  /// Posts the receive slots. 0 or a negated error.
  int start();
  ~Port();

  /// Closes the endpoint, then the regions. The provider touches no buffer after this. Idempotent.
  void close();

  const fabric::EndpointTraits& traits() const { return transport_->traits(); }
  /// The fixed properties of the port beside the endpoint's traits.
  const transport::Transport& transport() const { return *transport_; }
  fabric::RawAddress address() const { return transport_->address(); }
  size_t maxTransferBytes() const;

  int admit(const uint8_t* address, size_t length);
  int forget(uint32_t address);
  /// The process behind an address, where the kernel reports it; nullptr elsewhere.
  const transport::ProcessCredentials* processOf(uint32_t address);
  fabric::Result<fabric::RawAddress> addressOf(const std::string& hostOrName,
                                               uint32_t service) const {
    return transport_->addressOf(hostOrName, service);
  }

  int send(uint32_t address, uint64_t slotOffset, uint64_t bytes);

  /// `holder`: the address of the one peer that gets the key; kAnybody if any peer may have it.
  int registerRegion(void* bytes, size_t length, uint32_t access, uint32_t holder = kAnybody);
  /// Makes the key void at once. -FI_EBUSY while the memory is still in use; the caller tries
  /// again.
  int deregisterRegion(uint32_t region);
  const fabric::Region* region(uint32_t region) const;
  /// Delivers one completion for all extents, which are copied before they are checked. A write in
  /// one provider operation (`traits().extents`) may carry a notification, if
  /// `traits().immediateBytes` is not 0. Its target gets a completion when the data is in place.
  int transfer(Operation::Type type, uint32_t address, const Extent* extents, size_t count,
               uint32_t token, const uint64_t* notification = nullptr);

  /// Returns the number of entries readable in the ring.
  uint32_t progress(uint32_t spinUs);
  /// 1 + n: the port sleeps, so wait for `waitFd` to become readable, and call `wake`. The reader
  /// of the ring takes in n entries now: sent messages. 0: the port has something to do. Negative:
  /// an error.
  int arm();
  /// To call while the port sleeps, when its descriptor is readable or it is time to look. Takes in
  /// completions. Returns true if none of them concerns the reader, so that the sleep goes on.
  bool sleepsOn();
  void wake();
  bool isAsleep() const { return asleep_; }
  /// Level-triggered; valid until the port is closed. -1 where the port is polled.
  int waitFd() const { return transport_->waitFd(); }
  /// Whether the port has no descriptor that reports completions, so that the sleeper has to look
  /// by itself.
  bool isPolled() const { return waitFd() < 0; }
  /// Whether an operation waits for a change that `waitFd` may not report, so that the sleeper has
  /// to look again by itself.
  bool wantsRetry() const {
    return !addresses_.waiting.empty() || slots_.wantsRetry() || endsLingering_ ||
           transport_->wantsLook();
  }

  /// Makes the guard answer the peer behind an address in the reader's absence. 0, or a negated
  /// error.
  int vouch(uint32_t address, Vouch vouch);
  void unvouch(uint32_t address);
  /// Whether a peer might miss the reader: a peer that gets vouches, or one that may use memory of
  /// ours.
  bool isRelevant() const { return !vouches_.byMark.empty() || regions_.granted() > 0; }

  /// The reader is absent; until `endAbsence` only `standIn` is called.
  void beginAbsence();
  void endAbsence();
  /// Makes progress in the reader's absence, which has lasted `absentNs`. The reader's buffers stay
  /// with the reader. Arrivals wait in the ring as far as it has room.
  StandIn standIn(uint64_t nowNs, uint64_t absentNs);

  uint64_t gauge(Gauge which) const;

 private:
  // port_addresses.cc
  void settle(uint32_t address);
  bool isShared(uint32_t address);
  bool cutOff(uint32_t address);
  void endLingering();
  void failAddress(uint32_t address, uint32_t status, uint32_t providerError = 0,
                   bool endsSoon = false);
  void peerGone(transport::Peer& peer);
  void noteDisconnected(const std::vector<fi_addr_t>& peers);
  void tellDisconnected();
  void takeNews();
  void failWaiting(fi_addr_t unreachable, uint32_t status);

  // port_operations.cc: sends and transfers
  int submit(Operation* operation);
  int post(Operation& operation, Address& address);
  int measure(Operation& operation) const;
  int postTransfer(Operation& operation, Address& address);
  int postPart(Operation& operation, Address& address);
  void park(Operation& send);
  void retryWaiting();
  void advance();
  void onPartDone(Part* part, uint32_t status, uint32_t providerError);
  void onSent(Operation* send, uint32_t status, uint32_t providerError);
  void cut(Operation* operation, uint32_t status, uint32_t providerError = 0);
  void finish(Operation* operation, uint32_t status, uint32_t providerError = 0);
  void answer(Operation& operation, uint32_t status, uint32_t providerError);

  // port_progress.cc: completions, receives, sleeping
  bool reap();
  bool reapError();
  void onNotification(const fi_cq_data_entry& completion);
  void onReceived(transport::Receive& receive, const fi_cq_data_entry& entry);
  void poll(bool looks);
  bool hasNews() const;
  void spin(uint32_t spinUs, bool looked);
  void look();
  void reclaim();
  int prepareSleep();

  // port_absence.cc: answering for the reader
  void onMessageInAbsence(const uint8_t* bytes, size_t length);
  void answerAsking(uint64_t nowNs, uint64_t absentNs);

  MessageSlots slots_;
  Completions completions_;
  transport::RegionTable regions_;
  AddressTable addresses_;
  Vouches vouches_;

  transport::Turned turned_;

  transport::Pool<Operation> operations_;
  transport::Pool<Part> parts_;
  uint32_t sends_ = 0;  // under way
  uint32_t mostParked_ = 0;
  std::vector<uint32_t> disconnected_;  // addresses whose end is not reported yet
  // Forgotten addresses at which the provider still works, and since when.
  std::unordered_map<uint32_t, uint64_t> lingering_;
  bool endsLingering_ = false;        // some of them may end soon
  std::vector<uint32_t> freeParked_;  // tokens of parked messages that are free again
  uint32_t transfers_ = 0;

  std::unique_ptr<transport::Transport> transport_;  // null once closed
  bool isDrained_ = false;  // the queue was read to its end, with receives posted
  // Since then a look has ended before the queue's end, or has used up the receives. The provider
  // may hold bytes that its descriptor does not report.
  bool holdsBack_ = true;
  bool asleep_ = false;
  bool tookIn_ = false;         // a look before a sleep has found something
  bool yieldsGiveWay_ = false;  // the last yield of a spin has let another thread run
  /// When a spin yields. Zero: no spin has begun since the last news.
  std::chrono::steady_clock::time_point yieldAt_{};
};

}  // namespace cinnabar::engine
