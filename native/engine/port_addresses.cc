// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_errno.h>

#include <cerrno>

#include "engine/port.h"
#include "fabric/info.h"

namespace cinnabar::engine {
namespace {

constexpr uint32_t kMostAddresses = 1u << 20;

/// What libfabric makes of a peer's node and service.
fabric::Result<fabric::RawAddress> resolve(fabric::Scheme scheme, const std::string& provider,
                                           const std::string& node, uint32_t service) {
  fabric::Provider entry{scheme, provider.c_str(), 0, UINT32_MAX};
  const fabric::Library& library = *fabric::library();
  auto info = fabric::getInfo(library, {.provider = &entry,
                                        .node = node,
                                        .service = service == 0 ? "" : std::to_string(service),
                                        .isOurs = false});
  std::string what = "provider " + provider + " finds no address for \"" + node + "\", service " +
                     std::to_string(service);
  if (!info || (*info)->dest_addr == nullptr)
    return library.fail("fi_getinfo", info ? FI_ENODATA : info.failure().code, what);
  const auto* bytes = static_cast<const uint8_t*>((*info)->dest_addr);
  return fabric::RawAddress(bytes, bytes + (*info)->dest_addrlen);
}

}  // namespace

fabric::Result<fabric::RawAddress> Port::addressOf(const std::string& hostOrName,
                                                   uint32_t service) const {
  if (isShm()) {
    if (fabric::isShmName(hostOrName)) return fabric::encodeShmAddress(hostOrName);
    return fabric::Failure{"address", EINVAL, "EINVAL", "not an shm name: \"" + hostOrName + "\""};
  }
  if (fabric::addressingOf(scheme_) == fabric::Addressing::resolved)
    return resolve(scheme_, endpoint_->traits().provider, hostOrName, service);
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
  fabric::RawAddress own = endpoint_->name();
  if (fabric::addressingOf(scheme_) == fabric::Addressing::resolved) {
    // fi_av_insert reads as many bytes as it likes. Our own may have been too long to be told.
    if (own.empty() || length != own.size()) return -FI_EINVAL;
  } else {
    auto peer = fabric::decodeSocketAddress(bytes, length);
    if (!peer || peer->port == 0) return -FI_EINVAL;
    if (fabric::familyOf(bytes, length) != fabric::familyOf(own.data(), own.size()))
      return -EAFNOSUPPORT;
  }
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
  unvouch(index);
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
  // The ring may still hold word of the old bearer of this number.
  usedAddresses_.push_back(index);
}

/// Ends everything that is under way to an address. What the provider holds stays with it: a
/// transfer is answered now, a send when the provider lets go of its slot.
void Port::failAddress(uint32_t index, uint32_t status) {
  Address& address = addresses_[index];
  while (!address.queue.empty()) cut(address.queue.pop(), status);
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
    // The provider may keep these for ever, but there is nobody left whose memory they could touch.
    parts_.each([&](Part& part) {
      if (part.lent && part.operation->address == index) giveBack(part);
    });
    if (!address.forgotten) deliver({Completion::peerGone, 0, index});
  }
}

}  // namespace cinnabar::engine
