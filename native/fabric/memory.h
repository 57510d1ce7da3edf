// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fabric/endpoint.h"

namespace cinnabar::fabric {

/// What a peer may do with a region; a region with none serves local transfers only.
constexpr uint32_t kRemoteRead = 1;
constexpr uint32_t kRemoteWrite = 2;

/// Registered memory. Does not own the bytes: whoever made it keeps them alive until it is gone.
class Region {
 public:
  /// Returns 0 or a negated libfabric error; -FI_ENOKEY if the key is taken. Where the provider
  /// chooses keys by itself, it is not asked for this one.
  static int open(const Endpoint& endpoint, void* bytes, size_t length, uint32_t access,
                  uint64_t key, std::unique_ptr<Region>* into);

  uint8_t* bytes() const { return bytes_; }
  size_t length() const { return length_; }
  void* descriptor() const { return mr_ ? fi_mr_desc(mr_.get()) : nullptr; }
  uint64_t key() const { return mr_ ? fi_mr_key(mr_.get()) : 0; }
  /// What a peer adds its offset to: an address, or 0 where the provider counts from the region's
  /// start.
  uint64_t base() const { return base_; }

  /// No new use of it. Where `keyToo`, the provider forgets the key at once; transfers that use the
  /// region locally go on.
  void withdraw(bool keyToo);
  bool isWithdrawn() const { return withdrawn_; }
  /// Whether it was registered for peers.
  bool isLent() const { return lent_; }

  /// Local transfers under way; the region must not be released while there are some.
  uint32_t users = 0;

 private:
  Region(uint8_t* bytes, size_t length, bool local, bool lent)
      : bytes_(bytes), length_(length), neededLocally_(local), lent_(lent) {}

  uint8_t* bytes_;
  size_t length_;
  uint64_t base_ = 0;
  bool neededLocally_;
  bool lent_;
  bool withdrawn_ = false;
  Fid<fid_mr> mr_;  // null where neither a peer nor the provider needs a registration
};

/// A 64-bit number nobody can guess, never 0.
uint64_t randomNumber();

}  // namespace cinnabar::fabric
