// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/shm_transport.h"

#include <rdma/fi_errno.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/descriptor_reserve.h"
#include "fabric/shm_room.h"
#include "transport/open_endpoint.h"

namespace cinnabar::shm {

using transport::Arrival;
using transport::Ended;
using transport::Operation;
using transport::Part;
using transport::Peer;
using transport::RegionTable;

namespace {

// How long a port that closes waits for neighbours in the middle of a copy.
constexpr auto kCloseWait = std::chrono::milliseconds(10);
// To look at the doorbell costs a system call, so it is done once in so many turns, and whenever
// spinning ended with nothing.
constexpr uint32_t kLookEvery = 32;
// For room in /dev/shm, which a port that opens needs more of than one that is open.
constexpr int kRoomAttempts = 20;
constexpr useconds_t kRoomPauseUs = 10'000;

/// Where the provider copies, one operation may follow another without a gap, and a neighbour that
/// takes its memory back would wait for ever. So now and then nothing is begun for a while.
bool isPause(uint64_t busyNs) { return (busyNs >> 24) % 8 == 1; }  // 16.8 ms of 134

/// Others that open now need their room for a few milliseconds only.
fabric::Result<std::unique_ptr<fabric::Endpoint>> openWhereThereIsRoom(
    const transport::OpenRequest& request, const fabric::RawAddress& source) {
  for (int attempt = 0;; ++attempt) {
    fabric::ShmRoom room;
    auto endpoint = transport::openEndpoint(request, source);
    if (endpoint) return endpoint;
    auto shortage = room.shortage();
    if (!shortage) return endpoint;
    if (attempt == kRoomAttempts) return *shortage;
    usleep(kRoomPauseUs);
  }
}

Neighbour& neighbourOf(Peer& peer) { return static_cast<Neighbour&>(peer); }

}  // namespace

fabric::Result<std::unique_ptr<transport::Transport>> ShmTransport::open(
    const transport::OpenRequest& request) {
  if (auto obstacle = fabric::shmObstacle()) return *obstacle;
  auto claim = ShmClaim::take(request.name);
  if (!claim) return claim.failure();
  auto doorbell = Doorbell::create();
  if (!doorbell)
    return fabric::Failure{"memfd_create", errno, strerror(errno), "cannot make a doorbell"};
  auto keys = KeyTable::create();
  if (!keys)
    return fabric::Failure{"memfd_create", errno, strerror(errno), "cannot make a key table"};

  const std::string& name = (*claim)->fabricName();
  fabric::RawAddress source(name.c_str(), name.c_str() + name.size() + 1);
  auto endpoint = openWhereThereIsRoom(request, source);
  if (!endpoint) return endpoint.failure();
  std::unique_ptr<ShmTransport> opened(
      new ShmTransport(SharedEndpoint::publish(name, std::move(*endpoint)), std::move(*claim),
                       std::move(doorbell), std::move(keys), request.slotBytes));
  auto neighbours = Neighbours::open(*opened->claim_, *opened->doorbell_, *opened->keys_,
                                     *opened->mappings_, request.slotBytes);
  if (!neighbours) return neighbours.failure();
  opened->neighbours_ = std::move(*neighbours);
  return std::unique_ptr<transport::Transport>(std::move(opened));
}

ShmTransport::ShmTransport(std::shared_ptr<SharedEndpoint> shared, std::unique_ptr<ShmClaim> claim,
                           std::unique_ptr<Doorbell> doorbell, std::unique_ptr<KeyTable> keys,
                           uint32_t slotBytes)
    // It lives as long as what it is shared by.
    : Transport(fabric::Scheme::shm,
                std::shared_ptr<fabric::Endpoint>(shared, &shared->endpoint())),
      doorbell_(std::move(doorbell)),
      keys_(std::move(keys)),
      mappings_(std::make_unique<Mappings>(*endpoint_)),
      claim_(std::move(claim)),
      shared_(std::move(shared)),
      reassembly_(slotBytes),
      copies_(*doorbell_) {
  looks_ = true;
  news_ = &hasTurnedAway_;
  base::reserveDescriptor();
}

std::optional<fabric::Failure> ShmTransport::publish() {
  if (int code = claim_->publish(); code != 0) {
    return fabric::Failure{"listen doorbell", code, strerror(code), "cannot publish the shm name"};
  }
  fabric::trimRegion(claim_->regionFile());
  mappings_->setRegion(claim_->regionFile());
  stopped_ = StoppedQueue::of(claim_->regionFile());
  return std::nullopt;
}

/// Peers see the end of the sockets first and stop posting; then nobody of this process copies any
/// more; then the endpoint goes, or stays behind as a mere mapping for other ports of this process.
void ShmTransport::close(const RegionTable& regions) {
  if (neighbours_) withdrawAll(regions);
  // While the senders are still mapped, whose introductions may be in the queue.
  if (traits().receiveBeforeClose) endpoint_->receiveAll();
  shared_->retire();
  neighbours_.reset();
  stopped_.reset();
  mappings_.reset();
  claim_->release();
  if (!shared_->isLeased()) endpoint_->shut();
}

// Peers

fabric::Result<fabric::RawAddress> ShmTransport::addressOf(const std::string& name,
                                                           uint32_t) const {
  if (fabric::isShmName(name)) return fabric::encodeShmAddress(name);
  return fabric::Failure{"address", EINVAL, "EINVAL", "not an shm name: \"" + name + "\""};
}

int ShmTransport::admit(const uint8_t* bytes, size_t length, Peer** into) {
  auto name = fabric::decodeShmAddress(bytes, length);
  if (!name) return -FI_EINVAL;
  int status = 0;
  Neighbour* neighbour = neighbours_->meet(*name, &status);
  if (neighbour == nullptr) return status;
  *into = neighbour;
  return 0;
}

void ShmTransport::release(Peer& peer) { neighbours_->release(&neighbourOf(peer)); }

void ShmTransport::onGone(Peer& peer) { reassembly_.drop(neighbourOf(peer).id); }

// Operations

/// One injected piece or several; see reassembly.h.
int ShmTransport::send(Operation& operation, const uint8_t* bytes, void*) {
  Neighbour& neighbour = neighbourOf(*operation.peer);
  if (!neighbour.isReady()) return -FI_EAGAIN;
  uint64_t most = std::min<uint64_t>(traits().injectBytes, neighbour.slotBytes);
  ssize_t status;
  doorbell_->beginPost();
  if (operation.bytes <= most) {
    status = fi_inject(endpoint_->ep(), bytes, operation.bytes, neighbour.address);
  } else {
    do {
      uint64_t piece = std::min(most, operation.bytes - operation.done);
      bool last = operation.done + piece == operation.bytes;
      uint64_t tag = fragmentTag(neighbour.theirId, operation.done, last);
      status =
          fi_injectdata(endpoint_->ep(), bytes + operation.done, piece, tag, neighbour.address);
      if (status == 0) operation.done += piece;
    } while (status == 0 && operation.done < operation.bytes);
  }
  doorbell_->endPost();
  // After EAGAIN too: the provider may have left its introduction in the peer's queue.
  neighbour.doorbell->ring();
  if (status != 0) return static_cast<int>(status);
  neighbour.mapping->answered = true;
  return transport::kDone;
}

void ShmTransport::say(Peer& peer, const uint8_t* bytes, size_t length) {
  Neighbour& neighbour = neighbourOf(peer);
  if (!neighbour.isReady() || length > neighbour.slotBytes) return;
  doorbell_->beginPost();
  if (fi_inject(endpoint_->ep(), bytes, length, neighbour.address) == 0)
    neighbour.mapping->answered = true;
  doorbell_->endPost();
  neighbour.doorbell->ring();
}

int ShmTransport::beginTransfer(Operation& operation) {
  Neighbour& neighbour = neighbourOf(*operation.peer);
  if (!neighbour.isReady()) return -FI_EAGAIN;
  if (!neighbour.copies) return 0;
  bool isFirst = copies_.isEmpty();
  copies_.add(operation);
  isMoving_ = hasMoved_ = true;
  return isFirst && operation.bytes <= kCopyBytes ? transport::kTakenNow : transport::kTaken;
}

int ShmTransport::postPart(Part& part, const fi_msg_rma& message, int*) {
  Neighbour& neighbour = neighbourOf(*part.operation->peer);
  uint64_t now = base::nowNs();
  if (providersCopies_ > 0 && isPause(now - providersSinceNs_)) return -FI_EAGAIN;
  doorbell_->beginCopy();
  if (int refusal = checkKeys(part, neighbour, message.iov_count); refusal != 0) {
    doorbell_->endCopy();
    return -refusal;
  }
  if (providersCopies_++ == 0) providersSinceNs_ = now;
  part.isCopy = true;
  doorbell_->beginPost();
  int status = postMessage(part, message);
  doorbell_->endPost();
  if (status != 0) letGo(part);
  return status;
}

/// Whether the peer lets us use the extents of a part: 0 or an error.
int ShmTransport::checkKeys(const Part& part, const Neighbour& neighbour, size_t count) const {
  const Operation& operation = *part.operation;
  for (size_t i = 0; i < count; ++i) {
    const transport::Extent& extent = operation.extents[operation.extent + i];
    KeyRange range;
    if (!neighbour.keys->find(extent.key, &range)) return FI_ENOKEY;
    int refusal = range.refuses(extent.remote, extent.bytes, accessFor(operation));
    if (refusal != 0) return refusal;
  }
  return 0;
}

void ShmTransport::endTransfer(Operation& operation) {
  Neighbour& neighbour = neighbourOf(*operation.peer);
  neighbour.doorbell->ring();
  if (operation.parts > 0) neighbour.mapping->answered = true;
}

void ShmTransport::letGo(Part& part) {
  if (!part.isCopy) return;
  part.isCopy = false;
  --providersCopies_;
  doorbell_->endCopy();
}

Arrival ShmTransport::assemble(uint64_t data, uint8_t* bytes, size_t length) {
  auto sender = static_cast<uint32_t>(data >> 32);
  if (neighbours_->findById(sender) == nullptr) return {.isWhole = false};
  Arrival arrival;
  auto outcome = reassembly_.add(data, bytes, length, &arrival.bytes);
  arrival.isWhole =
      outcome == Reassembly::Outcome::complete || outcome == Reassembly::Outcome::tooLarge;
  if (outcome == Reassembly::Outcome::tooLarge) arrival.status = FI_ETRUNC;
  return arrival;
}

const std::vector<Ended>& ShmTransport::advance(const RegionTable& regions) {
  over_.clear();
  copies_.advance(regions, over_);
  isMoving_ = !copies_.isEmpty();
  return over_;
}

std::vector<Operation*> ShmTransport::takeBack(uint32_t address) {
  auto taken = copies_.takeBack(address);
  isMoving_ = !copies_.isEmpty();
  return taken;
}

void ShmTransport::onTurnEnded() {
  copies_.endTurn();
  hasMoved_ = isMoving_;
}

// Turns and sleep

bool ShmTransport::beginTurn() {
  ++turnsSinceLook_;
  return hasSlept_ || isLookDue();
}

bool ShmTransport::isLookDue() const {
  return turnsSinceLook_ >= kLookEvery || neighbours_->isMeeting() || wantsLook();
}

bool ShmTransport::look(std::vector<Peer*>& gone) {
  // Nearly always a sleep ends with a ring. To take it is one system call, to ask the sockets too
  // is two. What happens at those can wait: it makes the descriptor readable until it is dealt
  // with.
  if (hasSlept_ && doorbell_->drain() && !isLookDue()) {
    hasSlept_ = false;
    return false;
  }
  hasSlept_ = false;
  turnsSinceLook_ = 0;
  neighbours_->poll(gone);
  hasTurnedAway_ = neighbours_->turned().away != turnedAway_;
  bool goesOn = stopped_ && stopped_->passOver(*neighbours_);
  // What a peer sent before it went is already here, and comes first.
  return goesOn || !gone.empty();
}

transport::News ShmTransport::takeNews() {
  hasTurnedAway_ = false;
  turnedAway_ = neighbours_->turned().away;
  return {.turned = neighbours_->turned()};
}

void ShmTransport::endPoll(bool isDrained) {
  // Behind an entry that nobody fills there may be anything.
  if (mappings_->hasRetired() && isDrained && !wantsLook()) mappings_->onDrained();
  if (doorbell_->takeStarved()) neighbours_->ringAll();
}

/// See doorbell.h. Old rings were swallowed by the poll before; a ring that comes after this must
/// stay in the eventfd.
int ShmTransport::announceSleep() {
  doorbell_->fallAsleep();
  return 0;
}

void ShmTransport::askForRoom(Peer& peer) {
  Neighbour& neighbour = neighbourOf(peer);
  if (neighbour.isReady()) neighbour.doorbell->setStarved();
}

void ShmTransport::lastLook() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (doorbell_->takeStarved()) neighbours_->ringAll();
}

