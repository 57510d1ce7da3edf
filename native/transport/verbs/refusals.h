// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/address.h"

namespace cinnabar::verbs {

/// A connect from an address of ours that was refused because the peer's address has no listener.
struct Refusal {
  fabric::RawAddress local;
  fabric::RawAddress peer;
  /// Inside the call that connects. libfabric up to 1.17 then never completes the connection, until
  /// its address is removed.
  bool isInside = false;
};

/// Reports refused connections to a port. libfabric's calls for them come on the port's thread, or
/// its guard's.
///
/// libfabric owns the channel of the connection manager's events, and takes each event from it
/// once. So this class reads events as libfabric reads them. In the tables by which libfabric calls
/// librdmacm it puts functions of ours, at the first watch and for good. They pass the call on and
/// look at its result.
class RefusalWatch {
 public:
  /// Watches connections from the host of `own`. nullptr where the patch is switched off. It
  /// reports nothing where libfabric cannot be patched.
  static std::unique_ptr<RefusalWatch> open(const fabric::RawAddress& own);
  ~RefusalWatch();
  RefusalWatch(const RefusalWatch&) = delete;
  RefusalWatch& operator=(const RefusalWatch&) = delete;

  /// Whether `take` has something.
  const std::atomic<bool>& news() const { return news_; }
  std::vector<Refusal> take();

 private:
  explicit RefusalWatch(std::string host) : host_(std::move(host)) {}
  friend void tellRefusal(const Refusal& refusal);

  std::string host_;
  std::vector<Refusal> refusals_;
  std::atomic<bool> news_ = false;
};

/// Gives a refusal to the watches of its host; for the functions that replace librdmacm's, and for
/// tests.
void tellRefusal(const Refusal& refusal);

}  // namespace cinnabar::verbs
