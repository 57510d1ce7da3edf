// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/connection_addresses.h"

#include <algorithm>

namespace cinnabar::verbs {
namespace {

// As long as a connect waits by default.
constexpr auto kAddressLinger = std::chrono::seconds(5);

}  // namespace

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
  found->second.unmade = status != 0 && status != -FI_EAGAIN;
  return found->second.connection;
}

void ConnectionAddresses::disconnect(fi_addr_t address, uint32_t number) {
  auto found = known_.find(address);
  if (found == known_.end()) return;
  if (found->second.connection != number || found->second.unmade) return;
  ++found->second.connection;
  auto rest = endpoint_.traits().rest;
  if (rest.count() > 0) {
    found->second.since = std::chrono::steady_clock::now();
    found->second.restsUntil = found->second.since + rest;
    rests_ = true;
    return;
  }
  // The number stays valid, since the address has been inserted once more than it is removed.
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(endpoint_.av(), found->second.raw.data(), 1, &index, 0, nullptr) != 1) return;
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
  std::erase_if(known_, [&](auto& entry) {
    if (entry.second.uses > 0 || now - entry.second.since < kAddressLinger) return false;
    // It would crash. Costs an address, until one that is reached there is forgotten.
    if (entry.second.unmade) return false;
    fi_addr_t address = entry.first;
    fi_av_remove(endpoint_.av(), &address, 1, 0);
    return true;
  });
}

}  // namespace cinnabar::verbs
