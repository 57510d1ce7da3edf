// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/memory.h"

namespace cinnabar::transport {

/// A port's registered memory, by numbers that are given again.
class RegionTable {
 public:
  static constexpr size_t kMost = 1u << 20;

  bool isFull() const { return free_.empty() && all_.size() >= kMost; }
  uint32_t add(std::unique_ptr<fabric::Region> region) {
    if (region->isGranted()) ++granted_;
    bytes_ += region->length();
    if (free_.empty()) {
      all_.push_back(std::move(region));
      return static_cast<uint32_t>(all_.size() - 1);
    }
    uint32_t index = free_.back();
    free_.pop_back();
    all_[index] = std::move(region);
    return index;
  }
  void remove(uint32_t index) {
    if (all_[index]->isGranted()) --granted_;
    bytes_ -= all_[index]->length();
    all_[index].reset();
    free_.push_back(index);
  }
  void clear() { all_.clear(); }

  fabric::Region* find(uint64_t index) const {
    return index < all_.size() ? all_[index].get() : nullptr;
  }
  template <typename F>
  void each(F&& visit) const {
    for (uint32_t index = 0; index < all_.size(); ++index) {
      if (all_[index]) visit(index, *all_[index]);
    }
  }

  size_t count() const { return all_.size() - free_.size(); }
  uint64_t bytes() const { return bytes_; }
  /// How many of them peers may use.
  uint32_t granted() const { return granted_; }

 private:
  std::vector<std::unique_ptr<fabric::Region>> all_;
  std::vector<uint32_t> free_;
  uint64_t bytes_ = 0;
  uint32_t granted_ = 0;
};

}  // namespace cinnabar::transport
