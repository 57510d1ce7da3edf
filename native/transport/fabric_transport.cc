// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/fabric_transport.h"

#include <rdma/fi_errno.h>

#include <cerrno>

#include "fabric/info.h"

namespace cinnabar::transport {
namespace {

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

FabricTransport::FabricTransport(fabric::Scheme scheme, std::unique_ptr<fabric::Endpoint> endpoint)
    : scheme_(scheme), endpoint_(std::move(endpoint)) {
  traits_ = endpoint_->traits();
}

FabricTransport::~FabricTransport() = default;

void FabricTransport::close(const RegionTable&) { endpoint_->shut(); }

fabric::Result<fabric::RawAddress> FabricTransport::addressOf(const std::string& host,
                                                              uint32_t service) const {
  if (fabric::addressingOf(scheme_) == fabric::Addressing::resolved)
    return resolve(scheme_, traits().provider, host, service);
  auto raw = fabric::encodeSocketAddress(host, service);
  if (!raw || host.empty() || service == 0) {
    return fabric::Failure{
        "address", EINVAL, "EINVAL",
        "not a numeric host and a port: \"" + host + "\", " + std::to_string(service)};
  }
  fabric::RawAddress own = endpoint_->name();
  if (fabric::familyOf(raw->data(), raw->size()) != fabric::familyOf(own.data(), own.size())) {
    return fabric::Failure{"address", EAFNOSUPPORT, "EAFNOSUPPORT",
                           "the port and \"" + host + "\" are of different IP versions"};
  }
  return *raw;
}

int FabricTransport::admit(const uint8_t* bytes, size_t length, Peer** into) {
  fabric::RawAddress own = endpoint_->name();
  if (fabric::addressingOf(scheme_) == fabric::Addressing::resolved) {
    // fi_av_insert reads as many bytes as it likes. Our own address may have been too long to be
    // reported.
    if (own.empty() || length != own.size()) return -FI_EINVAL;
  } else {
    auto peer = fabric::decodeSocketAddress(bytes, length);
    if (!peer || peer->port == 0) return -FI_EINVAL;
    if (fabric::familyOf(bytes, length) != fabric::familyOf(own.data(), own.size())) {
      // A tcp port at [::] takes both versions, as Linux has it, and its peers of version 4 so.
      if (scheme_ != fabric::Scheme::tcp || !fabric::isEveryAddress(own.data(), own.size()))
        return -EAFNOSUPPORT;
      return insertInto(fabric::mapToSix(bytes, length).data(), into);
    }
  }
  return insertInto(bytes, into);
}

int FabricTransport::insertInto(const uint8_t* bytes, Peer** into) {
  fi_addr_t inserted = insert(bytes);
  if (inserted == FI_ADDR_NOTAVAIL) return -FI_ENOMEM;
  if (freePeers_.empty()) {
    *into = &peers_.emplace_back();
  } else {
    *into = freePeers_.back();
    freePeers_.pop_back();
  }
  **into = {inserted, 0};
  return 0;
}

void FabricTransport::release(Peer& peer) {
  remove(peer.address);
  freePeers_.push_back(&peer);
}

fi_addr_t FabricTransport::insert(const uint8_t* address) { return endpoint_->insert(address); }

void FabricTransport::remove(fi_addr_t address) { endpoint_->remove(address); }

int FabricTransport::send(Operation& operation, const uint8_t* bytes, void* descriptor) {
  fi_addr_t to = operation.peer->address;
  if (operation.bytes <= traits().injectBytes) {
    auto status = static_cast<int>(fi_inject(endpoint_->ep(), bytes, operation.bytes, to));
    return status == 0 ? kDone : status;
  }
  return static_cast<int>(
      fi_send(endpoint_->ep(), bytes, operation.bytes, descriptor, to, contextOf(operation)));
}

void FabricTransport::say(Peer& peer, const uint8_t* bytes, size_t length) {
  fi_inject(endpoint_->ep(), bytes, length, peer.address);
}

int FabricTransport::postPart(Part& part, const fi_msg_rma& message, int*) {
  return postMessage(part, message);
}

int FabricTransport::postMessage(const Part& part, const fi_msg_rma& message) {
  const Operation& operation = *part.operation;
  if (operation.type == Operation::Type::read)
    return static_cast<int>(fi_readmsg(endpoint_->ep(), &message, FI_COMPLETION));
  // Writes complete when the data is in place, not when the buffer is free (fi_rma(3),
  // FI_DELIVERY_COMPLETE).
  uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
  if (operation.notifies) flags |= FI_REMOTE_CQ_DATA;
  return static_cast<int>(fi_writemsg(endpoint_->ep(), &message, flags));
}

int FabricTransport::registerMemory(void* bytes, size_t length, uint32_t access, uint64_t key,
                                    std::unique_ptr<fabric::Region>* into) {
  return fabric::Region::open(*endpoint_, bytes, length, access, key, into);
}

int FabricTransport::registerSlots(void* slab, size_t length,
                                   std::unique_ptr<fabric::Region>* into) {
  if (!(traits().mrMode & FI_MR_LOCAL)) return 0;
  return fabric::Region::open(*endpoint_, slab, length, 0, fabric::randomNumber(), into,
                              fabric::Region::Use::messages);
}

}  // namespace cinnabar::transport
