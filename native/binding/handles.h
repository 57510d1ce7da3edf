// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "binding/arguments.h"

namespace cinnabar::binding {

/// The addon's objects that JavaScript holds, by number. A place is reused under another number. A
/// stale number finds no object, until 2,048 others have had the place.
template <typename T>
class Handles {
 public:
  uint32_t add(std::unique_ptr<T> object) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(places_.size()));
      places_.emplace_back();
    }
    uint32_t index = free_.back();
    free_.pop_back();
    places_[index].object = std::move(object);
    ++count_;
    return numberOf(index);
  }

  /// nullptr without an object of that number.
  T* find(napi_env env, napi_value number) const {
    const Place* place = placeOf(env, number);
    return place == nullptr ? nullptr : place->object.get();
  }

  std::unique_ptr<T> take(napi_env env, napi_value number) {
    const Place* place = placeOf(env, number);
    if (place == nullptr || place->object == nullptr) return nullptr;
    return takeAt(static_cast<uint32_t>(place - places_.data()));
  }

  /// Any of the remaining objects.
  std::unique_ptr<T> takeAny() {
    for (uint32_t index = 0; index < places_.size(); ++index) {
      if (places_[index].object != nullptr) return takeAt(index);
    }
    return nullptr;
  }

  size_t count() const { return count_; }

 private:
  static constexpr uint32_t kIndexBits = 20;
  static constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
  static constexpr uint32_t kUsesMask = (1u << 11) - 1;

  struct Place {
    std::unique_ptr<T> object;
    uint32_t uses = 0;
  };

  /// Below 2^31, which V8 keeps without an object.
  uint32_t numberOf(uint32_t index) const {
    return (places_[index].uses & kUsesMask) << kIndexBits | index;
  }

  const Place* placeOf(napi_env env, napi_value number) const {
    uint64_t value = 0;
    if (!readInteger(env, number, UINT32_MAX, &value)) return nullptr;
    auto index = static_cast<uint32_t>(value) & kIndexMask;
    bool isCurrent = index < places_.size() && numberOf(index) == value;
    return isCurrent ? &places_[index] : nullptr;
  }

  std::unique_ptr<T> takeAt(uint32_t index) {
    Place& place = places_[index];
    ++place.uses;
    free_.push_back(index);
    --count_;
    return std::move(place.object);
  }

  std::vector<Place> places_;
  std::vector<uint32_t> free_;
  size_t count_ = 0;
};

}  // namespace cinnabar::binding
