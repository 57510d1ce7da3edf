// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fabric/memory.h"

namespace cinnabar::transport {

/// What the provider returns with a completion. The scratch space comes first: providers with
/// FI_CONTEXT write there.
struct Context {
  enum class Kind : uint8_t { receive, operation, part };

  explicit Context(Kind k) : kind(k) {}

  fi_context2 scratch{};
  Kind kind;
};

/// The context for a post. The completion returns only this pointer, so it has the base class. The
/// records are not standard-layout, and their address may differ from that of their base.
inline void* contextOf(Context& record) { return &record; }

/// A receive slot's place at the provider.
struct Receive : Context {
  Receive() : Context(Kind::receive) {}
  uint32_t slot = 0;
};

/// One extent of a transfer: bytes between a local region and a peer's memory. Laid out as
/// JavaScript writes it, see src/fabric/addon.ts.
struct Extent {
  uint64_t region;
  uint64_t offset;
  uint64_t bytes;
  uint64_t key;
  uint64_t remote;
};
constexpr size_t kExtentWords = sizeof(Extent) / sizeof(uint64_t);
static_assert(kExtentWords == 5);
constexpr size_t kMostExtents = 256;
constexpr size_t kExtentsBytes = kMostExtents * sizeof(Extent);

/// The smallest page; the size of every other page is a multiple of it.
constexpr uint64_t kPageBytes = 4096;

/// The extents of one transfer. Most have one, which costs no allocation.
class Extents {
 public:
  void assign(const Extent* from, size_t count) {
    count_ = count;
    if (count == 1) {
      one_ = *from;
    } else {
      many_.assign(from, from + count);
    }
  }
  /// Cuts extents of at most `mostBytes` at the pages of the memory that they are read from.
  /// `source` gives their address there.
  template <typename F>
  void cutAtPages(size_t mostBytes, F&& source) {
    std::vector<Extent> cut;
    for (const Extent& extent : *this) {
      cut.push_back(extent);
      uint64_t left = kPageBytes - source(extent) % kPageBytes;
      if (extent.bytes > mostBytes || extent.bytes <= left) continue;
      cut.back().bytes = left;
      cut.push_back(extent);
      cut.back().bytes -= left;
      cut.back().offset += left;
      cut.back().remote += left;
    }
    if (cut.size() != count_) assign(cut.data(), cut.size());
  }
  size_t size() const { return count_; }
  const Extent* begin() const { return count_ == 1 ? &one_ : many_.data(); }
  const Extent* end() const { return begin() + count_; }
  const Extent& operator[](size_t index) const { return begin()[index]; }

 private:
  Extent one_{};
  std::vector<Extent> many_;
  size_t count_ = 0;
};

struct Peer;

/// A send or a transfer, from the call that made it to its completion.
struct Operation : Context {
  enum class Type : uint8_t { send, read, write };
  enum class State : uint8_t {
    idle,
    waiting,  // in its address's queue, unknown to the provider
    moving,   // by the transport itself
    posted,   // at the provider, which may touch the memory and this record until it completes
  };

  Operation() : Context(Kind::operation) {}

  Type type = Type::send;
  State state = State::idle;
  /// JavaScript already has the completion. Only the provider still uses the record.
  bool answered = false;
  uint32_t address = 0;
  Peer* peer = nullptr;  // of the address
  uint32_t token = 0;    // send: offset of the slot; transfer: the caller's number
  uint32_t status = 0;   // transfers: the first error of a part, and the provider's own number
  uint32_t providerError = 0;
  bool notifies = false;  // a write that also notifies its target, in the same provider operation
  uint64_t notification = 0;
  uint32_t parts = 0;   // transfers: parts at the provider
  uint64_t offset = 0;  // sends: in the slab
  /// Sends: the message, where it was taken out of its slot while it waited.
  std::unique_ptr<uint8_t[]> parked;
  uint64_t bytes = 0;
  uint32_t connection = 0;  // sends: the connection of the post
  uint64_t done = 0;        // transfers: bytes that have certainly moved
  Extents extents;          // transfers
  size_t extent = 0;        // the first that is not posted, or not moved, to its end
  uint64_t into = 0;        // the transport's position in that extent
  bool unproven = false;    // verbs: its last write had no room for the proof
  Operation* next = nullptr;
};

/// The right that the peer must have granted.
inline uint64_t accessFor(const Operation& operation) {
  return operation.type == Operation::Type::read ? fabric::kRemoteRead : fabric::kRemoteWrite;
}

/// A part of a transfer at the provider: as many extents as one of its calls takes.
struct Part : Context {
  Part() : Context(Kind::part) {}
  Operation* operation = nullptr;
  uint64_t bytes = 0;
  uint32_t left = 1;  // completions to come
  uint32_t connection = 0;
};

/// Records with addresses that never change, since the provider keeps pointers to them.
template <typename T>
class Pool {
 public:
  static constexpr size_t kMostRetired = 1024;

  T* take() {
    if (free_.empty()) return &all_.emplace_back();
    T* record = free_.back();
    free_.pop_back();
    return record;
  }
  void give(T* record) {
    *record = T();
    free_.push_back(record);
  }
  /// Gives back a record for which a wrong completion may still come from the provider. It is not
  /// taken again before as many other records have ended in this way.
  void retire(T* record) {
    *record = T();
    retired_.push_back(record);
    if (retired_.size() <= kMostRetired) return;
    free_.push_back(retired_.front());
    retired_.pop_front();
  }
  size_t used() const { return all_.size() - free_.size() - retired_.size(); }

  /// All records, those given back included.
  template <typename F>
  void each(F&& visit) {
    for (T& record : all_) visit(record);
  }

 private:
  std::deque<T> all_;
  std::vector<T*> free_;
  std::deque<T*> retired_;
};

/// A first-in, first-out list through the records themselves.
class OperationQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  Operation* front() const { return head_; }
  void push(Operation* operation) {
    operation->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = operation;
    tail_ = operation;
    ++length_;
  }
  /// Puts back an operation that was taken out.
  void pushFront(Operation* operation) {
    operation->next = head_;
    head_ = operation;
    if (tail_ == nullptr || operation->next == nullptr) tail_ = operation;
    ++length_;
  }
  Operation* pop() {
    Operation* operation = head_;
    head_ = operation->next;
    operation->next = nullptr;
    --length_;
    return operation;
  }
  uint32_t length() const { return length_; }
  /// Takes an address's operations out.
  std::vector<Operation*> takeOut(uint32_t address) {
    std::vector<Operation*> taken;
    for (uint32_t left = length_; left > 0; --left) {
      Operation* operation = pop();
      if (operation->address == address) {
        taken.push_back(operation);
      } else {
        push(operation);
      }
    }
    return taken;
  }

 private:
  Operation* head_ = nullptr;
  Operation* tail_ = nullptr;
  uint32_t length_ = 0;
};

}  // namespace cinnabar::transport
