// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "base/allocation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace cinnabar::base {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMostBytes = size_t{1} << 47;

std::atomic<size_t> totalMapped{0};

/// All allocations by address. Never destroyed: buffers are finalized until the process is gone.
struct Table {
  std::mutex mutex;
  std::map<uintptr_t, std::weak_ptr<Allocation>> byAddress;
};
Table& table() {
  static Table* all = new Table;
  return *all;
}

size_t roundUp(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

uint8_t* map(size_t bytes, int flags) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}

/// Pages that the administrator has set aside. They are touched at once. If a control group has no
/// such page left, the kernel refuses this call; a process that touches them later is killed.
uint8_t* mapReserved(size_t bytes) {
  uint8_t* memory = map(bytes, MAP_HUGETLB | 21 << MAP_HUGE_SHIFT);
  if (memory == nullptr) return nullptr;
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return memory;
  munmap(memory, bytes);
  return nullptr;
}

/// Ordinary pages on 2 MiB borders, which the kernel joins where it can.
uint8_t* mapTransparent(size_t bytes) {
  uint8_t* memory = map(bytes + kHugePage, 0);
  if (memory == nullptr) return nullptr;
  size_t before = (kHugePage - reinterpret_cast<uintptr_t>(memory) % kHugePage) % kHugePage;
  if (before > 0) munmap(memory, before);
  munmap(memory + before + bytes, kHugePage - before);
  madvise(memory + before, bytes, MADV_HUGEPAGE);
  return memory + before;
}

}  // namespace

std::shared_ptr<Allocation> Allocation::create(size_t bytes, bool hugePages) {
  if (bytes == 0 || bytes > kMostBytes) return nullptr;
  uint8_t* memory;
  size_t length;
  if (hugePages) {
    length = roundUp(bytes, kHugePage);
    memory = mapReserved(length);
    if (memory == nullptr) memory = mapTransparent(length);
  } else {
    length = roundUp(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    memory = map(length, 0);
  }
  if (memory == nullptr) return nullptr;
  std::shared_ptr<Allocation> allocation(new Allocation(memory, length));
  enter(allocation);
  return allocation;
}

void Allocation::enter(const std::shared_ptr<Allocation>& allocation) {
  totalMapped += allocation->length_;
  std::lock_guard lock(table().mutex);
  table().byAddress[reinterpret_cast<uintptr_t>(allocation->bytes_)] = allocation;
}

std::shared_ptr<Allocation> Allocation::of(const void* address) {
  uintptr_t number = reinterpret_cast<uintptr_t>(address);
  // Outlives the lock: an owner that turns out to be the last one takes it again as it dies.
  std::shared_ptr<Allocation> found;
  std::lock_guard lock(table().mutex);
  auto next = table().byAddress.upper_bound(number);
  if (next == table().byAddress.begin()) return nullptr;
  --next;
  found = next->second.lock();
  bool inside = found != nullptr && number - next->first < found->length_;
  return inside ? found : nullptr;
}

size_t Allocation::totalBytes() { return totalMapped; }

Allocation::~Allocation() {
  {
    // Before the pages go: the next mapping may get the same address.
    std::lock_guard lock(table().mutex);
    table().byAddress.erase(reinterpret_cast<uintptr_t>(bytes_));
  }
  munmap(bytes_, length_);
  totalMapped -= length_;
}

}  // namespace cinnabar::base
