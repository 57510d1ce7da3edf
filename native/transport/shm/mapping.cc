// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/mapping.h"

#include "fabric/library.h"
#include "fabric/quirks.h"

namespace cinnabar::shm {

std::shared_ptr<Mapping> Mappings::map(const std::string& fabricName, EndpointLease local) {
  auto known = live_.find(fabricName);
  if (known != live_.end()) {
    if (auto mapping = known->second.lock()) return mapping;
  }
  if (taken_ >= kMost) return nullptr;
  fi_addr_t address = endpoint_.insert(reinterpret_cast<const uint8_t*>(fabricName.c_str()));
  if (address == FI_ADDR_NOTAVAIL) return nullptr;
  ++taken_;
  auto mapping = std::make_shared<Mapping>(*this, fabricName, address);
  mapping->local = std::move(local);
  live_[fabricName] = mapping;
  return mapping;
}

void Mappings::setRegion(int file) {
  slots_ = PeerSlots::of(file);
  const fabric::Library* library = fabric::library();
  if (!slots_ && library != nullptr &&
      fabric::hasQuirk(fabric::Quirk::remembersPeers, "shm", library->loadedVersion))
    keepSlots();
}

Mapping::~Mapping() {
  mappings.live_.erase(fabricName);
  if (answered && !mappings.keepsSlots_) {
    mappings.retired_.push_back({address, std::move(local)});
  } else if (local) {
    mappings.givenUp_.push_back(std::move(local));
  }
}

void Mappings::onDrained() {
  for (const Retired& entry : retired_) {
    endpoint_.remove(entry.address);
    --taken_;
  }
  if (slots_ && !retired_.empty()) slots_->clearUnused();
  retired_.clear();
}

}  // namespace cinnabar::shm
