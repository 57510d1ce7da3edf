// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/port.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>

namespace cinnabar::engine {
namespace {

// The most bytes of one transfer. The caller cuts larger ones, so that it can cancel them in
// between.
constexpr size_t kMostTransfer = size_t{1} << 30;
constexpr int kKeyDraws = 64;

}  // namespace

fabric::Result<std::unique_ptr<Port>> Port::open(const PortRequest& request) {
  uint64_t slots = uint64_t{request.sendSlots} + request.receiveSlots;
  bool sound = request.slab != nullptr && request.ring != nullptr && request.slotBytes > 0 &&
               request.sendSlots > 0 && request.receiveSlots > 0 &&
               slots * request.slotBytes <= UINT32_MAX;
  if (!sound) return fabric::Failure{"open", EINVAL, "EINVAL", "slots that fit no slab"};
  auto transport = transport::Transport::open(request);
  if (!transport) return transport.failure();
  auto port = std::make_unique<Port>(request, std::move(*transport));
  if (int status = port->start(); status != 0) {
    return fabric::library()->fail("fi_recv", status, "cannot post the receive slots");
  }
  if (auto failure = port->transport_->publish()) return *failure;
  return port;
}

Port::Port(const PortRequest& request, std::unique_ptr<transport::Transport> transport)
    : slots_(request.slab, request.slotBytes, request.sendSlots, request.receiveSlots),
      completions_(request.ring),
      transport_(std::move(transport)) {}

int Port::start() { return slots_.start(*transport_); }

Port::~Port() { close(); }

/// The transport is closed before the regions, which it may have used. Operations in flight are
/// dropped: no completion is delivered after close.
void Port::close() {
  if (!transport_) return;
  transport_->close(regions_);
  regions_.clear();
  slots_.stop();
  transport_.reset();
}

size_t Port::maxTransferBytes() const { return std::min(traits().maxMessageBytes, kMostTransfer); }

int Port::registerRegion(void* bytes, size_t length, uint32_t access, uint32_t holder) {
  bool isSource = access == fabric::kSource;
  if (bytes == nullptr || length == 0 ||
      (access > (fabric::kRemoteRead | fabric::kRemoteWrite) && !isSource))
    return -FI_EINVAL;
  if (regions_.isFull()) return -FI_ENOSPC;
  const Address* address = addresses_.find(holder);
  transport::Peer* peer = address == nullptr ? nullptr : address->peer;
  // A peer that knows a key may use it until the region is gone, so keys are drawn at random. A
  // collision is almost impossible. Its remedy is cheap, as is that for a full window of the table.
  std::unique_ptr<fabric::Region> region;
  int status = -FI_ENOKEY;
  for (int draw = 0; draw < kKeyDraws && (status == -FI_ENOKEY || status == -FI_ENOSPC); ++draw) {
    status = transport_->registerMemory(bytes, length, access, fabric::randomNumber(), &region);
    if (status == 0 && !transport_->publishKey(*region, access, peer)) status = -FI_ENOSPC;
  }
  if (status != 0) return status;
  return static_cast<int>(regions_.add(std::move(region)));
}

const fabric::Region* Port::region(uint32_t region) const { return regions_.find(region); }

int Port::deregisterRegion(uint32_t index) {
  fabric::Region* region = regions_.find(index);
  if (region == nullptr) return -FI_EINVAL;
  if (!region->isWithdrawn()) transport_->withdraw(index, *region);
  if (region->users > 0 || transport_->isCopied(index)) return -FI_EBUSY;
  regions_.remove(index);
  return 0;
}

uint64_t Port::gauge(Gauge which) const {
  switch (which) {
    case Gauge::sends:
      return sends_;
    case Gauge::transfers:
      return transfers_;
    case Gauge::waiting:
      return addresses_.waitingOperations();
    case Gauge::regions:
      return regions_.count();
    case Gauge::addresses:
      return addresses_.live();
    case Gauge::receivesUsed:
      return slots_.used();
    case Gauge::mostReceives:
      return slots_.mostUsed();
    case Gauge::completions:
      return completions_.unread();
    case Gauge::mostCompletions:
      return completions_.mostUnread();
    case Gauge::registeredBytes:
      return regions_.bytes() + slots_.registeredBytes();
    case Gauge::connections:
      return transport_ ? transport_->connectionCount() : 0;
    case Gauge::turnedAway:
      return turned_.away;
    case Gauge::malformed:
      return turned_.malformed;
    case Gauge::shed:
      return turned_.shed;
  }
  return 0;
}

}  // namespace cinnabar::engine
