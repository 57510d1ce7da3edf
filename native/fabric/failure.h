// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace cinnabar::fabric {

/// Why a cold operation failed, in the field's terms. `code` is a positive libfabric (or system)
/// error number; 0 if the failure is ours. Hot operations return negated numbers instead.
struct Failure {
  std::string op;
  int code = 0;
  std::string name;
  std::string message;
};

/// A value, or the reason of its absence. The native code uses no exceptions.
template <typename T>
class Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  Failure& failure() { return std::get<1>(state_); }

 private:
  std::variant<T, Failure> state_;
};

}  // namespace cinnabar::fabric
