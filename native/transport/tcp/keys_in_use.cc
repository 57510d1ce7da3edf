// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/keys_in_use.h"

#include <algorithm>

namespace cinnabar::tcp {
namespace {

bool holds(const TransferKeys& transfer, uint64_t key) {
  const auto* end = transfer.keys.data() + transfer.count;
  return std::find(transfer.keys.data(), end, key) != end;
}

}  // namespace

void KeysInUse::begin(uint64_t key) {
  std::lock_guard lock(mutex_);
  ++uses_[key];
}

void KeysInUse::end(uint64_t key) {
  std::lock_guard lock(mutex_);
  auto found = uses_.find(key);
  if (found != uses_.end() && --found->second == 0) uses_.erase(found);
}

bool KeysInUse::has(uint64_t key) const {
  std::lock_guard lock(mutex_);
  return !uses_.empty() && uses_.contains(key);
}

void ConnectionKeys::clear() {
  if (all_ == nullptr) return;
  endWrite();
  for (size_t i = firstRead_; i < reads_.size(); ++i) end(reads_[i]);
  reads_ = {};
  firstRead_ = 0;
  all_ = nullptr;
}

void ConnectionKeys::beginWrite(const TransferKeys& keys) {
  if (all_ == nullptr) return;
  write_ = keys;
  begin(write_);
}

void ConnectionKeys::endWrite() {
  if (write_.count == 0) return;
  end(write_);
  write_.count = 0;
}

void ConnectionKeys::beginRead(const TransferKeys& keys) {
  if (all_ == nullptr) return;
  begin(keys);
  reads_.push_back(keys);
}

void ConnectionKeys::endRead() {
  if (firstRead_ == reads_.size()) return;
  end(reads_[firstRead_++]);
  // Those that have ended go when they are half of all: each is moved once at most.
  if (firstRead_ * 2 < reads_.size()) return;
  reads_.erase(reads_.begin(), reads_.begin() + static_cast<ptrdiff_t>(firstRead_));
  firstRead_ = 0;
}

bool ConnectionKeys::uses(uint64_t key) const {
  if (holds(write_, key)) return true;
  return std::any_of(reads_.begin() + static_cast<ptrdiff_t>(firstRead_), reads_.end(),
                     [key](const TransferKeys& read) { return holds(read, key); });
}

void ConnectionKeys::begin(const TransferKeys& transfer) {
  for (size_t i = 0; i < transfer.count; ++i) all_->begin(transfer.keys[i]);
}

void ConnectionKeys::end(const TransferKeys& transfer) {
  for (size_t i = 0; i < transfer.count; ++i) all_->end(transfer.keys[i]);
}

}  // namespace cinnabar::tcp
