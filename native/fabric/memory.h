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
/// A right that no peer has: our own transfers read the memory and never write it.
constexpr uint32_t kSource = 4;

/// Registered memory. Does not own the bytes: its maker keeps them alive until it is gone.
///
/// If the provider needs registrations of local memory too (FI_MR_LOCAL), peers' rights and our own
/// uses are registered apart. verbs on iWARP lets peers write all memory that is registered to read
/// into. rxm lets them read all memory that is registered to send from. With one registration,
/// peers could write what we grant for reading.
class Region {
 public:
  /// The use of the memory on this side.
  enum class Use { transfers, messages };

  /// Returns 0 or a negated libfabric error; -FI_ENOKEY if the key is taken. Where the provider
  /// chooses keys by itself, it is not asked for this one.
  static int open(const Endpoint& endpoint, void* bytes, size_t length, uint32_t access,
                  uint64_t key, std::unique_ptr<Region>* into, Use use = Use::transfers);

  /// Memory without a registration at a provider: a holder of the key copies by address.
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
  /// The base of a peer's offsets: an address, or 0 if the provider counts from the region's start.
  uint64_t base() const { return base_; }

  /// Ends new uses of the region. With `keyToo` the provider forgets the key at once; local
  /// transfers of the region go on.
  void withdraw(bool keyToo);
  bool isWithdrawn() const { return withdrawn_; }
  /// Whether it was registered for peers.
  bool isGranted() const { return granted_; }

  /// Local transfers under way; the region must not be released before they end.
  uint32_t users = 0;
  /// The process that got the key, where peers are processes; 0 if any may have it.
  pid_t holder = 0;

 private:
  Region(uint8_t* bytes, size_t length, uint64_t localRights, bool granted)
      : bytes_(bytes), length_(length), localRights_(localRights), granted_(granted) {}

  uint8_t* bytes_;
  size_t length_;
  uint64_t base_ = 0;
  uint64_t key_ = 0;      // of memory without a registration; 0 where peers have no right
  uint64_t localRights_;  // 0 where our own use needs no registration
  bool granted_;
  bool withdrawn_ = false;
  Fid<fid_mr> mr_;     // for peers; null where they have no right
  Fid<fid_mr> local_;  // for our own use
};

/// A 64-bit number that cannot be guessed, never 0.
uint64_t randomNumber();

}  // namespace cinnabar::fabric
