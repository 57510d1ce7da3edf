// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/keys.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "transport/shm/sealed_memory.h"

namespace cinnabar::shm {
namespace {

// Calls `visit` with each place that a key may have until it returns true.
template <typename Entries, typename F>
auto* search(Entries* entries, uint64_t key, F&& visit) {
  for (size_t i = 0; i < kKeyWindow; ++i) {
    Entries* entry = &entries[(key + i) % kKeyEntries];
    if (visit(*entry)) return entry;
  }
  return static_cast<Entries*>(nullptr);
}

bool findIn(const KeyEntry* entries, uint64_t key, KeyRange* into) {
  constexpr auto relaxed = std::memory_order_relaxed;
  if (key == 0) return false;
  const KeyEntry* entry = search(entries, key, [&](const KeyEntry& candidate) {
    return candidate.key.load(std::memory_order_acquire) == key;
  });
  if (entry == nullptr) return false;
  into->base = entry->base.load(relaxed);
  into->length = entry->length.load(relaxed);
  into->access = entry->access.load(relaxed);
  // The fields belong to the key only if it is still there.
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry->key.load(relaxed) == key;
}

}  // namespace

std::unique_ptr<KeyTable> KeyTable::create() {
  base::Fd fd(memfd_create("cinnabar-keys", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), kKeysBytes) != 0) return nullptr;
  // Mapped before the seal, after which no writable mapping can be made.
  void* mapped = mmap(nullptr, kKeysBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::unique_ptr<KeyTable> table(new KeyTable(std::move(fd), static_cast<KeyEntry*>(mapped)));
  int seals = kSealedSize | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fcntl(table->fd(), F_ADD_SEALS, seals) == 0) return table;
  int code = errno;
  table.reset();
  errno = code;
  return nullptr;
}

KeyTable::~KeyTable() { munmap(entries_, kKeysBytes); }

bool KeyTable::add(uint64_t key, uint64_t base, uint64_t length, uint64_t access) {
  constexpr auto relaxed = std::memory_order_relaxed;
  KeyEntry* entry =
      search(entries_, key, [&](KeyEntry& candidate) { return candidate.key.load(relaxed) == 0; });
  if (entry == nullptr) return false;
  // A reader that sees one of these stores sees that the former key has gone.
  std::atomic_thread_fence(std::memory_order_release);
  entry->base.store(base, relaxed);
  entry->length.store(length, relaxed);
  entry->access.store(access, relaxed);
  entry->key.store(key, std::memory_order_release);
  return true;
}

void KeyTable::remove(uint64_t key) {
  constexpr auto relaxed = std::memory_order_relaxed;
  KeyEntry* entry = search(entries_, key,
                           [&](KeyEntry& candidate) { return candidate.key.load(relaxed) == key; });
  if (entry != nullptr) entry->key.store(0, relaxed);
}

bool KeyTable::find(uint64_t key, KeyRange* into) const { return findIn(entries_, key, into); }

int KeyRange::refuses(uint64_t at, uint64_t bytes, uint64_t wanted) const {
  if ((access & wanted) != wanted) return EACCES;
  bool within = at >= base && at - base <= length && bytes <= length - (at - base);
  return within ? 0 : ERANGE;
}

std::unique_ptr<RemoteKeys> RemoteKeys::adopt(base::Fd fd) {
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || !isOwnersAlone(seals)) return nullptr;
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || info.st_size != static_cast<off_t>(kKeysBytes)) return nullptr;
  void* mapped = mmap(nullptr, kKeysBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  return std::unique_ptr<RemoteKeys>(new RemoteKeys(static_cast<const KeyEntry*>(mapped)));
}

RemoteKeys::~RemoteKeys() { munmap(const_cast<KeyEntry*>(entries_), kKeysBytes); }

bool RemoteKeys::find(uint64_t key, KeyRange* into) const { return findIn(entries_, key, into); }

}  // namespace cinnabar::shm
