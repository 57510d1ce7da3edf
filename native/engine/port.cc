// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/port.h"

#include <rdma/fi_errno.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "engine/process_memory.h"
#include "fabric/needs.h"
#include "fabric/paging.h"
#include "fabric/verbs_report.h"

namespace cinnabar::engine {
namespace {

constexpr size_t kMostRegions = 1u << 20;
// One transfer at most. Larger ones are the caller's to cut, so that they can be cancelled in
// between.
constexpr size_t kMostTransfer = size_t{1} << 30;
constexpr int kKeyDraws = 64;
// How long a port that closes waits for neighbours in the middle of a copy.
constexpr auto kCloseWait = std::chrono::milliseconds(10);

fabric::Result<std::unique_ptr<fabric::Endpoint>> openFirst(const PortRequest& request,
                                                            fabric::RawAddress source) {
  const fabric::Library* library = fabric::library();
  if (library == nullptr) {
    return fabric::Failure{"open", 0, "ENOENT", "libfabric is not loaded"};
  }
  fabric::Failure first{"fi_getinfo", FI_ENODATA, "ENODATA",
                        std::string("no provider ") + request.provider + " for " +
                            fabric::schemeName(request.scheme) + " with this libfabric"};
  bool tried = false;
  for (const fabric::Provider& provider : fabric::providerTable()) {
    if (provider.scheme != request.scheme || !fabric::suits(provider, library->loadedVersion))
      continue;
    if (!request.provider.empty() && request.provider != provider.name) continue;
    if (provider.scheme == fabric::Scheme::verbs) {
      std::string obstacle = fabric::lockedMemoryObstacle();
      if (!obstacle.empty()) return library->fail("verbs", FI_ENOMEM, obstacle);
      obstacle = fabric::pagingObstacle();
      if (!obstacle.empty()) return library->fail("verbs", FI_EOPNOTSUPP, obstacle);
    }
    fabric::InfoRequest wanted{.provider = &provider,
                               .source = source,
                               .receives = request.receiveSlots,
                               .authKey = request.authKey};
    auto opened = fabric::Endpoint::open(*library, wanted);
    if (opened) return opened;
    std::string refused = fabric::authKeyObstacle(*library, wanted);
    if (!refused.empty()) return library->fail("fi_getinfo", FI_EOPNOTSUPP, refused);
    if (provider.scheme == fabric::Scheme::verbs)
      return fabric::explainVerbs(*library, provider, source, opened.failure());
    if (!tried) first = opened.failure();
    tried = true;
    // A provider that is there but fails says something about the request, which the next one would
    // only blur.
    if (opened.failure().op != "fi_getinfo") break;
  }
  return first;
}

/// An endpoint of a fabric whose addresses libfabric resolves. Tests put another provider in its
/// place (`request.provider`), since the hardware is rare.
fabric::Result<std::unique_ptr<fabric::Endpoint>> openResolved(const PortRequest& request) {
  const fabric::Library* library = fabric::library();
  if (library == nullptr) return fabric::Failure{"open", 0, "ENOENT", "libfabric is not loaded"};
  fabric::Provider provider = *fabric::providerOf(request.scheme);
  if (!request.provider.empty()) provider.name = request.provider.c_str();
  fabric::InfoRequest wanted{.provider = &provider,
                             .receives = request.receiveSlots,
                             .node = request.host,
                             .service = request.service == 0 ? "" : std::to_string(request.service),
                             .authKey = request.authKey};
  auto opened = fabric::Endpoint::open(*library, wanted);
  if (opened) return opened;
  std::string reason = fabric::fabricObstacle(*library, provider);
  if (!reason.empty()) return library->fail("fi_getinfo", FI_ENODATA, reason);
  reason = fabric::authKeyObstacle(*library, wanted);
  if (!reason.empty()) return library->fail("fi_getinfo", FI_EOPNOTSUPP, reason);
  return opened.failure();
}

}  // namespace

fabric::Result<std::unique_ptr<Port>> Port::open(const PortRequest& request) {
  uint64_t slots = uint64_t{request.sendSlots} + request.receiveSlots;
  bool sound = request.slab != nullptr && request.ring != nullptr && request.slotBytes > 0 &&
               request.sendSlots > 0 && request.receiveSlots > 0 &&
               slots * request.slotBytes <= UINT32_MAX;
  if (!sound) return fabric::Failure{"open", EINVAL, "EINVAL", "slots that fit no slab"};
  switch (fabric::addressingOf(request.scheme)) {
    case fabric::Addressing::shmName:
      return openShm(request);
    case fabric::Addressing::resolved:
      return started(request, openResolved(request));
    default:
      return openIp(request);
  }
}

fabric::Result<std::unique_ptr<Port>> Port::openIp(const PortRequest& request) {
  auto source = fabric::encodeSocketAddress(request.host, request.service);
  if (!source) {
    return fabric::Failure{"open", EINVAL, "EINVAL",
                           "not a numeric host and a port: \"" + request.host + "\", " +
                               std::to_string(request.service)};
  }
  return started(request, openFirst(request, *source));
}

fabric::Result<std::unique_ptr<Port>> Port::started(
    const PortRequest& request, fabric::Result<std::unique_ptr<fabric::Endpoint>> endpoint) {
  if (!endpoint) return endpoint.failure();
  auto port = std::make_unique<Port>(request, SharedEndpoint::publish("", std::move(*endpoint)));
  if (int status = port->start(); status != 0) {
    return fabric::library()->fail("fi_recv", status, "cannot post the receive slots");
  }
  return port;
}

fabric::Result<std::unique_ptr<Port>> Port::openShm(const PortRequest& request) {
  auto claim = ShmClaim::take(request.name);
  if (!claim) return claim.failure();
  auto bell = Bell::create();
  if (!bell)
    return fabric::Failure{"memfd_create", errno, strerror(errno), "cannot make a doorbell"};
  auto keys = KeyTable::create();
  if (!keys)
    return fabric::Failure{"memfd_create", errno, strerror(errno), "cannot make a key table"};
  permitProcessCopies();

  const std::string& name = (*claim)->fabricName();
  fabric::RawAddress source(name.c_str(), name.c_str() + name.size() + 1);
  auto endpoint = openFirst(request, source);
  if (!endpoint) return endpoint.failure();
  auto port = std::make_unique<Port>(request, SharedEndpoint::publish(name, std::move(*endpoint)));
  port->claim_ = std::move(*claim);
  port->bell_ = std::move(bell);
  port->keys_ = std::move(keys);
  port->mappings_ = std::make_unique<Mappings>(*port->endpoint_);
  auto neighbours = Neighbours::open(*port->claim_, *port->bell_, *port->keys_, *port->mappings_,
                                     request.slotBytes);
  if (!neighbours) return neighbours.failure();
  port->neighbours_ = std::move(*neighbours);
  if (int status = port->start(); status != 0) {
    return fabric::library()->fail("fi_recv", status, "cannot post the receive slots");
  }
  if (int code = port->claim_->publish(); code != 0) {
    return fabric::Failure{"listen doorbell", code, strerror(code), "cannot publish the shm name"};
  }
  port->mappings_->setRegion(port->claim_->regionFile());
  port->stopped_ = StoppedQueue::of(port->claim_->regionFile());
  return port;
}

Port::Port(const PortRequest& request, std::shared_ptr<SharedEndpoint> endpoint)
    : scheme_(request.scheme),
      slab_(request.slab),
      slotBytes_(request.slotBytes),
      sendSlots_(request.sendSlots),
      receiveSlots_(request.receiveSlots),
      ring_(request.ring),
      shared_(std::move(endpoint)),
      endpoint_(&shared_->endpoint()),
      receives_(request.receiveSlots),
      busySlots_(request.sendSlots),
      reassembly_(request.slotBytes) {}

int Port::start() {
  if (traits().mrMode & FI_MR_LOCAL) {
    int status = fabric::Region::open(*endpoint_, slab_, slabBytes(), 0, fabric::randomNumber(),
                                      &slabRegion_, fabric::Region::Use::messages);
    if (status != 0) return status;
  }
  for (uint32_t slot = 0; slot < receiveSlots_; ++slot) {
    receives_[slot].slot = slot;
    postReceive(slot);
  }
  return postedReceives_ > 0 ? 0 : -FI_ENOMEM;
}

Port::~Port() { close(); }

void Port::close() {
  if (!shared_) return;
  if (neighbours_) withdrawAll();
  // While the senders are still mapped, whose introductions may be in the queue.
  if (traits().receiveBeforeClose) endpoint_->receiveAll();
  // Peers see the end of the sockets first and stop posting; then nobody of this process copies any
  // more; then the endpoint goes, or stays behind as a mere mapping for other ports of this
  // process; then the regions, which the endpoint may have been using. What was in flight is
  // dropped: no completion is delivered after close.
  shared_->retire();
  for (Address& address : addresses_) address.neighbour = nullptr;
  neighbours_.reset();
  stopped_.reset();
  mappings_.reset();
  if (claim_) claim_->release();
  if (shared_.use_count() == 1) endpoint_->shut();
  regions_.clear();
  slabRegion_.reset();
  endpoint_ = nullptr;
  shared_.reset();
}

fabric::RawAddress Port::address() const {
  return claim_ ? fabric::encodeShmAddress(claim_->name()) : endpoint_->name();
}

const std::string& Port::name() const { return claim_ ? claim_->name() : name_; }

size_t Port::maxTransferBytes() const { return std::min(traits().maxMessageBytes, kMostTransfer); }

int Port::waitFd() const { return neighbours_ ? neighbours_->waitFd() : traits().waitFd; }

int Port::registerRegion(void* bytes, size_t length, uint32_t access) {
  if (bytes == nullptr || length == 0 || access > (fabric::kRemoteRead | fabric::kRemoteWrite))
    return -FI_EINVAL;
  if (freeRegions_.empty() && regions_.size() >= kMostRegions) return -FI_ENOSPC;
  // A peer that knows a key may use it until the region is gone, so keys are drawn at random. A
  // collision is as good as impossible, but cheap to answer, as is a crowded place in the table.
  std::unique_ptr<fabric::Region> region;
  int status = -FI_ENOKEY;
  for (int draw = 0; draw < kKeyDraws && (status == -FI_ENOKEY || status == -FI_ENOSPC); ++draw) {
    status =
        fabric::Region::open(*endpoint_, bytes, length, access, fabric::randomNumber(), &region);
    bool published = status != 0 || !keys_ || access == 0 ||
                     keys_->add(region->key(), region->base(), length, access);
    if (!published) status = -FI_ENOSPC;
  }
  if (status != 0) return status;
  uint32_t index;
  if (!freeRegions_.empty()) {
    index = freeRegions_.back();
    freeRegions_.pop_back();
    regions_[index] = std::move(region);
  } else {
    index = static_cast<uint32_t>(regions_.size());
    regions_.push_back(std::move(region));
  }
  if (access != 0) ++lentRegions_;
  registeredBytes_ += length;
  return static_cast<int>(index);
}

fabric::Region* Port::findRegion(uint64_t region) const {
  return region < regions_.size() ? regions_[region].get() : nullptr;
}

const fabric::Region* Port::region(uint32_t region) const { return findRegion(region); }

int Port::deregisterRegion(uint32_t index) {
  fabric::Region* region = findRegion(index);
  if (region == nullptr) return -FI_EINVAL;
  if (!region->isWithdrawn()) withdraw(index);
  if (region->users > 0 || isCopied(index)) return -FI_EBUSY;
  if (region->isLent()) --lentRegions_;
  registeredBytes_ -= region->length();
  regions_[index].reset();
  freeRegions_.push_back(index);
  return 0;
}

void Port::withdraw(uint32_t index) {
  fabric::Region& region = *findRegion(index);
  uint64_t key = region.key();
  // On shm the provider knows the key to the end: it never answers one that it does not know, and
  // the neighbour that began with it would be waited for in vain.
  region.withdraw(!keys_);
  if (!keys_ || key == 0) return;
  keys_->remove(key);
  auto copies = neighbours_->copiesUnderWay();
  if (!copies.empty()) awaited_[index] = std::move(copies);
}

/// Whether a neighbour may still be in the middle of a copy that began when the region was lent.
bool Port::isCopied(uint32_t index) {
  auto found = awaited_.find(index);
  if (found == awaited_.end()) return false;
  std::erase_if(found->second,
                [this](const UnderWay& copy) { return !neighbours_->isCopying(copy); });
  if (!found->second.empty()) return true;
  awaited_.erase(found);
  return false;
}

/// Before a port closes. A neighbour that was stopped in the middle of a copy is not waited for.
void Port::withdrawAll() {
  for (uint32_t index = 0; index < regions_.size(); ++index) {
    if (regions_[index] && !regions_[index]->isWithdrawn()) withdraw(index);
  }
  auto end = std::chrono::steady_clock::now() + kCloseWait;
  for (uint32_t index = 0; index < regions_.size(); ++index) {
    while (isCopied(index) && std::chrono::steady_clock::now() < end) sched_yield();
  }
}

uint64_t Port::gauge(Gauge which) const {
  switch (which) {
    case Gauge::sends:
      return sends_;
    case Gauge::transfers:
      return transfers_;
    case Gauge::waiting: {
      uint32_t count = 0;
      for (uint32_t index : waiting_) count += addresses_[index].queue.length();
      return count;
    }
    case Gauge::regions:
      return regions_.size() - freeRegions_.size();
    case Gauge::addresses:
      return liveAddresses_;
    case Gauge::receivesUsed:
      return usedReceives();
    case Gauge::mostReceives:
      return std::max(mostReceives_, usedReceives());
    case Gauge::completions:
      return unreadCompletions();
    case Gauge::mostCompletions:
      return std::max(mostCompletions_, unreadCompletions());
    case Gauge::registeredBytes:
      return registeredBytes_ + (slabRegion_ ? slabBytes() : 0);
  }
  return 0;
}

}  // namespace cinnabar::engine
