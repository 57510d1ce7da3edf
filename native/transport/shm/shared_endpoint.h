// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "fabric/endpoint.h"

namespace cinnabar::shm {

class EndpointLease;

/// A shm endpoint that other ports of this process may be using.
///
/// Between endpoints of one process the provider hands out the region's own mapping, so closing one
/// would pull the memory from under the others, which may be posting to it on other threads. Each
/// port that knows the endpoint has a lease of it. Its own port shuts it when it closes, unless
/// there is a lease; then it only keeps the mapping, nobody polls it and nobody posts to it, and it
/// goes with the last lease.
class SharedEndpoint {
 public:
  explicit SharedEndpoint(std::string fabricName, std::unique_ptr<fabric::Endpoint> endpoint)
      : fabricName_(std::move(fabricName)), endpoint_(std::move(endpoint)) {}
  ~SharedEndpoint();

  /// Makes it known to the other ports of the process under its fabric name.
  static std::shared_ptr<SharedEndpoint> publish(std::string fabricName,
                                                 std::unique_ptr<fabric::Endpoint> endpoint);
  /// A lease of the endpoint of that name in this process; an empty one if it is another process's,
  /// or its port closes.
  static EndpointLease lease(const std::string& fabricName);

  fabric::Endpoint& endpoint() { return *endpoint_; }

  /// The port closes: nobody gets a lease any more, and no copy to or from the port's memory is
  /// under way or begins.
  void retire();
  /// Whether another port has a lease. After `retire` a false is final, and what the others did
  /// with the endpoint has happened before it.
  bool isLeased();
  /// Runs `copy` unless the port has closed. Guards direct copies between two threads of one
  /// process.
  template <typename F>
  bool whileOpen(F&& copy) {
    std::lock_guard lock(mutex_);
    if (!retired_) copy();
    return !retired_;
  }

 private:
  friend class EndpointLease;
  bool takeLease();
  void endLease();

  std::string fabricName_;
  std::unique_ptr<fabric::Endpoint> endpoint_;
  std::mutex mutex_;
  bool retired_ = false;
  size_t leases_ = 0;
};

/// Keeps another port's endpoint mapped.
class EndpointLease {
 public:
  EndpointLease() = default;
  EndpointLease(EndpointLease&& other) noexcept = default;
  EndpointLease& operator=(EndpointLease&& other) noexcept {
    std::swap(endpoint_, other.endpoint_);
    return *this;
  }
  ~EndpointLease() {
    if (endpoint_) endpoint_->endLease();
  }
  explicit operator bool() const { return endpoint_ != nullptr; }
  SharedEndpoint* operator->() const { return endpoint_.get(); }

 private:
  friend class SharedEndpoint;
  explicit EndpointLease(std::shared_ptr<SharedEndpoint> endpoint)
      : endpoint_(std::move(endpoint)) {}

  std::shared_ptr<SharedEndpoint> endpoint_;
};

}  // namespace cinnabar::shm
