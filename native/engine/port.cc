// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/port.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/process_memory.h"

namespace cinnabar::engine {
namespace {

constexpr uint32_t kMostAddresses = 1u << 20;
constexpr size_t kMostRegions = 1u << 20;
// One transfer at most. Larger ones are the caller's to cut, so that they can be cancelled in
// between.
constexpr size_t kMostTransfer = size_t{1} << 30;

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
    auto opened = fabric::Endpoint::open(*library, {&provider, source, request.receiveSlots});
    if (opened) return opened;
    if (!tried) first = opened.failure();
    tried = true;
    // A provider that is there but fails says something about the request, which the next one would
    // only blur.
    if (opened.failure().op != "fi_getinfo") break;
  }
  return first;
}

}  // namespace

fabric::Result<std::unique_ptr<Port>> Port::open(const PortRequest& request) {
  uint64_t slots = uint64_t{request.sendSlots} + request.receiveSlots;
  bool sound = request.slab != nullptr && request.ring != nullptr && request.slotBytes > 0 &&
               request.sendSlots > 0 && request.receiveSlots > 0 &&
               slots * request.slotBytes <= UINT32_MAX;
  if (!sound) return fabric::Failure{"open", EINVAL, "EINVAL", "slots that fit no slab"};
  return request.scheme == fabric::Scheme::shm ? openShm(request) : openTcp(request);
}

fabric::Result<std::unique_ptr<Port>> Port::openTcp(const PortRequest& request) {
  auto source = fabric::encodeSocketAddress(request.host, request.service);
  if (!source) {
    return fabric::Failure{"open", EINVAL, "EINVAL",
                           "not a numeric host and a port: \"" + request.host + "\", " +
                               std::to_string(request.service)};
  }
  auto endpoint = openFirst(request, *source);
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
  permitProcessCopies();

  const std::string& name = (*claim)->fabricName();
  fabric::RawAddress source(name.c_str(), name.c_str() + name.size() + 1);
  auto endpoint = openFirst(request, source);
  if (!endpoint) return endpoint.failure();
  auto port = std::make_unique<Port>(request, SharedEndpoint::publish(name, std::move(*endpoint)));
  port->claim_ = std::move(*claim);
  port->bell_ = std::move(bell);
  port->mappings_ = std::make_unique<Mappings>(*port->endpoint_);
  auto neighbours =
      Neighbours::open(*port->claim_, *port->bell_, *port->mappings_, request.slotBytes);
  if (!neighbours) return neighbours.failure();
  port->neighbours_ = std::move(*neighbours);
  if (int status = port->start(); status != 0) {
    return fabric::library()->fail("fi_recv", status, "cannot post the receive slots");
  }
  if (int code = port->claim_->publish(); code != 0) {
    return fabric::Failure{"listen doorbell", code, strerror(code), "cannot publish the shm name"};
  }
  return port;
}

Port::Port(const PortRequest& request, std::shared_ptr<SharedEndpoint> endpoint)
    : slab_(request.slab),
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
    int status = fabric::Region::open(*endpoint_, slab_, slabBytes(), 0, &slabRegion_);
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
  // Peers see the end of the sockets first and stop posting; then nobody of this process copies any
  // more; then the endpoint goes, or stays behind as a mere mapping for other ports of this
  // process; then the regions, which the endpoint may have been using. What was in flight is
  // dropped: no completion is delivered after close.
  shared_->retire();
  for (Address& address : addresses_) address.neighbour = nullptr;
  neighbours_.reset();
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

fabric::Result<fabric::RawAddress> Port::addressOf(const std::string& hostOrName,
                                                   uint32_t service) const {
  if (isShm()) {
    if (fabric::isShmName(hostOrName)) return fabric::encodeShmAddress(hostOrName);
    return fabric::Failure{"address", EINVAL, "EINVAL", "not an shm name: \"" + hostOrName + "\""};
  }
  auto raw = fabric::encodeSocketAddress(hostOrName, service);
  if (!raw || hostOrName.empty() || service == 0) {
    return fabric::Failure{
        "address", EINVAL, "EINVAL",
        "not a numeric host and a port: \"" + hostOrName + "\", " + std::to_string(service)};
  }
  fabric::RawAddress own = endpoint_->name();
  if (fabric::familyOf(raw->data(), raw->size()) != fabric::familyOf(own.data(), own.size())) {
    return fabric::Failure{"address", EAFNOSUPPORT, "EAFNOSUPPORT",
                           "the port and \"" + hostOrName + "\" are of different IP versions"};
  }
  return *raw;
}

Port::Address* Port::find(uint32_t address) {
  if (address >= addresses_.size()) return nullptr;
  Address& found = addresses_[address];
  return found.used && !found.forgotten ? &found : nullptr;
}

