// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/bell.h"
#include "engine/claim.h"
#include "engine/keys.h"
#include "engine/mapping.h"
#include "engine/neighbours.h"
#include "engine/operation.h"
#include "engine/reassembly.h"
#include "engine/ring.h"
#include "engine/shared_endpoint.h"
#include "engine/stopped_queue.h"
#include "engine/vouch.h"
#include "fabric/memory.h"

namespace cinnabar::engine {

struct PortRequest {
  fabric::Scheme scheme = fabric::Scheme::tcp;
  std::string host;
  uint32_t service = 0;
  std::string name;
  std::string provider;          // "" lets the table choose
  std::vector<uint8_t> authKey;  // empty for none; a secret
  /// Send slots followed by receive slots. Stays valid until the port is closed.
  uint8_t* slab = nullptr;
  uint32_t slotBytes = 0;
  uint32_t sendSlots = 0;
  uint32_t receiveSlots = 0;
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
  /// Memory known to the provider, the slots included where it wants those too.
  registeredBytes = 9,
};
constexpr uint32_t kLastGauge = 9;

/// The largest piece of a direct copy.
constexpr uint64_t kCopyBytes = 256 << 10;

/// One endpoint with its slots, regions, addresses and queues. Knows nothing of Node.
///
/// One thread at a time: the one that reads the ring, or the guard in its absence (guard.h). The
/// guard calls `standIn` and what is const; all else is the reader's.
///
/// Hot functions return 0 or more on success and a negated libfabric error otherwise. -FI_EAGAIN is
/// never returned: what the provider cannot take now waits here, first come, first served for each
/// address, and is tried again by progress.
class Port {
 public:
  static fabric::Result<std::unique_ptr<Port>> open(const PortRequest& request);
  /// A port over an endpoint that is open already; wants `start` before use.
  Port(const PortRequest& request, std::shared_ptr<SharedEndpoint> endpoint);
  /// Posts the receive slots. 0 or a negated error.
  int start();
  ~Port();

  /// Closes the endpoint, then the regions. The provider touches no buffer after this. Idempotent.
  void close();

  const fabric::EndpointTraits& traits() const { return endpoint_->traits(); }
  fabric::RawAddress address() const;
  const std::string& name() const;
  bool isShm() const { return neighbours_ != nullptr; }
  size_t maxTransferBytes() const;

  int admit(const uint8_t* address, size_t length);
  int forget(uint32_t address);
  fabric::Result<fabric::RawAddress> addressOf(const std::string& hostOrName,
                                               uint32_t service) const;

  int send(uint32_t address, uint64_t slotOffset, uint64_t bytes);

  int registerRegion(void* bytes, size_t length, uint32_t access);
  /// Makes the key void at once. -FI_EBUSY while the memory is still in use; the caller asks again.
  int deregisterRegion(uint32_t region);
  const fabric::Region* region(uint32_t region) const;
  /// One completion for all extents; they are copied here before they are looked at. A write that
  /// one provider operation holds (`traits().vectors`) may carry a notice, where there are such
  /// (`traits().immediateBytes`): its target gets a completion when the data is in place.
  int transfer(Operation::Type type, uint32_t address, const Extent* extents, size_t count,
               uint32_t token, const uint64_t* notice = nullptr);

  /// Returns the number of entries readable in the ring.
  uint32_t progress(uint32_t spinUs);
  /// 1: asleep, so wait for `waitFd` to become readable, and call `wake`. 0: there is something to
  /// do. Negative: an error.
  int arm();
  void wake();
  /// Level-triggered; valid until the port is closed.
  int waitFd() const;
  /// Whether something waits for a change that `waitFd` may not tell of, so that the sleeper should
  /// look again by itself.
  bool wantsRetry() const { return !waiting_.empty() || !unposted_.empty() || isStopped(); }

  /// Has the guard answer the peer behind an address in the reader's absence. 0, or a negated
  /// error.
  int vouch(uint32_t address, Vouch vouch);
  void unvouch(uint32_t address);
  /// Whether anybody might miss the reader: peers that are vouched for, or have memory of ours.
  bool isRelevant() const { return !vouched_.empty() || lentRegions_ > 0; }

  /// The reader has not come; until `endAbsence` nothing is done but `standIn`.
  void beginAbsence();
  void endAbsence();
  /// Makes progress in the reader's absence, which has lasted `absentNs`. What it was lent stays
  /// with it, and what comes waits in the ring as far as that has room.
  StandIn standIn(uint64_t nowNs, uint64_t absentNs);

  uint64_t gauge(Gauge which) const;

 private:
  struct Address {
    bool used = false;
    bool forgotten = false;
    fi_addr_t fabric = FI_ADDR_NOTAVAIL;
    Neighbour* neighbour = nullptr;  // shm
    OperationQueue queue;
    uint32_t posted = 0;  // sends and parts of transfers at the provider
    uint64_t retryAt = 0;
    uint64_t pauseNs = 0;
    std::unique_ptr<Vouch> vouch;
  };

  // port.cc: opening, closing, regions
  static fabric::Result<std::unique_ptr<Port>> openShm(const PortRequest& request);
  static fabric::Result<std::unique_ptr<Port>> openIp(const PortRequest& request);
  static fabric::Result<std::unique_ptr<Port>> started(
      const PortRequest& request, fabric::Result<std::unique_ptr<fabric::Endpoint>> endpoint);

