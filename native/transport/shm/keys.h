// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"

namespace cinnabar::shm {

// The kernel does not check keys when processes copy directly. So each port publishes the keys that
// it has given out, in a page that its neighbours map read-only. A neighbour looks there before it
// copies. See docs/design/bulk.md.

/// The layout is fixed, since peers may have other builds. One thread of one process writes while
/// others read: it writes the fields before the key, and clears the key before it changes them.
struct KeyEntry {
  std::atomic<uint64_t> key;  // 0: free
  std::atomic<uint64_t> base;
  std::atomic<uint64_t> length;
  std::atomic<uint64_t> access;
};
static_assert(sizeof(KeyEntry) == 32 && std::atomic<uint64_t>::is_always_lock_free);

// The low bits of a key select a place. The key lies in one of the kKeyWindow places from there. A
// search looks at all of them, so a removed key leaves no mark.
constexpr size_t kKeyEntries = 1 << 16;
constexpr size_t kKeyWindow = 16;
constexpr size_t kKeysBytes = kKeyEntries * sizeof(KeyEntry);

/// The memory of a key.
struct KeyRange {
  uint64_t base = 0;
  uint64_t length = 0;
  uint64_t access = 0;

  /// 0, EACCES or ERANGE.
  int refuses(uint64_t at, uint64_t bytes, uint64_t wanted) const;
};

/// A port's own keys.
class KeyTable {
 public:
  /// nullptr if the system refuses; errno says why.
  static std::unique_ptr<KeyTable> create();
  ~KeyTable();

  int fd() const { return fd_.get(); }

  /// False if the window of this key is full: draw another. Keys are never 0, and never used again.
  bool add(uint64_t key, uint64_t base, uint64_t length, uint64_t access);
  void remove(uint64_t key);
  /// False if the key is unknown, or was taken back.
  bool find(uint64_t key, KeyRange* into) const;

 private:
  KeyTable(base::Fd fd, KeyEntry* entries) : fd_(std::move(fd)), entries_(entries) {}

  base::Fd fd_;
  KeyEntry* entries_;
};

/// A neighbour's keys.
class RemoteKeys {
 public:
  /// Owns the descriptor from now on, whatever it returns. nullptr unless it is a table that cannot
  /// shrink under our mapping, which would raise SIGBUS, and that only its owner can write.
  static std::unique_ptr<RemoteKeys> adopt(base::Fd fd);
  ~RemoteKeys();

  /// False if the key is unknown, or was taken back.
  bool find(uint64_t key, KeyRange* into) const;

 private:
  explicit RemoteKeys(const KeyEntry* entries) : entries_(entries) {}

  const KeyEntry* entries_;
};

}  // namespace cinnabar::shm
