// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/shm_transport.h"

#include <rdma/fi_errno.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/descriptor_reserve.h"
#include "fabric/address.h"

namespace cinnabar::shm {

using transport::Ended;
using transport::Operation;
using transport::Peer;
using transport::RegionTable;

namespace {

// How long a port that closes waits for neighbours in the middle of a copy: in other processes,
// which may be stopped, and in this one, to which the memory may be given again at once.
constexpr auto kCloseWait = std::chrono::milliseconds(10);
constexpr auto kCloseWaitHere = std::chrono::seconds(1);
// How long a neighbour may be in the middle of one copy of withdrawn memory. A copy takes
// microseconds, and a process is stopped behind it, not within. A neighbour that takes longer is
// expelled.
constexpr uint64_t kLongestCopyNs = 5'000'000'000;
// The sockets are checked once in this many turns, and whenever spinning ended with nothing: each
// check costs a system call.
constexpr uint32_t kLookEvery = 32;
// Records of one ring that are taken before the next ring has its turn.
constexpr size_t kRecordsInTurn = 16;

Neighbour& neighbourOf(Peer& peer) { return static_cast<Neighbour&>(peer); }

fabric::EndpointTraits traitsFor(uint32_t slotBytes) {
  fabric::EndpointTraits traits;
  traits.provider = "shm";
  traits.providerVersion = FI_VERSION(HelloMessage::kVersion, 0);
  // A message has left once it is in the ring.
  traits.injectBytes = traits.sayBytes = slotBytes;
  traits.maxMessageBytes = SIZE_MAX;
  traits.mrMode = FI_MR_VIRT_ADDR;
  return traits;
}

fabric::Failure cannotShare(const char* what) {
  return {"memfd_create", errno, strerror(errno), what};
}

}  // namespace

fabric::Result<std::unique_ptr<transport::Transport>> ShmTransport::open(
    const transport::OpenRequest& request) {
  if (ringBytesFor(request.slotBytes) == 0) {
    return fabric::Failure{"open", EINVAL, "EINVAL", "slots that fit no ring"};
  }
  auto claim = ShmClaim::take(request.name);
  if (!claim) return claim.failure();
  auto doorbell = Doorbell::create();
  if (!doorbell) return cannotShare("cannot make a doorbell");
  auto keys = KeyTable::create();
  if (!keys) return cannotShare("cannot make a key table");
  std::unique_ptr<ShmTransport> opened(
      new ShmTransport(std::move(*claim), std::move(doorbell), std::move(keys), request.slotBytes));
  auto neighbours =
      Neighbours::open(*opened->claim_, *opened->doorbell_, *opened->keys_, request.slotBytes);
  if (!neighbours) return neighbours.failure();
  opened->neighbours_ = std::move(*neighbours);
  return std::unique_ptr<transport::Transport>(std::move(opened));
}

ShmTransport::ShmTransport(std::unique_ptr<ShmClaim> claim, std::unique_ptr<Doorbell> doorbell,
                           std::unique_ptr<KeyTable> keys, uint32_t slotBytes)
    : doorbell_(std::move(doorbell)),
      keys_(std::move(keys)),
      claim_(std::move(claim)),
      copies_(*doorbell_),
      ringCopies_(*keys_) {
  traits_ = traitsFor(slotBytes);
  looks_ = true;
  news_ = &hasTurnedAway_;
  base::reserveDescriptor();
}

std::optional<fabric::Failure> ShmTransport::publish() {
  int code = claim_->publish();
  if (code == 0) return std::nullopt;
  return fabric::Failure{"listen", code, strerror(code), "cannot publish the shm name"};
}

/// Ends all copies from and to the port's memory. Then peers see the end of the sockets.
void ShmTransport::close(const RegionTable& regions) {
  if (neighbours_) withdrawAll(regions);
  neighbours_.reset();
  claim_.reset();
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

// Messages

int ShmTransport::send(Operation& operation, const uint8_t* bytes, void*) {
  Neighbour& neighbour = neighbourOf(*operation.peer);
  if (!neighbour.isReady()) return -FI_EAGAIN;
  if (operation.bytes > neighbour.slotBytes) return -FI_EMSGSIZE;
  if (!neighbour.outbound->write(RecordKind::message, bytes, operation.bytes)) return -FI_EAGAIN;
  neighbour.doorbell->ring();
  return transport::kDone;
}

void ShmTransport::say(Peer& peer, const uint8_t* bytes, size_t length) {
  Neighbour& neighbour = neighbourOf(peer);
  if (!neighbour.isReady() || length > neighbour.slotBytes) return;
  if (neighbour.outbound->write(RecordKind::message, bytes, length)) neighbour.doorbell->ring();
}

ssize_t ShmTransport::receive(void* bytes, size_t length, void*, void* context) {
  receives_.push_back({static_cast<uint8_t*>(bytes), length, context});
  return 0;
}

ssize_t ShmTransport::read(fi_cq_data_entry* entries, size_t count) {
  const auto& rings = neighbours_->readable();
  size_t taken = 0;
  // Round robin, so that no ring is always first and a peer that floods us gets only its share.
  for (size_t empty = 0; taken < count && empty < rings.size();) {
    if (nextRing_ >= rings.size()) nextRing_ = 0;
    Neighbour* neighbour = rings[nextRing_++];
    size_t got =
        neighbour->inbound->hasRecord() ? readFrom(*neighbour, entries + taken, count - taken) : 0;
    taken += got;
    empty = got > 0 ? 0 : empty + 1;
  }
  isMoving_ = isMoving_ || ringCopies_.hasWork();
  return taken > 0 ? static_cast<ssize_t>(taken) : -FI_EAGAIN;
}

/// How many messages were taken.
size_t ShmTransport::readFrom(Neighbour& neighbour, fi_cq_data_entry* entries, size_t count) {
  RingReader& ring = *neighbour.inbound;
  size_t taken = 0;
  bool isSound = true;
  Record record;
  for (size_t records = 0; records < kRecordsInTurn && taken < count && isSound; ++records) {
    auto look = ring.look(&record);
    if (look == RingReader::Look::nothing) break;
    isSound = look == RingReader::Look::record;
    if (!isSound) break;
    if (record.kind != RecordKind::message) {
      isSound = ringCopies_.take(neighbour, record);
    } else {
      if (receives_.empty()) break;
      Receive receive = receives_.back();
      isSound = record.length <= receive.length;
      if (!isSound) break;
      receives_.pop_back();
      memcpy(receive.bytes, record.bytes, record.length);
      entries[taken++] = {receive.context, FI_RECV | FI_MSG, record.length, nullptr, 0};
    }
    ring.pop(record);
  }
  if (!isSound) {
    neighbours_->expel(neighbour);
  } else if (ring.release() && neighbour.isReady()) {
    neighbour.doorbell->ring();
  }
  return taken;
}

// Transfers

int ShmTransport::beginTransfer(Operation& operation) {
  Neighbour& neighbour = neighbourOf(*operation.peer);
  if (!neighbour.isReady()) return -FI_EAGAIN;
  isMoving_ = hasMoved_ = true;
  if (!neighbour.copies) {
    ringCopies_.add(operation);
    return transport::kTakenNow;
  }
  bool isFirst = copies_.isEmpty();
  copies_.add(operation);
  return isFirst && operation.bytes <= kCopyBytes ? transport::kTakenNow : transport::kTaken;
}

const std::vector<Ended>& ShmTransport::advance(const RegionTable& regions) {
  over_.clear();
  copies_.advance(regions, over_);
  if (ringCopies_.hasWork()) ringCopies_.advance(neighbours_->readable(), regions, over_);
  isMoving_ = !copies_.isEmpty();
  return over_;
}

std::vector<Operation*> ShmTransport::takeBack(uint32_t address, Peer& peer) {
  auto taken = copies_.takeBack(address);
  auto asked = ringCopies_.takeBack(address, neighbourOf(peer));
  taken.insert(taken.end(), asked.begin(), asked.end());
  isMoving_ = !copies_.isEmpty() || ringCopies_.hasWork();
  return taken;
}

void ShmTransport::onTurnEnded() {
  copies_.endTurn();
  hasMoved_ = isMoving_;
}

// Turns and sleep

bool ShmTransport::beginTurn() {
  ++turnsSinceLook_;
  retryCopies();
  if (!hasSlept_) return isLookDue();
  // Nearly always a sleep ends with a ring of the one neighbour that has sent something. Its record
  // shows which, until it is read. To take the ring is one system call, to ask for all sockets
  // takes three. What happens at those can wait: it makes the descriptor readable until it is dealt
  // with.
  if (isLookDue() || !neighbours_->takeRings()) return true;
  hasSlept_ = false;
  return false;
}

bool ShmTransport::isLookDue() const {
  return turnsSinceLook_ >= kLookEvery || neighbours_->isMeeting() || wantsLook();
}

/// Full rings may have room again.
void ShmTransport::retryCopies() {
  ringCopies_.retry();
  isMoving_ = isMoving_ || ringCopies_.hasWork();
}

bool ShmTransport::look(std::vector<Peer*>& gone) {
  hasSlept_ = false;
  turnsSinceLook_ = 0;
  neighbours_->poll(gone);
  hasTurnedAway_ = neighbours_->turned().away != turnedAway_;
  // What a peer sent before it went was read, and has not left the port yet.
  return !gone.empty() || wantsLook();
}

transport::News ShmTransport::takeNews() {
  hasTurnedAway_ = false;
  turnedAway_ = neighbours_->turned().away;
  return {.turned = neighbours_->turned()};
}

/// See doorbell.h. A ring that comes after this must stay in its socket.
int ShmTransport::announceSleep() {
  doorbell_->fallAsleep();
  if (!ringCopies_.isBlocked()) return 0;
  for (Neighbour* neighbour : neighbours_->readable()) {
    if (neighbour->isReady() && neighbour->exchange.lacksRoom) neighbour->outbound->setStarved();
  }
  retryCopies();
  return 0;
}

void ShmTransport::askForRoom(Peer& peer) {
  Neighbour& neighbour = neighbourOf(peer);
  if (neighbour.isReady()) neighbour.outbound->setStarved();
}

void ShmTransport::wake() {
  doorbell_->wake();
  hasSlept_ = true;
}

// Keys

int ShmTransport::registerMemory(void* bytes, size_t length, uint32_t access, uint64_t key,
                                 std::unique_ptr<fabric::Region>* into) {
  uint32_t rights = access == fabric::kSource ? 0 : access;
  *into = fabric::Region::unregistered(bytes, length, rights, key);
  return 0;
}

bool ShmTransport::publishKey(fabric::Region& region, uint32_t access, Peer* holder) {
  if (holder != nullptr) region.holder = neighbourOf(*holder).pid();
  return region.key() == 0 || keys_->add(region.key(), region.base(), region.length(), access);
}

void ShmTransport::withdraw(uint32_t index, fabric::Region& region) {
  region.withdraw(true);
  if (region.key() == 0) return;
  keys_->remove(region.key());
  auto copies = neighbours_->copiesUnderWay(region.holder);
  if (!copies.empty()) awaited_[index] = {std::move(copies), base::nowNs() + kLongestCopyNs};
}

bool ShmTransport::isCopied(uint32_t index) {
  auto found = awaited_.find(index);
  if (found == awaited_.end()) return false;
  auto& [copies, untilNs] = found->second;
  std::erase_if(copies, [this](const UnderWay& copy) { return !neighbours_->isCopying(copy); });
  if (!copies.empty() && base::nowNs() < untilNs) return true;
  for (const UnderWay& copy : copies) neighbours_->expel(copy);
  awaited_.erase(found);
  return false;
}

/// A neighbour that was stopped in the middle of a copy is not waited for.
void ShmTransport::withdrawAll(const RegionTable& regions) {
  regions.each([&](uint32_t index, fabric::Region& region) {
    if (!region.isWithdrawn()) withdraw(index, region);
  });
  auto now = std::chrono::steady_clock::now();
  auto end = now + kCloseWait, endHere = now + kCloseWaitHere;
  regions.each([&](uint32_t index, fabric::Region&) {
    while (isCopied(index)) {
      const auto& copies = awaited_[index].copies;
      bool isHere =
          std::any_of(copies.begin(), copies.end(), [](auto& copy) { return copy.isHere; });
      if (std::chrono::steady_clock::now() >= (isHere ? endHere : end)) break;
      sched_yield();
    }
  });
}

}  // namespace cinnabar::shm