void ShmTransport::wake() {
  doorbell_->wake();
  hasSlept_ = true;
}

// Keys

bool ShmTransport::publishKey(const fabric::Region& region, uint32_t access) {
  return access == 0 || keys_->add(region.key(), region.base(), region.length(), access);
}

/// The provider knows the key to the end: it never answers one that it does not know, and the
/// neighbour that began with it would be waited for in vain.
void ShmTransport::withdraw(uint32_t index, fabric::Region& region) {
  region.withdraw(false);
  if (region.key() == 0) return;
  keys_->remove(region.key());
  auto copies = neighbours_->copiesUnderWay();
  if (!copies.empty()) awaited_[index] = std::move(copies);
}

bool ShmTransport::isCopied(uint32_t index) {
  auto found = awaited_.find(index);
  if (found == awaited_.end()) return false;
  std::erase_if(found->second,
                [this](const UnderWay& copy) { return !neighbours_->isCopying(copy); });
  if (!found->second.empty()) return true;
  awaited_.erase(found);
  return false;
}

/// A neighbour that was stopped in the middle of a copy is not waited for.
void ShmTransport::withdrawAll(const RegionTable& regions) {
  regions.each([&](uint32_t index, fabric::Region& region) {
    if (!region.isWithdrawn()) withdraw(index, region);
  });
  auto end = std::chrono::steady_clock::now() + kCloseWait;
  regions.each([&](uint32_t index, fabric::Region&) {
    while (isCopied(index) && std::chrono::steady_clock::now() < end) sched_yield();
  });
}

}  // namespace cinnabar::shm
