// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/stopped_queue.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "fabric/patches.h"
#include "transport/shm/smr_region.h"
#include "transport/shm/stale_lock_reaper.h"

namespace cinnabar::shm {
namespace {

// prov/shm/src/smr_util.h of 2.1, built without its debugging aids.
constexpr size_t kQueueAt = 80;      // an offset from the base
constexpr size_t kQueueEndsAt = 88;  // likewise: the next thing in the region
// include/ofi_atomic_queue.h: places are numbered on and on, and each belongs to the entry of its
// number modulo the size. An entry's `seq` is the place it is free for; one more once that is
// filled.
constexpr size_t kTakenAt = 0;  // the next place to be taken
constexpr size_t kReadAt = 64;  // the next place to be read
constexpr size_t kSizeAt = 128;
constexpr size_t kMaskAt = 132;
constexpr size_t kEntriesAt = 192;
constexpr size_t kEntryBytes = 576;
constexpr size_t kSeqAt = 0;
constexpr size_t kGivenUpAt = 8;  // `noop`: the reader passes over it
constexpr int64_t kMostEntries = 1 << 20;

std::atomic_ref<int64_t> shared(uint8_t* at) {
  return std::atomic_ref<int64_t>(*reinterpret_cast<int64_t*>(at));
}

int64_t look(uint8_t* at) { return shared(at).load(std::memory_order_acquire); }

}  // namespace

std::unique_ptr<StoppedQueue> StoppedQueue::of(int regionFile) {
  if (!fabric::allowsPatch(fabric::Patch::stoppedQueue)) return nullptr;
  auto head = RegionHead::map(regionFile, getpid());
  if (!head || smr::readAt<uint8_t>(head->bytes() + smr::kVersionAt) != smr::kVersion)
    return nullptr;
  auto queue = in(smr::readAt<uint8_t*>(head->bytes() + smr::kBaseAt));
  if (queue) fabric::notePatched(fabric::Patch::stoppedQueue);
  return queue;
}

std::unique_ptr<StoppedQueue> StoppedQueue::in(uint8_t* region) {
  if (smr::readAt<uint8_t>(region + smr::kVersionAt) != smr::kVersion) return nullptr;
  if (smr::readAt<uint16_t>(region + smr::kFlagsAt) & smr::kDebugFlag) return nullptr;
  auto begins = smr::readAt<size_t>(region + kQueueAt);
  auto ends = smr::readAt<size_t>(region + kQueueEndsAt);
  uint8_t* queue = region + begins;
  if (begins >= ends || reinterpret_cast<uintptr_t>(queue) % 64 != 0) return nullptr;
  int64_t size = smr::readAt<int32_t>(queue + kSizeAt);
  if (size <= 0 || size > kMostEntries || (size & (size - 1)) != 0) return nullptr;
  if (ends - begins != kEntriesAt + kEntryBytes * static_cast<size_t>(size)) return nullptr;
  if (smr::readAt<int32_t>(queue + kMaskAt) != size - 1) return nullptr;
  // Nobody was met yet, which proves the layout.
  if (look(queue + kTakenAt) != 0 || look(queue + kReadAt) != 0) return nullptr;
  std::unique_ptr<StoppedQueue> found(new StoppedQueue(queue, size));
  for (int64_t place = 0; place < size; ++place) {
    uint8_t* entry = found->entry(place);
    if (look(entry + kSeqAt) != place || entry[kGivenUpAt] != 0) return nullptr;
  }
  return found;
}

uint8_t* StoppedQueue::entry(int64_t place) const {
  return queue_ + kEntriesAt + kEntryBytes * static_cast<size_t>(place & (size_ - 1));
}

std::vector<int64_t> StoppedQueue::unfilled() const {
  std::vector<int64_t> places;
  int64_t place = look(queue_ + kReadAt);
  int64_t end = std::min(look(queue_ + kTakenAt), place + size_);
  for (; place < end; ++place) {
    if (look(entry(place) + kSeqAt) == place) places.push_back(place);
  }
  return places;
}

/// What is still not filled of the list.
bool StoppedQueue::giveUp() {
  bool any = false;
  for (int64_t place : places_) {
    uint8_t* at = entry(place);
    if (look(at + kSeqAt) != place) continue;
    at[kGivenUpAt] = 1;
    shared(at + kSeqAt).store(place + 1, std::memory_order_release);
    any = true;
  }
  places_.clear();
  return any;
}

}  // namespace cinnabar::shm
