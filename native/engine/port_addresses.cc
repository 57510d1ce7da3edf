// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "engine/port.h"

namespace cinnabar::engine {

int Port::admit(const uint8_t* bytes, size_t length) {
  if (addresses_.isFull()) return -FI_ENOSPC;
  // An end in the past is not news for a peer that is admitted now.
  if (transport_->hasNews()) takeNews();
  transport::Peer* peer = nullptr;
  int status = transport_->admit(bytes, length, &peer);
  return status == 0 ? static_cast<int>(addresses_.take(peer)) : status;
}

int Port::forget(uint32_t index) {
  Address* address = addresses_.find(index);
  if (address == nullptr) return -FI_EINVAL;
  failAddress(index, FI_ECANCELED, 0, cutOff(index));
  unvouch(index);
  std::erase(disconnected_, index);
  addresses_.forget(*address);
  if (address->posted > 0 && traits().endsConnections) lingering_[index] = base::nowNs();
  // Other addresses may have waited for this one.
  endsLingering_ = !lingering_.empty();
  settle(index);
  return 0;
}

const transport::ProcessCredentials* Port::processOf(uint32_t index) {
  const Address* address = addresses_.find(index);
  return address != nullptr && address->peer->process ? &*address->peer->process : nullptr;
}

/// Reports ended connections, after all completions that came from them.
void Port::tellDisconnected() {
  for (uint32_t index : disconnected_)
    completions_.deliver({.kind = Completion::disconnected, .token = index});
  disconnected_.clear();
}

/// Frees a forgotten address once the provider has completed all of its operations.
void Port::settle(uint32_t index) {
  Address& address = addresses_[index];
  if (!address.forgotten || address.posted > 0) return;
  lingering_.erase(index);
  transport_->release(*address.peer);
  addresses_.giveBack(index);
}

/// Whether another address in use has the same connection.
bool Port::isShared(uint32_t index) {
  for (uint32_t other = 0; other < addresses_.size(); ++other) {
    if (other == index || addresses_.find(other) == nullptr) continue;
    if (addresses_[other].peer->address == addresses_[index].peer->address) return true;
  }
  return false;
}

/// Ends the connection to an address at which the provider still works, if the transport can. A
/// connection that another session uses is kept.
bool Port::cutOff(uint32_t index) {
  Address& address = addresses_[index];
  return address.posted > 0 && !isShared(index) && transport_->cutOff(*address.peer);
}

/// Ends connections that have no user and have not ended by themselves. After a link failure a
/// device may never complete a send, and the peer is refused a new connection until then. The last
/// message, a goodbye for example, has arrived by now or is lost. Another session may use the
/// connection, such as a failed attempt to connect again. The connection then ends when that
/// session is forgotten, and is not watched until then.
void Port::endLingering() {
  uint64_t nowNs = base::nowNs();
  auto lingerNs = std::chrono::nanoseconds(traits().linger).count();
  endsLingering_ = false;
  std::erase_if(lingering_, [&](const auto& entry) {
    auto [index, sinceNs] = entry;
    bool isDue = nowNs - sinceNs >= static_cast<uint64_t>(lingerNs);
    endsLingering_ = endsLingering_ || !isDue;
    if (!isDue || isShared(index)) return false;
    transport_->endConnection(*addresses_[index].peer);
    return true;
  });
}

/// Ends everything that is under way to an address. What the provider holds stays with it: a send
/// ends when the provider lets go of its slot, a transfer is answered now. Where the provider
/// `endsSoon` what it has, that waits too: it may still move our memory until then.
void Port::failAddress(uint32_t index, uint32_t status, uint32_t providerError, bool endsSoon) {
  Address& address = addresses_[index];
  while (!address.queue.empty()) {
    Operation* operation = address.queue.pop();
    if (!endsSoon || operation->parts == 0) {
      cut(operation, status, providerError);
      continue;
    }
    operation->status = status;
    operation->state = Operation::State::posted;
  }
  std::erase(addresses_.waiting, index);
  for (Operation* operation : transport_->takeBack(index, *address.peer))
    finish(operation, status, providerError);
  if (address.posted == 0 || endsSoon) return;
  operations_.each([&](Operation& operation) {
    bool concerned = operation.state == Operation::State::posted && operation.address == index;
    if (!concerned || operation.answered || operation.type == Operation::Type::send) return;
    answer(operation, status, 0);
    operation.answered = true;
  });
}

void Port::peerGone(transport::Peer& peer) {
  for (uint32_t index = 0; index < addresses_.size(); ++index) {
    Address& address = addresses_[index];
    if (!address.used || address.peer != &peer) continue;
    failAddress(index, peer.ended, peer.endedDetail);
    if (!address.forgotten) completions_.deliver({Completion::peerGone, 0, index});
  }
}

/// Takes failed connections to peers, and inbound connections that were turned away.
void Port::takeNews() {
  transport::News news = transport_->takeNews();
  for (const auto& [address, code] : news.unreachable) failWaiting(address, code);
  noteDisconnected(news.disconnected);
  uint64_t before = turned_.away + turned_.malformed;
  uint64_t now = news.turned.away + news.turned.malformed;
  turned_ = news.turned;
  if (now == before) return;
  Entry entry{Completion::turnedAway, turned_.code};
  entry.token = static_cast<uint32_t>(turned_.away);
  entry.bytes = static_cast<uint32_t>(turned_.malformed);
  completions_.deliver(entry);
}

/// Selects the addresses now: one that is admitted before the report did not have this connection.
void Port::noteDisconnected(const std::vector<fi_addr_t>& peers) {
  if (peers.empty()) return;
  for (uint32_t index = 0; index < addresses_.size(); ++index) {
    const Address& address = addresses_[index];
    if (!address.used || address.forgotten) continue;
    if (std::find(peers.begin(), peers.end(), address.peer->address) == peers.end()) continue;
    std::erase(disconnected_, index);
    disconnected_.push_back(index);
  }
}

/// Ends what waits for a connection that was refused. What comes later tries again.
void Port::failWaiting(fi_addr_t unreachable, uint32_t status) {
  std::vector<uint32_t>& waiting = addresses_.waiting;
  for (size_t i = 0; i < waiting.size();) {
    Address& address = addresses_[waiting[i]];
    if (address.peer->address != unreachable) {
      ++i;
      continue;
    }
    while (!address.queue.empty()) cut(address.queue.pop(), status);
    address.pauseNs = 0;
    address.retryAt = 0;
    waiting[i] = waiting.back();
    waiting.pop_back();
  }
}

}  // namespace cinnabar::engine