  void withdraw(uint32_t region);
  void withdrawAll();
  bool isCopied(uint32_t region);

  // port_addresses.cc
  Address* find(uint32_t address);
  uint32_t takeAddress();
  void settle(uint32_t address);
  void failAddress(uint32_t address, uint32_t status);
  void peerGone(Neighbour* neighbour);

  // port_operations.cc: sends and transfers
  int submit(Operation* operation);
  int post(Operation& operation, Address& address);
  int postFragments(Operation& operation, Address& address);
  int measure(Operation& operation) const;
  int postTransfer(Operation& operation, Address& address);
  int postPart(Operation& operation, Address& address);
  int postProof(fi_msg_rma& message);
  int checkKeys(const Operation& operation, const Neighbour& neighbour, size_t count) const;
  void retryWaiting(bool evenIfEarly);
  void giveBack(Part& part);
  uint32_t onPosted(const Address& address, ssize_t status);
  void onBroken(uint32_t address, uint32_t connection);
  void onPartDone(Part* part, uint32_t status, uint32_t providerError);
  void onSent(Operation* send, uint32_t status, uint32_t providerError);
  void copyPieces();
  bool copyPiece(Operation& operation);
  int copyRuns(Operation& operation, Neighbour& neighbour);
  void cut(Operation* operation, uint32_t status);
  void finish(Operation* operation, uint32_t status, uint32_t providerError = 0);
  void answer(Operation& operation, uint32_t status, uint32_t providerError);

  // port_progress.cc: completions, receives, sleeping
  void postReceive(uint32_t slot);
  void retryReceives();
  bool reap();
  void reapError();
  void onNotice(const fi_cq_data_entry& completion);
  void onReceived(Receive& receive, const fi_cq_data_entry& entry);
  void deliver(const Entry& entry);
  void flushOverflow();
  void poll(bool doorbell);
  void spin(uint32_t spinUs, bool rang);
  void pollDoorbell();
  void reclaim();
  void noteLevels();
  int prepareSleep();

  // port_absence.cc: answering for the reader
  void onMessageInAbsence(const uint8_t* bytes, size_t length);
  void answerAsking(uint64_t nowNs, uint64_t absentNs);
  void say(Address& address);

  bool isStopped() const { return stopped_ && stopped_->isStopped(); }
  uint32_t usedReceives() const { return receiveSlots_ - postedReceives_; }
  uint32_t unreadCompletions() const {
    return ring_.readable() + static_cast<uint32_t>(overflow_.size());
  }

  fabric::Region* findRegion(uint64_t region) const;
  uint64_t slabBytes() const { return uint64_t{slotBytes_} * (sendSlots_ + receiveSlots_); }

  std::string name_;
  fabric::Scheme scheme_;
  uint8_t* slab_;
  uint32_t slotBytes_;
  uint32_t sendSlots_;
  uint32_t receiveSlots_;
  Ring ring_;

  // Closed in this order by close(); the members' own order is of no matter.
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<StoppedQueue> stopped_;  // where the provider needs it
  std::unique_ptr<Bell> bell_;
  std::unique_ptr<KeyTable> keys_;
  std::unique_ptr<Mappings> mappings_;
  std::unique_ptr<ShmClaim> claim_;
  std::shared_ptr<SharedEndpoint> shared_;
  fabric::Endpoint* endpoint_;
  std::unique_ptr<fabric::Region> slabRegion_;  // where the provider wants local registrations
  std::vector<std::unique_ptr<fabric::Region>> regions_;
  std::vector<uint32_t> freeRegions_;
  /// Copies that neighbours had begun when a region was withdrawn, by region.
  std::unordered_map<uint32_t, std::vector<UnderWay>> awaited_;

  std::deque<Receive> receives_;
  std::vector<uint32_t> unposted_;  // receive slots the provider would not take yet
  uint32_t postedReceives_ = 0;
  std::vector<bool> busySlots_;  // send slots that belong to an operation
  Reassembly reassembly_;

  Pool<Operation> operations_;
  Pool<Part> parts_;
  std::deque<Address> addresses_;
  std::vector<uint32_t> freeAddresses_;
  std::vector<uint32_t> usedAddresses_;  // free once the ring has been read
  std::vector<uint32_t> waiting_;        // addresses with a queue
  OperationQueue copies_;                // direct copies under way
  uint64_t copyNs_ = 0;                  // spent on them since the last call of progress ended
  uint64_t slowdown_ = 1;                // by which their pieces are smaller than at most
  uint64_t lentNs_ = 0;                  // since when shm parts have been at the provider
  uint32_t lent_ = 0;                    // how many of them there are
  std::deque<Entry> overflow_;           // completions made here that found the ring full

  uint32_t sends_ = 0;
  uint32_t transfers_ = 0;
  uint32_t liveAddresses_ = 0;
  uint32_t lentRegions_ = 0;
  uint64_t registeredBytes_ = 0;
  uint32_t mostReceives_ = 0;
  uint32_t mostCompletions_ = 0;
  /// Addresses that are vouched for, by what their messages carry.
  std::unordered_map<uint64_t, uint32_t> vouched_;
  uint32_t sinceDoorbell_ = 0;
  bool queueDrained_ = false;
  bool asleep_ = false;
  bool absent_ = false;
};

}  // namespace cinnabar::engine
