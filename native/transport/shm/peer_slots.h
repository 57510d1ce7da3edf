// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <memory>

namespace cinnabar::shm {

/// The slots for peers in an shm endpoint, as libfabric 2.1 keeps them: the peer of each slot
/// (struct smr_map, in our memory) and what was agreed with that peer (struct smr_peer_data, in our
/// region).
///
/// libfabric clears the first when an address is removed, but not the second. A later peer in the
/// slot is taken for one that has been introduced, and is never mapped. The first post to it goes
/// through a null pointer.
class PeerSlots {
 public:
  /// The slots of the endpoint that has made this region, has met nobody yet and outlives this.
  /// nullptr where they are not needed, or where the layout is not the one that is known here.
  static std::unique_ptr<PeerSlots> of(int regionFile);

  /// Clears the slots without a peer. Call it only where the endpoint may be polled.
  void clearUnused();

 private:
  PeerSlots(const uint8_t* owners, uint8_t* records) : owners_(owners), records_(records) {}

  const uint8_t* owners_;
  uint8_t* records_;
};

}  // namespace cinnabar::shm
