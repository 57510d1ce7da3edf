// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/connection_addresses.h"

#include <algorithm>

namespace cinnabar::verbs {
fi_addr_t ConnectionAddresses::insert(const uint8_t* address) {
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(endpoint_.av(), address, 1, &index, 0, nullptr) != 1) return FI_ADDR_NOTAVAIL;
  Known& known = known_[index];
  ++known.uses;
  if (known.raw.empty()) {
    known.raw.assign(address, address + endpoint_.addressBytes());
    known.since = std::chrono::steady_clock::now();
  }
  removeUnused();
  return index;
}

void ConnectionAddresses::remove(fi_addr_t address) {
  auto found = known_.find(address);
  if (found == known_.end() || found->second.uses == 0) return;
  if (--found->second.uses == 0) removeUnused();
}

uint32_t ConnectionAddresses::onPosted(fi_addr_t address, ssize_t status) {
  auto found = known_.find(address);
  if (found == known_.end()) return 0;
  note(found->second, status);
  return found->second.connection;
}

void ConnectionAddresses::disconnect(fi_addr_t address, uint32_t number) {
  auto found = known_.find(address);
  if (found == known_.end()) return;
  if (found->second.connection != number) return;
  // If a post was deferred since, the provider has noticed by itself and makes another connection;
  // or the broken one is full, and the next post that it takes fails as well.
  if (found->second.last == Last::failed || found->second.last == Last::deferred) return;
  end(found->second);
}

void ConnectionAddresses::disconnect(fi_addr_t address) {
  auto found = known_.find(address);
  // Here a post may have been deferred because the connection is full, and stays so.
  if (found != known_.end() && isEndable(address, found->second)) end(found->second);
}

std::vector<fi_addr_t> ConnectionAddresses::refuse(const fabric::RawAddress& peer, bool isStuck) {
  std::vector<fi_addr_t> refused;
  auto at = fabric::decodeSocketAddress(peer.data(), peer.size());
  if (!at) return refused;
  for (auto& [address, known] : known_) {
    auto each = fabric::decodeSocketAddress(known.raw.data(), known.raw.size());
    if (!each || each->port != at->port || each->host != at->host) continue;
    refused.push_back(address);
    // A post that was taken went to another connection, which the peer has made.
    if (!isStuck || known.last != Last::deferred || endpoint_.traits().rest.count() > 0) continue;
    end(known);
    known.last = Last::none;
  }
  return refused;
}

void ConnectionAddresses::end(Known& known) {
  ++known.connection;
  auto rest = endpoint_.traits().rest;
  if (rest.count() > 0) {
    known.since = std::chrono::steady_clock::now();
    known.restsUntil = known.since + rest;
    rests_ = true;
    return;
  }
  // The number stays valid, since the address has been inserted once more than it is removed.
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(endpoint_.av(), known.raw.data(), 1, &index, 0, nullptr) != 1) return;
  fi_av_remove(endpoint_.av(), &index, 1, 0);
}

bool ConnectionAddresses::isResting(fi_addr_t address) {
  if (!rests_) return false;
  auto now = std::chrono::steady_clock::now();
  auto found = known_.find(address);
  if (found != known_.end() && now < found->second.restsUntil) return true;
  rests_ = std::any_of(known_.begin(), known_.end(),
                       [&](const auto& entry) { return now < entry.second.restsUntil; });
  return false;
}

void ConnectionAddresses::removeUnused() {
  auto now = std::chrono::steady_clock::now();
  for (auto entry = known_.begin(); entry != known_.end();) {
    auto& [address, known] = *entry;
    bool isUnused = known.uses == 0 && now - known.since >= endpoint_.traits().linger;
    // One that cannot be ended costs an address, until one that is reached there is forgotten.
    if (!isUnused || !isEndable(address, known)) {
      ++entry;
      continue;
    }
    fi_addr_t removed = address;
    fi_av_remove(endpoint_.av(), &removed, 1, 0);
    entry = known_.erase(entry);
  }
}

/// Whether the provider survives the end of the address's connection. If the connection has not
/// begun, a post begins it, and the peer's answer is read after the connection was ended. The first
/// post may read the answer to a former attempt and begin no connection; so there are two.
bool ConnectionAddresses::isEndable(fi_addr_t address, Known& known) {
  for (int posts = 0; posts < 2 && known.last == Last::deferred; ++posts)
    note(known, postNothing(address));
  return known.last != Last::failed;
}

/// An empty read, which needs no right and sends the peer no data.
ssize_t ConnectionAddresses::postNothing(fi_addr_t address) {
  fi_rma_iov nothing{};
  fi_msg_rma message{};
  message.addr = address;
  message.rma_iov = &nothing;
  message.rma_iov_count = 1;
  return fi_readmsg(endpoint_.ep(), &message, FI_COMPLETION);
}

void ConnectionAddresses::note(Known& known, ssize_t status) {
  Last last = status == 0 ? Last::taken : Last::failed;
  if (status == -FI_EAGAIN) last = Last::deferred;
  // Another connection is being made.
  if (known.last == Last::taken && last == Last::deferred)
    known.since = std::chrono::steady_clock::now();
  known.last = last;
}

}  // namespace cinnabar::verbs
