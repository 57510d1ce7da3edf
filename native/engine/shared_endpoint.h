// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "fabric/endpoint.h"

namespace cinnabar::engine {

/// A shm endpoint that other ports of this process may be using.
///
/// Between endpoints of one process the provider hands out the region's own mapping, so closing one
/// would pull the memory from under the others, which may be posting to it on other threads. Each
/// port that knows the endpoint holds a reference, and the last one closes it. After its own port
/// has closed, nobody polls it and nobody posts to it; it only keeps the mapping.
class SharedEndpoint {
 public:
  SharedEndpoint(std::string fabricName, std::unique_ptr<fabric::Endpoint> endpoint)
      : fabricName_(std::move(fabricName)), endpoint_(std::move(endpoint)) {}
  ~SharedEndpoint();

  /// Makes it known to the other ports of the process under its fabric name ("" for tcp: unknown to
  /// all).
  static std::shared_ptr<SharedEndpoint> publish(std::string fabricName,
                                                 std::unique_ptr<fabric::Endpoint> endpoint);
  /// The endpoint of that name in this process; nullptr if it is another process's, or closed.
  static std::shared_ptr<SharedEndpoint> find(const std::string& fabricName);

  fabric::Endpoint& endpoint() { return *endpoint_; }

  /// The port closes: nobody finds the endpoint any more, and no copy to or from the port's memory
  /// is under way or begins.
  void retire();
  /// Runs `copy` unless the port has closed. Guards direct copies between two threads of one
  /// process.
  template <typename F>
  bool whileOpen(F&& copy) {
    std::lock_guard lock(mutex_);
    if (!retired_) copy();
    return !retired_;
  }

 private:
  std::string fabricName_;
  std::unique_ptr<fabric::Endpoint> endpoint_;
  std::mutex mutex_;
  bool retired_ = false;
};

}  // namespace cinnabar::engine
