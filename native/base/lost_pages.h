// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>

namespace cinnabar::base {

/// Watches a mapping of a file. An access to a page that the file has lost raises SIGBUS, which
/// would end the process. While this lives, a signal handler of the process replaces lost pages by
/// zeros, marks the mapping as damaged, and the access goes on.
///
/// A page is lost when another program truncates the file, and when the system cannot read or
/// allocate it.
class LostPages {
 public:
  /// `begin` to `begin + length` are whole pages of `page` bytes of the mapped `file`. The handler,
  /// after a repair, and `mark` write the number 1 to `alarm`, unless `alarm` is negative. Both
  /// descriptors outlive this.
  LostPages(uint8_t* begin, size_t length, size_t page, int file, int alarm);
  /// Destroy it before the mapping.
  ~LostPages();
  LostPages(const LostPages&) = delete;
  LostPages& operator=(const LostPages&) = delete;

  /// Whether a page was replaced, or `mark` was called.
  bool any() const;
  void mark();

 private:
  struct WatchedMapping* entry_;
};

}  // namespace cinnabar::base
