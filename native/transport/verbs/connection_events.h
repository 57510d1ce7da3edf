// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "fabric/address.h"

namespace cinnabar::verbs {

/// What the device has granted to a connection's queues.
struct QueuePair {
  uint32_t number = 0;
  uint32_t peerNumber = 0;
  uint32_t mtuBytes = 0;
  uint32_t sendDepth = 0;
  uint32_t receiveDepth = 0;  // of the shared receive queue, where it has one
  uint32_t completionDepth = 0;
  uint32_t sendSegments = 0;
  uint32_t receiveSegments = 0;
  uint32_t inlineBytes = 0;
  bool sharesReceives = false;
};

/// An event of the RDMA connection manager (rdma_get_cm_event(3)).
struct ConnectionEvent {
  int event = 0;   // enum rdma_cm_event_type
  int status = 0;  // 0, a negated error number, or what a refusal gave as its reason
  std::string device;
  fabric::RawAddress local;  // empty as long as it has none
  fabric::RawAddress remote;
  std::optional<QueuePair> queuePair;  // of one that is established
};

/// Tells of the connection manager's events, all of this process's, from when it was opened.
///
/// libfabric owns the channel that they come through and takes each from it once, so they are read
/// as libfabric reads them: in the tables by which it calls librdmacm stands a function of ours,
/// from the first watch on and for good, that passes the call on and notes what came. Without a
/// watch it only passes on. docs/design/verbs-connections.md says why.
class ConnectionWatch {
 public:
  /// nullptr, and why.
  static std::unique_ptr<ConnectionWatch> open(std::string* reason);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  /// Readable while there are events.
  int fd() const { return fd_.get(); }
  /// What has come since the last call, oldest first; `lost` is how many there was no room for.
  std::vector<ConnectionEvent> take(uint64_t* lost);

 private:
  explicit ConnectionWatch(base::Fd fd) : fd_(std::move(fd)) {}
  void note(const ConnectionEvent& event);
  friend void tellWatches(const ConnectionEvent& event);

  base::Fd fd_;
  std::deque<ConnectionEvent> events_;
  uint64_t lost_ = 0;
};

/// Hands an event to every watch; for the functions that stand in librdmacm's place, and for tests.
void tellWatches(const ConnectionEvent& event);

/// A connect from an address of ours that was refused because nobody listens at the peer's.
struct Refusal {
  fabric::RawAddress local;
  fabric::RawAddress peer;
  /// Inside the call that connects. Up to libfabric 1.17 the connection is then in the making for
  /// ever, until its address is removed.
  bool isInside = false;
};

/// Tells a port of connections that were refused. libfabric calls for them on the port's thread, or
/// its guard's. The connection manager is asked as for ConnectionWatch.
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

/// Hands a refusal to the watches of its host; for the functions that stand in librdmacm's place,
/// and for tests.
void tellRefusal(const Refusal& refusal);

}  // namespace cinnabar::verbs
