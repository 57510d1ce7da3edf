// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/shm/claim.h"
#include "transport/shm/direct_copies.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/keys.h"
#include "transport/shm/mapping.h"
#include "transport/shm/neighbours.h"
#include "transport/shm/reassembly.h"
#include "transport/shm/shared_endpoint.h"
#include "transport/shm/stopped_queue.h"
#include "transport/transport.h"

namespace cinnabar::shm {

/// Shared memory between processes of one user. libfabric's provider moves small messages; what
/// peers have to know of each other, sleep, death, keys and large copies are done here.
/// docs/design/shm.md.
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
  /// A full queue is emptied by a process that lives, or its end is told.
  bool thinsRetries() const override { return false; }

  fabric::Result<fabric::RawAddress> addressOf(const std::string& name, uint32_t) const override;
  int admit(const uint8_t* address, size_t length, transport::Peer** into) override;
  void release(transport::Peer& peer) override;
  void onGone(transport::Peer& peer) override;

  int send(transport::Operation& operation, const uint8_t* bytes, void* descriptor) override;
  void say(transport::Peer& peer, const uint8_t* bytes, size_t length) override;
  int beginTransfer(transport::Operation& operation) override;
  int postPart(transport::Part& part, const fi_msg_rma& message, int* stop) override;
  void endTransfer(transport::Operation& operation) override;
  void letGo(transport::Part& part) override;
  transport::Arrival assemble(uint64_t data, uint8_t* bytes, size_t length) override;

  const std::vector<transport::Ended>& advance(const transport::RegionTable& regions) override;
  std::vector<transport::Operation*> takeBack(uint32_t address) override;

  bool beginTurn() override;
  bool look(std::vector<transport::Peer*>& gone) override;
  void endPoll(bool isDrained) override;
  transport::News takeNews() override;
  bool countsConnections() const override { return true; }
  size_t connectionCount() const override { return neighbours_->count(); }
  bool wantsLook() const override { return stopped_ && stopped_->isStopped(); }

  bool looksBeforeSleep() const override { return isLookDue(); }
  int announceSleep() override;
  void askForRoom(transport::Peer& peer) override;
  void lastLook() override;
  void wake() override;

  bool publishKey(const fabric::Region& region, uint32_t access) override;
  void withdraw(uint32_t index, fabric::Region& region) override;
  bool isCopied(uint32_t index) override;

 protected:
  void onTurnEnded() override;

 private:
  ShmTransport(std::shared_ptr<SharedEndpoint> shared, std::unique_ptr<ShmClaim> claim,
               std::unique_ptr<Doorbell> doorbell, std::unique_ptr<KeyTable> keys,
               uint32_t slotBytes);
  bool isLookDue() const;
  int checkKeys(const transport::Part& part, const Neighbour& neighbour, size_t count) const;
  void withdrawAll(const transport::RegionTable& regions);

  // Closed in this order by close(); the members' own order is of no matter.
  std::unique_ptr<Neighbours> neighbours_;
  std::unique_ptr<StoppedQueue> stopped_;  // where the provider needs it
  std::unique_ptr<Doorbell> doorbell_;
  std::unique_ptr<KeyTable> keys_;
  std::unique_ptr<Mappings> mappings_;
  std::unique_ptr<ShmClaim> claim_;
  std::shared_ptr<SharedEndpoint> shared_;

  Reassembly reassembly_;
  DirectCopies copies_;
  std::vector<transport::Ended> over_;  // what `advance` gave last
  /// Copies that neighbours had begun when a region was withdrawn, by region.
  std::unordered_map<uint32_t, std::vector<UnderWay>> awaited_;
  uint32_t providersCopies_ = 0;   // parts at the provider, where there are no direct copies
  uint64_t providersSinceNs_ = 0;  // since when there have been some
  uint32_t turnsSinceLook_ = 0;
  bool hasSlept_ = false;    // since the last look
  uint64_t turnedAway_ = 0;  // of which the port knows
  std::atomic<bool> hasTurnedAway_ = false;
};

}  // namespace cinnabar::shm
