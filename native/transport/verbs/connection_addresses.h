// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <chrono>
#include <unordered_map>
#include <vector>

#include "fabric/endpoint.h"

namespace cinnabar::verbs {

/// The address vector of an endpoint on which each address has a connection of its own.
///
/// rxm may reuse the number of an address that it knows, and ends the connection at the first
/// removal (Quirk::endsConnections). So an address stays until it has no user, and for some seconds
/// at least (EndpointTraits::linger). An attempt soon after finds the connection that is being
/// made.
///
/// rxm crashes when it ends a connection that was never begun, or that the peer has rejected
/// because it makes one itself. It closes an endpoint that does not exist (rxm_av_remove_handler).
/// The results of our posts show these states. After an accepted post the connection is made. After
/// a deferred post the connection has begun, and may have been rejected since.
class ConnectionAddresses {
 public:
  /// `endpoint` outlives this.
  explicit ConnectionAddresses(fabric::Endpoint& endpoint) : endpoint_(endpoint) {}

  /// FI_ADDR_NOTAVAIL if the address cannot be inserted. An address that was inserted twice must be
  /// removed twice.
  fi_addr_t insert(const uint8_t* address);
  void remove(fi_addr_t address);

  /// Notes the result of a post to the address. Returns the number of its connection, for
  /// `disconnect`.
  uint32_t onPosted(fi_addr_t address, ssize_t status);
  /// An operation on connection `number` has failed, so the connection is broken, even if the
  /// provider has not noticed. The next post makes another.
  void disconnect(fi_addr_t address, uint32_t number);
  /// The address has no user any more. Ends the connection that it has now.
  void disconnect(fi_addr_t address);
  /// A connection to a peer was refused. Returns the peer's addresses, for their waiting
  /// operations. If `isStuck`, the provider does not notice the refusal and connects for ever; the
  /// connection is ended then.
  std::vector<fi_addr_t> refuse(const fabric::RawAddress& peer, bool isStuck);
  /// Whether a post would go to a connection that is being ended: to be tried again.
  bool isResting(fi_addr_t address);

 private:
  /// The result of the last post: accepted, to be tried again, or failed to begin a connection.
  enum class Last : uint8_t { none, taken, deferred, failed };
  struct Known {
    uint32_t uses = 0;
    uint32_t connection = 0;  // the number of those that `disconnect` has ended
    Last last = Last::none;
    // its insertion, or the end of its last connection
    std::chrono::steady_clock::time_point since;
    std::chrono::steady_clock::time_point restsUntil;
    fabric::RawAddress raw;
  };
  void end(Known& known);
  void removeUnused();
  bool isEndable(fi_addr_t address, Known& known);
  ssize_t postNothing(fi_addr_t address);
  static void note(Known& known, ssize_t status);

  fabric::Endpoint& endpoint_;
  std::unordered_map<fi_addr_t, Known> known_;
  bool rests_ = false;  // some addresses may rest
};

}  // namespace cinnabar::verbs
