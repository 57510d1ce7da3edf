// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/byte_ring.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "transport/shm/sealed_memory.h"

namespace cinnabar::shm {
namespace {

size_t pageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

bool isCapacity(size_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kLeastRingBytes && bytes <= kMostRingBytes;
}

}  // namespace

size_t ringBytesFor(size_t messageBytes) {
  if (messageBytes > kMostRingBytes / 4) return 0;
  return std::bit_ceil(std::max(kLeastRingBytes, 4 * messageBytes));
}

std::unique_ptr<RingMapping> RingMapping::map(int fd, size_t capacity) {
  size_t headBytes = pageBytes();
  size_t length = headBytes + 2 * capacity;
  void* room = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  auto* base = static_cast<uint8_t*>(room);
  std::unique_ptr<RingMapping> mapping(new RingMapping(base, headBytes, capacity));
  auto place = [&](uint8_t* at, size_t bytes, size_t offset) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                static_cast<off_t>(offset)) != MAP_FAILED;
  };
  if (!place(base, headBytes + capacity, 0) ||
      !place(base + headBytes + capacity, capacity, headBytes)) {
    return nullptr;
  }
  return mapping;
}

RingMapping::~RingMapping() { munmap(base_, static_cast<size_t>(data_ - base_) + 2 * capacity_); }

std::unique_ptr<RingReader> RingReader::create(size_t capacity) {
  base::Fd fd(memfd_create("cinnabar-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return nullptr;
  auto bytes = static_cast<off_t>(pageBytes() + capacity);
  // Reserved, so that a missing page does not kill a process later.
  if (int code = posix_fallocate(fd.get(), 0, bytes); code != 0) {
    errno = code;
    return nullptr;
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSealedSize | F_SEAL_SEAL) != 0) return nullptr;
  auto mapping = RingMapping::map(fd.get(), capacity);
  if (!mapping) return nullptr;
  return std::unique_ptr<RingReader>(new RingReader(std::move(fd), std::move(mapping)));
}

std::unique_ptr<RingWriter> RingWriter::adopt(base::Fd fd, size_t capacity) {
  if (!isCapacity(capacity)) return nullptr;
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSealedSize) != kSealedSize ||
      (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))) {
    return nullptr;
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || info.st_size != static_cast<off_t>(pageBytes() + capacity))
    return nullptr;
  auto mapping = RingMapping::map(fd.get(), capacity);
  if (!mapping) return nullptr;
  return std::unique_ptr<RingWriter>(new RingWriter(std::move(mapping)));
}

bool RingWriter::hasRoom(size_t bytes) {
  // The word behind the record is cleared, so it must be free too.
  uint64_t needed = RingMapping::recordBytes(bytes) + RingMapping::kRecordHead;
  uint64_t capacity = mapping_->capacity();
  if (needed <= capacity - (position_ - head_)) return true;
  uint64_t head = mapping_->page().head.load(std::memory_order_acquire);
  if (head - head_ > position_ - head_) return false;
  head_ = head;
  return needed <= capacity - (position_ - head_);
}

bool RingWriter::write(RecordKind kind, const void* first, size_t firstBytes, const void* second,
                       size_t secondBytes) {
  size_t length = firstBytes + secondBytes;
  if (!hasRoom(length)) return false;
  uint8_t* bytes = mapping_->at(position_) + RingMapping::kRecordHead;
  if (firstBytes > 0) memcpy(bytes, first, firstBytes);
  if (secondBytes > 0) memcpy(bytes + firstBytes, second, secondBytes);
  mapping_->kind(position_).store(static_cast<uint32_t>(kind), std::memory_order_relaxed);
  uint64_t next = position_ + RingMapping::recordBytes(length);
  mapping_->word(next).store(0, std::memory_order_relaxed);
  mapping_->word(position_).store(static_cast<uint32_t>(length + 1), std::memory_order_release);
  position_ = next;
  return true;
}

}  // namespace cinnabar::shm
