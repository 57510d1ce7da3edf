// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transport/shm/byte_ring.h"
#include "transport/shm/keys.h"
#include "transport/transport.h"

namespace cinnabar::shm {

// Reads and writes of a neighbour's memory where the kernel forbids copies between the two
// processes (direct_copies.h): through the rings, a copy on either side. The asker sends a request
// for each chunk, with the bytes of a write. The owner of the memory looks the key up, copies, and
// answers, with the bytes of a read.

struct Neighbour;

/// The head of the records of copies.
struct CopyHead {
  uint64_t id;   // the asker's
  uint64_t key;  // of requests, as are the next two
  uint64_t at;
  uint32_t bytes;
  uint32_t status;  // of answers: 0 or an error
};
static_assert(sizeof(CopyHead) == 32);

/// The most chunks that one side asks for at a time. An honest peer never asks for more.
constexpr size_t kMostAsked = 4;
constexpr uint32_t kRingChunkBytes = 24 << 10;

/// A neighbour's copies through the rings.
struct RingExchange {
  /// A chunk that was asked for.
  struct Asked {
    transport::Operation* operation;  // null once it was taken back
    uint8_t* local;                   // of a read
    uint32_t bytes;
  };
  /// A request that is not answered.
  struct Owed {
    CopyHead head;
    bool isRead;
  };

  transport::OperationQueue waiting;
  std::unordered_map<uint64_t, Asked> asked;
  std::vector<Owed> owed;

  bool lacksRoom = false;  // for a request or an answer
};

class RingCopies {
 public:
  /// `keys` are the port's own, and outlive this.
  explicit RingCopies(const KeyTable& keys) : keys_(keys) {}

  /// Begins an operation with a neighbour that permits no direct copies.
  void add(transport::Operation& operation);
  /// Takes a record that is not a message. False: no honest peer sends this record.
  bool take(Neighbour& neighbour, const Record& record);
  /// Sends requests and answers as far as rings have room. Appends finished operations.
  void advance(const std::vector<Neighbour*>& neighbours, const transport::RegionTable& regions,
               std::vector<transport::Ended>& over);
  /// Takes an address's operations out. Answers to their requests are ignored.
  std::vector<transport::Operation*> takeBack(uint32_t address, Neighbour& neighbour);

  /// Whether `advance` has something to do.
  bool hasWork() const { return hasWork_; }
  /// Whether some ring had no room (RingExchange::lacksRoom).
  bool isBlocked() const { return isBlocked_; }
  /// There may be room again.
  void retry() { hasWork_ = hasWork_ || isBlocked_; }

 private:
  bool takeRequest(Neighbour& neighbour, const Record& record, const CopyHead& head);
  bool takeAnswer(Neighbour& neighbour, const Record& record, const CopyHead& head);
  uint32_t refusal(const CopyHead& head, uint64_t access) const;
  bool answerAll(Neighbour& neighbour);
  bool askAll(Neighbour& neighbour, const transport::RegionTable& regions);
  bool ask(Neighbour& neighbour, transport::Operation& operation,
           const transport::RegionTable& regions);
  void end(transport::Operation& operation) {
    over_.push_back({&operation, operation.status});
    hasWork_ = true;
  }

  const KeyTable& keys_;
  std::vector<transport::Ended> over_;
  uint64_t nextId_ = 1;
  bool hasWork_ = false;
  bool isBlocked_ = false;
};

}  // namespace cinnabar::shm
