// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/shm/byte_ring.h"
#include "transport/shm/claim.h"
#include "transport/shm/direct_copies.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/keys.h"
#include "transport/shm/neighbours.h"
#include "transport/shm/ring_copies.h"
#include "transport/transport.h"

namespace cinnabar::shm {

/// Shared memory between processes of one user. Messages go through a ring for each direction of
/// two ports that know each other (byte_ring.h), transfers are copies between the processes
/// (direct_copies.h, ring_copies.h). Needs no libfabric. docs/design/shm.md.
class ShmTransport : public transport::Transport {
 public:
  static fabric::Result<std::unique_ptr<transport::Transport>> open(
      const transport::OpenRequest& request);

  std::optional<fabric::Failure> publish() override;
  void close(const transport::RegionTable& regions) override;

  const std::string& name() const override { return claim_->name(); }
  fabric::RawAddress address() const override { return fabric::encodeShmAddress(claim_->name()); }
  int waitFd() const override { return neighbours_->waitFd(); }
  bool reportsDeath() const override { return true; }
  bool revokesKeys() const override { return true; }
  bool refusesSilently() const override { return false; }
  /// A full ring has a live reader, or its end is reported.
  bool thinsRetries() const override { return false; }

  fabric::Result<fabric::RawAddress> addressOf(const std::string& name, uint32_t) const override;
  int admit(const uint8_t* address, size_t length, transport::Peer** into) override;
  void release(transport::Peer& peer) override;

  int send(transport::Operation& operation, const uint8_t* bytes, void* descriptor) override;
  void say(transport::Peer& peer, const uint8_t* bytes, size_t length) override;
  int beginTransfer(transport::Operation& operation) override;

  ssize_t receive(void* bytes, size_t length, void* descriptor, void* context) override;
  ssize_t read(fi_cq_data_entry* entries, size_t count) override;
  ssize_t readError(fi_cq_err_entry*) override { return 0; }

  const std::vector<transport::Ended>& advance(const transport::RegionTable& regions) override;
  std::vector<transport::Operation*> takeBack(uint32_t address, transport::Peer& peer) override;

  bool beginTurn() override;
  bool look(std::vector<transport::Peer*>& gone) override;
  transport::News takeNews() override;
  bool countsConnections() const override { return true; }
  size_t connectionCount() const override { return neighbours_->count(); }
  bool wantsLook() const override { return neighbours_->hasEnded(); }

  bool looksBeforeSleep() const override { return isLookDue(); }
  int announceSleep() override;
  void askForRoom(transport::Peer& peer) override;
  void wake() override;

  int registerMemory(void* bytes, size_t length, uint32_t access, uint64_t key,
                     std::unique_ptr<fabric::Region>* into) override;
  bool publishKey(fabric::Region& region, uint32_t access, transport::Peer* holder) override;
  void withdraw(uint32_t index, fabric::Region& region) override;
  bool isCopied(uint32_t index) override;

 protected:
  void onTurnEnded() override;

 private:
  /// A slot for a message.
  struct Receive {
    uint8_t* bytes;
    size_t length;
    void* context;
  };

  ShmTransport(std::unique_ptr<ShmClaim> claim, std::unique_ptr<Doorbell> doorbell,
               std::unique_ptr<KeyTable> keys, uint32_t slotBytes);
  bool isLookDue() const;
  void retryCopies();
  size_t readFrom(Neighbour& neighbour, fi_cq_data_entry* entries, size_t count);
  void withdrawAll(const transport::RegionTable& regions);

  // Closed in this order by close(); the members' own order is of no matter.
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<Doorbell> doorbell_;
  std::unique_ptr<KeyTable> keys_;
  std::unique_ptr<ShmClaim> claim_;

  std::vector<Receive> receives_;  // the last is taken first: it is in the processor's cache
  size_t nextRing_ = 0;            // of those that are readable: where the next look begins
  DirectCopies copies_;
  RingCopies ringCopies_;
  std::vector<transport::Ended> over_;  // what `advance` gave last
  /// Copies that neighbours had begun when a region was withdrawn, and how long they are waited
  /// for.
  struct Awaited {
    std::vector<UnderWay> copies;
    uint64_t untilNs;
  };
  std::unordered_map<uint32_t, Awaited> awaited_;  // by region
  uint32_t turnsSinceLook_ = 0;
  bool hasSlept_ = false;    // since the last look
  uint64_t turnedAway_ = 0;  // of which the port knows
  std::atomic<bool> hasTurnedAway_ = false;
};

}  // namespace cinnabar::shm
