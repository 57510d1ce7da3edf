// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"

namespace cinnabar::shm {

// Records from one writer to one reader, in memory that both map. Each of two neighbour ports owns
// the ring that it reads.
//
// The memory is a memfd of sealed size:
//
//   a page      how far the reader has come, and whether the writer waits for room
//   capacity    records, a power of two
//
// Both sides map the records twice in a row, so that each lies in one piece. A record begins at a
// multiple of eight:
//
//   uint32_t    its length and one; 0 while it is not there
//   uint32_t    its kind
//   bytes
//
// The word of the length is the flag. A writer fills a record, clears the word behind it, and then
// sets the record's own word. So the ring has no lock and no shared end. A writer that is killed
// leaves only what it had published.
//
// Neither side trusts the other. A reader fetches a length once and bounds it, and copies a record
// before it looks inside. A writer treats an impossible position as a full ring.

/// The kind of a record. Numbers are in memory that processes share: docs/design/shm.md.
enum class RecordKind : uint32_t {
  message = 0,
  readAsked = 1,  // ring_copies.h has these
  writeAsked = 2,
  readAnswered = 3,
  writeAnswered = 4,
};

constexpr size_t kLeastRingBytes = 128 << 10;
constexpr size_t kMostRingBytes = 64 << 20;

/// The capacity of a ring for messages of at most `messageBytes`: four of them fit. 0 if no ring is
/// that large.
size_t ringBytesFor(size_t messageBytes);

/// A cache line for each side. Each is a hint where it comes from the other.
struct RingPage {
  alignas(64) std::atomic<uint64_t> head;  // the reader's position
  /// Set by a writer that found no room and goes to sleep; the reader clears it and rings.
  alignas(64) std::atomic<uint32_t> starved;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// The layout of a ring's memory.
class RingMapping {
 public:
  static std::unique_ptr<RingMapping> map(int fd, size_t capacity);
  ~RingMapping();
  RingMapping(const RingMapping&) = delete;
  RingMapping& operator=(const RingMapping&) = delete;

  size_t capacity() const { return capacity_; }
  RingPage& page() const { return *reinterpret_cast<RingPage*>(base_); }
  uint8_t* at(uint64_t position) const { return data_ + (position & (capacity_ - 1)); }
  /// The first word of the record at a position.
  std::atomic<uint32_t>& word(uint64_t position) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(at(position));
  }
  std::atomic<uint32_t>& kind(uint64_t position) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(at(position) + sizeof(uint32_t));
  }

  static constexpr size_t kRecordHead = 2 * sizeof(uint32_t);
  static constexpr uint64_t recordBytes(uint64_t length) {
    return kRecordHead + (length + 7) / 8 * 8;
  }
  /// The longest record: a quarter of the ring. See RingReader::release.
  size_t mostRecordBytes() const { return capacity_ / 4; }

 private:
  RingMapping(uint8_t* base, size_t headBytes, size_t capacity)
      : base_(base), data_(base + headBytes), capacity_(capacity) {}

  uint8_t* base_;
  uint8_t* data_;
  size_t capacity_;
};

/// A record that has come. `bytes` is memory that the writer may still change.
struct Record {
  RecordKind kind;
  const uint8_t* bytes;
  size_t length;
};

class RingReader {
 public:
  enum class Look { nothing, record, broken };

  /// Makes a ring, all of its memory reserved. nullptr if the system refuses; errno says why.
  static std::unique_ptr<RingReader> create(size_t capacity);

  int fd() const { return fd_.get(); }
  /// The peer has the descriptor. The mapping stays.
  void closeFd() { fd_.reset(); }
  size_t capacity() const { return mapping_->capacity(); }
  /// The next record, which stays until `pop`. Broken: the bytes there are not a record.
  Look look(Record* into) {
    uint32_t word = mapping_->word(position_).load(std::memory_order_acquire);
    if (word == 0) return Look::nothing;
    into->length = word - 1;
    if (into->length > mapping_->mostRecordBytes()) return Look::broken;
    into->kind = static_cast<RecordKind>(mapping_->kind(position_).load(std::memory_order_relaxed));
    into->bytes = mapping_->at(position_) + RingMapping::kRecordHead;
    return Look::record;
  }
  /// Whether `look` would find something.
  bool hasRecord() const { return mapping_->word(position_).load(std::memory_order_relaxed) != 0; }
  /// Goes past the record that `look` gave.
  void pop(const Record& record) { position_ += RingMapping::recordBytes(record.length); }
  /// Frees the room of popped records for the writer. Returns whether the writer waits for room.
  ///
  /// A waiting writer has seen a ring that was more than half full. So a look after each quarter
  /// finds the writer before the ring is empty.
  bool release() {
    mapping_->page().head.store(position_, std::memory_order_release);
    if (position_ - looked_ < mapping_->capacity() / 4) return false;
    looked_ = position_;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto& starved = mapping_->page().starved;
    return starved.load(std::memory_order_relaxed) != 0 && starved.exchange(0) != 0;
  }

 private:
  RingReader(base::Fd fd, std::unique_ptr<RingMapping> mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  base::Fd fd_;
  std::unique_ptr<RingMapping> mapping_;
  uint64_t position_ = 0;
  uint64_t looked_ = 0;  // the position at which it last looked for a writer that waits
};

class RingWriter {
 public:
  /// Owns the descriptor from now on, whatever it returns. nullptr unless it is a ring of that
  /// capacity with a sealed size: memory that shrinks under a mapping raises SIGBUS.
  static std::unique_ptr<RingWriter> adopt(base::Fd fd, size_t capacity);

  size_t mostRecordBytes() const { return mapping_->mostRecordBytes(); }
  /// Publishes a record of two parts. False if there is no room now.
  bool write(RecordKind kind, const void* first, size_t firstBytes, const void* second = nullptr,
             size_t secondBytes = 0);
  /// Whether a record of `bytes` bytes has room.
  bool hasRoom(size_t bytes);
  /// Asks the reader to ring after its next read. Look once more for room afterwards, then sleep.
  void setStarved() {
    mapping_->page().starved.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  explicit RingWriter(std::unique_ptr<RingMapping> mapping) : mapping_(std::move(mapping)) {}

  std::unique_ptr<RingMapping> mapping_;
  uint64_t position_ = 0;
  uint64_t head_ = 0;  // the reader's position, as last seen
};

}  // namespace cinnabar::shm
