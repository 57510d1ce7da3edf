// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cinnabar::base {

/// Memory of its own pages, given back to the system with its last owner. Owners are the buffer
/// that JavaScript sees, and each registration of it. When an environment ends, its buffers are
/// freed before its ports, and a provider must keep its pages. The pages are zeros, or those of a
/// file (mapped_file.h).
class Allocation {
 public:
  /// nullptr when the system has no memory left. With `hugePages` the memory begins at a multiple
  /// of 2 MiB, in huge pages as far as the system has free ones.
  static std::shared_ptr<Allocation> create(size_t bytes, bool hugePages);

  /// The allocation that `address` lies in; nullptr for any other memory. Safe from any thread.
  static std::shared_ptr<Allocation> of(const void* address);

  /// Bytes mapped by all allocations of the process.
  static size_t totalBytes();

  virtual ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  uint8_t* bytes() const { return bytes_; }
  /// Length of the mapping: the requested bytes, up to the next page.
  size_t length() const { return length_; }

 protected:
  /// Owns a mapping of whole pages.
  Allocation(uint8_t* bytes, size_t length) : bytes_(bytes), length_(length) {}
  /// From now on `of` finds it, and `totalBytes` counts it.
  static void enter(const std::shared_ptr<Allocation>& allocation);

 private:
  uint8_t* bytes_;
  size_t length_;
};

}  // namespace cinnabar::base
