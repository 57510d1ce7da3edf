// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/shm/peer_slots.h"
#include "transport/shm/shared_endpoint.h"

namespace cinnabar::shm {

class Mappings;

/// A peer's region in our shm address vector, shared by everything that posts to that incarnation
/// of the peer.
struct Mapping {
  Mapping(Mappings& owner, std::string name, fi_addr_t at)
      : mappings(owner), fabricName(std::move(name)), address(at) {}
  ~Mapping();

  Mappings& mappings;
  std::string fabricName;
  fi_addr_t address;
  /// Set if the peer is a port of this process. Kept until the entry is out of the address vector.
  EndpointLease local;
  /// The provider took a message for it. Until then its introduction may lie unanswered in the
  /// peer's queue.
  bool answered = false;
};

/// The shm address vector.
///
/// Removing an entry is where the provider is weakest. It keeps the old peer's numbers in the
/// entry's place and gives the place to the next peer: harmless in 1.17 for small messages, which
/// are all that is sent, unless the old peer never answered the introduction; then the next one
/// would never be introduced, so such a slot is given up for good. In 2.1 the next one would never
/// be mapped, so the numbers are cleared (peer_slots.h), or the slot is given up as well. And a
/// dead peer's introduction that is still in our own queue would map the peer again, so removal
/// waits until the queue was seen empty.
class Mappings {
 public:
  explicit Mappings(fabric::Endpoint& endpoint) : endpoint_(endpoint) {}

  /// nullptr if there is no room for another peer.
  /// `local` is the peer's endpoint if the peer is a port of this process.
  std::shared_ptr<Mapping> map(const std::string& fabricName, EndpointLease local);

  /// The file of our region, before anybody is mapped.
  void setRegion(int file);
  /// No slot is used by two peers, one after the other: each is given up for good.
  void keepSlots() { keepsSlots_ = true; }
  bool hasRetired() const { return !retired_.empty(); }
  /// The completion queue was just polled to its end with receives posted.
  void onDrained();

 private:
  friend struct Mapping;
  // The provider's own bound (SMR_MAX_PEERS) is 256, ourselves included, and it does not check it
  // on every path.
  static constexpr size_t kMost = 250;

  fabric::Endpoint& endpoint_;
  std::unordered_map<std::string, std::weak_ptr<Mapping>> live_;
  struct Retired {
    fi_addr_t address;
    EndpointLease local;
  };
  std::vector<Retired> retired_;
  std::unique_ptr<PeerSlots> slots_;
  bool keepsSlots_ = false;
  std::vector<EndpointLease> givenUp_;
  size_t taken_ = 0;  // live, retired and given up
};

}  // namespace cinnabar::shm
