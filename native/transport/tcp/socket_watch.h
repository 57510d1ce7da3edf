// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "fabric/address.h"
#include "transport/tcp/socket_table.h"
#include "transport/transport.h"

namespace cinnabar::tcp {

/// Watches the provider's sockets of one port. The functions that replace libc's report to it, on
/// every thread that makes the provider's calls. The port asks it.
///
/// Lives as long as the endpoint: it is made before and destroyed after.
class SocketWatch {
 public:
  SocketWatch() = default;
  /// Closes the connections that the provider has accepted and then forgotten.
  ~SocketWatch();
  SocketWatch(const SocketWatch&) = delete;
  SocketWatch& operator=(const SocketWatch&) = delete;

  /// While it lives, the epoll sets that libfabric makes on this thread are the watch's, and with
  /// them every socket that is put into one.
  class Opening {
   public:
    explicit Opening(SocketWatch& watch) { opening = &watch; }
    ~Opening() { opening = nullptr; }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
  };
  static inline thread_local SocketWatch* opening = nullptr;

  /// The provider speaks the stream that StreamFilter knows. Before the first connection.
  void filter() { filters_ = true; }
  bool filters() const { return filters_; }

  /// Bounds what others make the port hold. Before the first connection.
  void bound(const transport::ConnectionBounds& bounds) { bounds_ = bounds; }
  /// `admit`: the port knows peers at this address. `forget`: it does not any more. An address may
  /// be admitted several times.
  void admit(const fabric::RawAddress& peer);
  void forget(const fabric::RawAddress& peer);
  /// Ends connections that have not said who they are in time, and those that belong to unknown
  /// peers for too long. Looks once a second while there are such connections.
  void sweep() {
    if (hasStrangers_.load(std::memory_order_relaxed)) sweepNow();
  }

  /// Bytes that were read from and written to connections so far.
  const uint64_t& movedBytes() const { return movedBytes_; }

  /// Whether `take` has something.
  const std::atomic<bool>& news() const { return news_; }
  struct Unreachable {
    fabric::RawAddress peer;
    uint32_t code;  // an error number
  };
  struct News {
    std::vector<Unreachable> unreachable;
    /// Peers that have lost their last connection.
    std::vector<fabric::RawAddress> disconnected;
    /// Counts since the port was opened.
    transport::Turned turned;
  };
  News take();

  /// The present connections, in no order.
  std::vector<transport::Connection> connections() const;
  /// How many connections were made so far. Each has a number, from 1 on.
  uint64_t connectionsMade() const;

  /// The port's memory that transfers of peers use now; empty where `filters` is false.
  const KeysInUse& keys() const { return keys_; }
  /// A connection with transfers that use a key, and its progress.
  struct Use {
    int fd;
    uint64_t number;
    uint64_t moved;
    bool operator==(const Use&) const = default;
  };
  /// In the order of their numbers.
  std::vector<Use> usesOf(uint64_t key) const;
  /// Ends the connection, if it is still there. The provider then closes it.
  void endUse(const Use& use);
  /// Ends the connections with the peer that listens at that address. Whether there was one.
  bool endAll(const fabric::RawAddress& peer);
  /// Ends attempts to connect to a peer that has no sender any more. The provider itself would wait
  /// for ever for a peer that does not answer.
  void abandon(const fabric::RawAddress& peer);

  // Called by the functions that replace those of libc.
  void attach(int fd, Socket& socket);
  /// Called before the descriptor is closed.
  void detach(int fd);
  void onMoved(size_t bytes) { movedBytes_ += bytes; }
  /// `socket` is a connection, as it is now.
  void onConnection(int fd, Socket& socket);
  /// Whether a peer that the port knows has a connection already. A second connection with its
  /// address then belongs to another process, or the peer of the first has died silently. The
  /// kernel probes the other end of the first connection.
  bool isTaken(const fabric::RawAddress& peer);
  void onUnreachable(const Socket& socket, int code);
  /// A part of a message has come, or the rest of it.
  void onHeld(Socket& socket);
  /// No descriptor is left for another connection. Ends connections that have waited too long for
  /// their peer's identity. Returns whether the provider will close some, so that new ones can
  /// wait.
  bool makeRoom();
  /// `count` connections were accepted and turned away at once, for lack of descriptors (`code`).
  void onTurnedAway(int code, unsigned count);
  /// A connection sent bytes that no provider of libfabric sends.
  void onMalformed();

 private:
  KeysInUse keys_;
  bool filters_ = false;
  transport::ConnectionBounds bounds_;
  std::atomic<bool> hasStrangers_ = false;
  // Used only by the port's thread, which makes the provider's calls.
  uint32_t holding_ = 0;  // connections with a message that has come in part
  uint64_t sweptNs_ = 0;
  uint64_t movedBytes_ = 0;
  std::atomic<bool> news_ = false;
  mutable std::mutex mutex_;  // guards all members below
  News pending_;
  uint64_t made_ = 0;
  struct Known {
    transport::Connection connection;
    uint64_t sinceNs = 0;
    uint64_t unknownSinceNs = 0;  // when it was up, or its peer was forgotten
    uint64_t endedNs = 0;         // when this side ended it; 0 if it is open
    bool isEnding() const { return endedNs != 0; }
    bool isCutOff = false;  // by endAll: no user is left to notify
  };
  void boundInbound();
  void sweepNow();
  void endHolders();
  void endIdle(size_t count);
  bool isStranger(const transport::Connection& connection) const;
  bool isReached(const fabric::RawAddress& peer) const;
  void end(int fd, Known& known);
  void shed(int fd, Known& known);
  std::unordered_map<std::string, uint32_t> admitted_;  // count, by the bytes of the address
  std::unordered_map<int, Known> known_;  // by descriptor; listeners have the number 0
};

/// An address in the form for comparisons: with the compared fields only.
fabric::RawAddress addressOf(const sockaddr_in6& peer);

}  // namespace cinnabar::tcp
