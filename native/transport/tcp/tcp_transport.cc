// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/tcp_transport.h"

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "transport/tcp/socket_calls.h"

namespace cinnabar::tcp {
namespace {

// How long a transfer of withdrawn memory may stand still. An honest peer then still moves at most
// the chunk that was under way.
constexpr uint64_t kStandstillNs = 3'000'000'000;

fabric::RawAddress keyOf(const uint8_t* address) {
  sockaddr_in6 whole{};
  sa_family_t family;
  std::memcpy(&family, address, sizeof family);
  std::memcpy(&whole, address, family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return addressOf(whole);
}

}  // namespace

TcpTransport::TcpTransport(std::unique_ptr<fabric::Endpoint> endpoint,
                           std::unique_ptr<SocketWatch> watch)
    : FabricTransport(fabric::Scheme::tcp, std::move(endpoint)), watch_(std::move(watch)) {
  news_ = &watch_->news();
  movedBytes_ = &watch_->movedBytes();
}

TcpTransport::~TcpTransport() {
  // The provider's last sockets go with its domain, and the watch after them.
  endpoint_.reset();
}

transport::News TcpTransport::takeNews() {
  SocketWatch::News news = watch_->take();
  transport::News told{{}, {}, news.turned};
  for (const SocketWatch::Unreachable& each : news.unreachable) {
    auto [first, last] = known_.equal_range(each.peer);
    for (; first != last; ++first) told.unreachable.push_back({first->second.address, each.code});
  }
  for (const fabric::RawAddress& peer : news.disconnected) {
    auto [first, last] = known_.equal_range(peer);
    for (; first != last; ++first) told.disconnected.push_back(first->second.address);
  }
  return told;
}

/// libfabric has no call that ends a connection, but notices that it has ended.
bool TcpTransport::cutOff(transport::Peer& peer) {
  for (const auto& [key, known] : known_) {
    if (known.address == peer.address) return watch_->endAll(key);
  }
  return false;
}

/// The provider looks at a key when a transfer begins. So no new transfer begins, and the transfers
/// that use the key now are known (KeysInUse).
void TcpTransport::withdraw(uint32_t index, fabric::Region& region) {
  uint64_t key = region.key();
  FabricTransport::withdraw(index, region);
  if (!region.isGranted() || !watch_->keys().has(key)) return;
  awaited_[index] = {key, watch_->usesOf(key), base::nowNs()};
}

bool TcpTransport::isCopied(uint32_t index) {
  if (awaited_.empty()) return false;
  auto found = awaited_.find(index);
  if (found == awaited_.end()) return false;
  Awaited& awaited = found->second;
  if (!watch_->keys().has(awaited.key)) {
    awaited_.erase(found);
    return false;
  }
  auto uses = watch_->usesOf(awaited.key);
  uint64_t now = base::nowNs();
  if (uses != awaited.uses) {
    awaited.uses = std::move(uses);
    awaited.sinceNs = now;
  } else if (now - awaited.sinceNs > kStandstillNs) {
    // A stopped process, a lost host, or an attacker that wants the memory to be held.
    for (const SocketWatch::Use& use : uses) watch_->endUse(use);
    awaited.sinceNs = now;
  }
  return true;
}

/// The requests of a read of many extents leave together. A write's bytes follow its requests, and
/// make long sends of them anyway.
int TcpTransport::postPart(transport::Part& part, const fi_msg_rma& message, int*) {
  const transport::Operation& operation = *part.operation;
  bool isLast = operation.extent + message.iov_count == operation.extents.size();
  if (isLast || operation.type != transport::Operation::Type::read)
    return postMessage(part, message);
  MoreFollows more;
  return postMessage(part, message);
}

/// The last request may not have been posted, or may wait for a connection.
void TcpTransport::endTransfer(transport::Operation&) { sendWhatWaits(); }

fi_addr_t TcpTransport::insert(const uint8_t* address) {
  fi_addr_t inserted = FabricTransport::insert(address);
  if (inserted == FI_ADDR_NOTAVAIL) return inserted;
  fabric::RawAddress key = keyOf(address);
  watch_->admit(key);
  auto [first, last] = known_.equal_range(key);
  for (; first != last; ++first) {
    if (first->second.address != inserted) continue;
    ++first->second.uses;
    return inserted;
  }
  known_.insert({std::move(key), {inserted, 1}});
  return inserted;
}

void TcpTransport::remove(fi_addr_t address) {
  for (auto entry = known_.begin(); entry != known_.end(); ++entry) {
    if (entry->second.address != address) continue;
    watch_->forget(entry->first);
    if (--entry->second.uses > 0) break;
    watch_->abandon(entry->first);
    known_.erase(entry);
    break;
  }
  FabricTransport::remove(address);
}

}  // namespace cinnabar::tcp
