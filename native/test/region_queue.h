// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/fd.h"

namespace cinnabar::test {

/// The queue in an shm region of libfabric 2.1, as posters use it.
struct RegionQueue {
  struct Entry {
    alignas(64) std::atomic<int64_t> seq;
    bool givenUp;
    uint8_t command[512];
  };
  alignas(64) std::atomic<int64_t> taken;
  alignas(64) std::atomic<int64_t> read;
  alignas(64) int32_t size;
  int32_t mask;

  Entry& entry(int64_t place) { return reinterpret_cast<Entry*>(this + 1)[place & mask]; }

  /// Takes a place as a poster does.
  int64_t take() {
    int64_t place = taken;
    while (entry(place).seq != place || !taken.compare_exchange_weak(place, place + 1)) {
      if (entry(place).seq != place) place = taken;
    }
    return place;
  }
  void fill(int64_t place) { entry(place).seq.store(place + 1, std::memory_order_release); }

  /// The queue of a process's only shm port; nullptr if it has none. Stays mapped.
  static RegionQueue* of(pid_t pid) {
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
      base::Fd opened(open(file.path().c_str(), O_RDWR | O_CLOEXEC));
      struct stat info;
      if (!opened || fstat(opened.get(), &info) != 0 || info.st_size < 4096) continue;
      auto bytes = static_cast<size_t>(info.st_size);
      void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, opened.get(), 0);
      if (mapped == MAP_FAILED) continue;
      auto* region = static_cast<uint8_t*>(mapped);
      if (region[0] == 8 && *reinterpret_cast<int*>(region + 4) == pid) {
        return reinterpret_cast<RegionQueue*>(region + *reinterpret_cast<size_t*>(region + 80));
      }
      munmap(mapped, bytes);
    }
    return nullptr;
  }
};
static_assert(sizeof(RegionQueue) == 192 && sizeof(RegionQueue::Entry) == 576);

}  // namespace cinnabar::test