uint32_t Port::takeAddress() {
  uint32_t index;
  if (!freeAddresses_.empty()) {
    index = freeAddresses_.back();
    freeAddresses_.pop_back();
  } else {
    index = static_cast<uint32_t>(addresses_.size());
    addresses_.emplace_back();
  }
  addresses_[index] = Address();
  addresses_[index].used = true;
  ++liveAddresses_;
  return index;
}

int Port::admit(const uint8_t* bytes, size_t length) {
  if (freeAddresses_.empty() && addresses_.size() >= kMostAddresses) return -FI_ENOSPC;
  if (isShm()) {
    auto name = fabric::decodeShmAddress(bytes, length);
    if (!name) return -FI_EINVAL;
    int status = 0;
    Neighbour* neighbour = neighbours_->meet(*name, &status);
    if (neighbour == nullptr) return status;
    uint32_t index = takeAddress();
    addresses_[index].neighbour = neighbour;
    return static_cast<int>(index);
  }
  auto peer = fabric::decodeSocketAddress(bytes, length);
  if (!peer || peer->port == 0) return -FI_EINVAL;
  fabric::RawAddress own = endpoint_->name();
  if (fabric::familyOf(bytes, length) != fabric::familyOf(own.data(), own.size()))
    return -EAFNOSUPPORT;
  fi_addr_t inserted = endpoint_->insert(bytes);
  if (inserted == FI_ADDR_NOTAVAIL) return -FI_ENOMEM;
  uint32_t index = takeAddress();
  addresses_[index].fabric = inserted;
  return static_cast<int>(index);
}

int Port::forget(uint32_t index) {
  Address* address = find(index);
  if (address == nullptr) return -FI_EINVAL;
  failAddress(index, FI_ECANCELED);
  address->forgotten = true;
  --liveAddresses_;
  settle(index);
  return 0;
}

/// Gives a forgotten address back once the provider holds nothing of it any more.
void Port::settle(uint32_t index) {
  Address& address = addresses_[index];
  if (!address.forgotten || address.posted > 0) return;
  if (address.neighbour != nullptr) {
    neighbours_->release(address.neighbour);
  } else {
    endpoint_->remove(address.fabric);
  }
  address = Address();
  freeAddresses_.push_back(index);
}

/// Ends everything that is under way to an address. What the provider holds stays with it: a
/// transfer is answered now, a send when the provider lets go of its slot.
void Port::failAddress(uint32_t index, uint32_t status) {
  Address& address = addresses_[index];
  while (!address.queue.empty()) finish(address.queue.pop(), status);
  std::erase(waiting_, index);
  OperationQueue others;
  while (!copies_.empty()) {
    Operation* operation = copies_.pop();
    if (operation->address == index) {
      finish(operation, status);
    } else {
      others.push(operation);
    }
  }
  copies_ = others;
  if (address.posted == 0) return;
  operations_.each([&](Operation& operation) {
    bool concerned = operation.state == Operation::State::posted && operation.address == index;
    if (!concerned || operation.answered || operation.type == Operation::Type::send) return;
    answer(operation, status, 0);
    operation.answered = true;
  });
}

void Port::peerGone(Neighbour* neighbour) {
  reassembly_.drop(neighbour->id);
  for (uint32_t index = 0; index < addresses_.size(); ++index) {
    Address& address = addresses_[index];
    if (!address.used || address.neighbour != neighbour) continue;
    failAddress(index, neighbour->endStatus);
    if (!address.forgotten) deliver({Completion::peerGone, 0, index});
  }
}

int Port::registerRegion(void* bytes, size_t length, uint32_t access) {
  if (bytes == nullptr || length == 0 || access > (fabric::kRemoteRead | fabric::kRemoteWrite))
    return -FI_EINVAL;
  if (freeRegions_.empty() && regions_.size() >= kMostRegions) return -FI_ENOSPC;
  std::unique_ptr<fabric::Region> region;
  int status = fabric::Region::open(*endpoint_, bytes, length, access, &region);
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
  return static_cast<int>(index);
}

fabric::Region* Port::findRegion(uint32_t region) const {
  return region < regions_.size() ? regions_[region].get() : nullptr;
}

const fabric::Region* Port::region(uint32_t region) const { return findRegion(region); }

int Port::deregisterRegion(uint32_t index) {
  fabric::Region* region = findRegion(index);
  if (region == nullptr) return -FI_EINVAL;
  if (region->users > 0) return -FI_EBUSY;
  regions_[index].reset();
  freeRegions_.push_back(index);
  return 0;
}

uint32_t Port::gauge(Gauge which) const {
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
      return static_cast<uint32_t>(regions_.size() - freeRegions_.size());
    case Gauge::addresses:
      return liveAddresses_;
  }
  return 0;
}

}  // namespace cinnabar::engine
