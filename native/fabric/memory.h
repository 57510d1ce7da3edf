// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fabric/endpoint.h"

namespace cinnabar::fabric {

/// The rights of peers to a region; a region without rights serves local transfers only.
constexpr uint32_t kRemoteRead = 1;
constexpr uint32_t kRemoteWrite = 2;
/// No right of a peer's: our own transfers read the memory and never write it.
constexpr uint32_t kSource = 4;

/// Registered memory. Does not own the bytes: its maker keeps them alive until it is gone.
///
/// Where the provider asks for registrations of local memory too (FI_MR_LOCAL), what a peer may do
/// and what we do are registered apart: verbs on iWARP lets peers write whatever is registered to
/// read into, and rxm lets them read whatever is registered to send from. What we grant for
/// reading would else be writable.
class Region {
 public:
  /// What the memory serves on this side.
  enum class Use { transfers, messages };

  /// Returns 0 or a negated libfabric error; -FI_ENOKEY if the key is taken. Where the provider
  /// chooses keys by itself, it is not asked for this one.
  static int open(const Endpoint& endpoint, void* bytes, size_t length, uint32_t access,
                  uint64_t key, std::unique_ptr<Region>* into, Use use = Use::transfers);

  /// Memory that no provider has to know of: a holder of the key copies by address.
  static std::unique_ptr<Region> unregistered(void* bytes, size_t length, uint32_t access,
                                              uint64_t key);

  uint8_t* bytes() const { return bytes_; }
  size_t length() const { return length_; }
  /// Before its first use on this side. 0 or a negated libfabric error.
  int prepare(const Endpoint& endpoint);
  void* descriptor() const {
    fid_mr* mr = local_ ? local_.get() : mr_.get();
    return mr != nullptr ? fi_mr_desc(mr) : nullptr;
  }
  uint64_t key() const { return mr_ ? fi_mr_key(mr_.get()) : key_; }
  /// What a peer adds its offset to: an address, or 0 where the provider counts from the region's
  /// start.
  uint64_t base() const { return base_; }

  /// No new use of it. Where `keyToo`, the provider forgets the key at once; transfers that use the
  /// region locally go on.
  void withdraw(bool keyToo);
  bool isWithdrawn() const { return withdrawn_; }
  /// Whether it was registered for peers.
  bool isGranted() const { return granted_; }

  /// Local transfers under way; the region must not be released while there are some.
  uint32_t users = 0;
  /// The process that was given the key, where its peers are processes; 0 where any may have it.
  pid_t holder = 0;

 private:
  Region(uint8_t* bytes, size_t length, uint64_t localRights, bool granted)
      : bytes_(bytes), length_(length), localRights_(localRights), granted_(granted) {}

  uint8_t* bytes_;
  size_t length_;
  uint64_t base_ = 0;
  uint64_t key_ = 0;      // of memory that no provider knows of; 0 where peers may do nothing
  uint64_t localRights_;  // 0 where the provider needs no registration for our own use
  bool granted_;
  bool withdrawn_ = false;
  Fid<fid_mr> mr_;     // for peers; null where they may do nothing
  Fid<fid_mr> local_;  // for our own use
};

/// A 64-bit number that cannot be guessed, never 0.
uint64_t randomNumber();

}  // namespace cinnabar::fabric
