// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fabric.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/memory.h"

namespace cinnabar::engine {

/// What the provider hands back with a completion. The scratch space comes first: providers that
/// ask for FI_CONTEXT write there.
struct Context {
  enum class Kind : uint8_t { receive, operation };

  explicit Context(Kind k) : kind(k) {}

  fi_context2 scratch{};
  Kind kind;
};

/// A receive slot's place at the provider.
struct Receive : Context {
  Receive() : Context(Kind::receive) {}
  uint32_t slot = 0;
};

/// A send or a transfer, from the call that made it to its completion.
struct Operation : Context {
  enum class Type : uint8_t { send, read, write };
  enum class State : uint8_t {
    idle,
    waiting,  // in its address's queue; the provider knows nothing of it
    copying,  // a direct copy between processes, driven by progress
    posted,   // at the provider, which may touch the buffer and this record until it completes
  };

  Operation() : Context(Kind::operation) {}

  Type type = Type::send;
  State state = State::idle;
  /// JavaScript was already told of the end; only the provider is still to let go.
  bool answered = false;
  uint32_t address = 0;
  uint32_t token = 0;   // send: offset of the slot; transfer: the caller's number
  uint32_t region = 0;  // transfers
  uint64_t offset = 0;  // in the slab or the region
  uint64_t bytes = 0;
  uint64_t done = 0;  // a message in fragments, or a copy in pieces
  uint64_t key = 0;
  uint64_t remote = 0;
  Operation* next = nullptr;
};

/// Records with addresses that never change, since the provider keeps pointers to them.
class OperationPool {
 public:
  Operation* take() {
    if (free_.empty()) return &all_.emplace_back();
    Operation* operation = free_.back();
    free_.pop_back();
    return operation;
  }
  void give(Operation* operation) {
    *operation = Operation();
    free_.push_back(operation);
  }
  size_t used() const { return all_.size() - free_.size(); }

  template <typename F>
  void each(F&& visit) {
    for (Operation& operation : all_) {
      if (operation.state != Operation::State::idle) visit(operation);
    }
  }

 private:
  std::deque<Operation> all_;
  std::vector<Operation*> free_;
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
  Operation* pop() {
    Operation* operation = head_;
    head_ = operation->next;
    operation->next = nullptr;
    --length_;
    return operation;
  }
  uint32_t length() const { return length_; }

 private:
  Operation* head_ = nullptr;
  Operation* tail_ = nullptr;
  uint32_t length_ = 0;
};

}  // namespace cinnabar::engine
