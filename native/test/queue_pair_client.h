// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/endpoint.h"

namespace cinnabar::test {

/// Where queue pairs are tested.
struct QueuePairPlace {
  std::string name;  // of the device, or the provider's
  std::string provider;
  std::string host;    // of the listener
  std::string source;  // of the client
};

/// The peer of a listener for queue pairs: connected endpoints of libfabric (FI_EP_MSG) that do
/// what the test asks, right or wrong. For one thread, which calls `turn`.
class QueuePairClient {
 public:
  enum class State { connecting, connected, refused, over };

  struct Connection {
    State state = State::connecting;
    std::vector<std::vector<uint8_t>> messages;
    size_t sent = 0;    // sends that are done
    size_t failed = 0;  // work that ended with an error
  };

  /// Memory that the listener may read or write, as `access` says (fi_mr(3)).
  struct Memory {
    std::vector<uint8_t> bytes;
    fabric::Fid<fid_mr> mr;
    uint64_t key = 0;
    uint64_t address = 0;
  };

  static fabric::Result<std::unique_ptr<QueuePairClient>> open(const QueuePairPlace& place,
                                                               uint16_t port);
  ~QueuePairClient();

  /// Asks for a connection: its number, or a negated error. Over verbs the private data are sent as
  /// they are, without the header that libfabric puts before them; nullopt keeps its own.
  int connect(const std::optional<std::vector<uint8_t>>& privateData = std::nullopt);
  Connection& connection(int number) { return *connections_.at(number).told; }
  /// Posts a receive for a message of at most so many bytes.
  int receive(int number, size_t bytes);
  int send(int number, const std::vector<uint8_t>& bytes);
  /// Says that the connection is over (fi_shutdown).
  void shutDown(int number);
  /// Lets go of the endpoint.
  void close(int number);

  /// The number of new memory, or a negated error.
  int expose(size_t bytes, uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE);
  Memory& memory(int number) { return memories_.at(static_cast<size_t>(number)); }

  /// Moves connections and work on.
  void turn();

 private:
  struct Work {
    bool isReceive;
    std::vector<uint8_t> bytes;
    fabric::Fid<fid_mr> mr;
  };
  struct Held {
    fabric::Fid<fid_cq> completions;
    fabric::Fid<fid_ep> endpoint;
    std::unique_ptr<Connection> told = std::make_unique<Connection>();
  };

  QueuePairClient() = default;
  int post(int number, bool isReceive, std::vector<uint8_t> bytes);
  void readConnections();
  void readCompletions(Held& held);
  Held* heldBy(const fid* endpoint);

  fabric::InfoPtr info_;
  fabric::Fid<fid_fabric> fabric_;
  fabric::Fid<fid_eq> events_;
  fabric::Fid<fid_domain> domain_;
  std::deque<Memory> memories_;
  std::map<uint64_t, Work> work_;
  uint64_t lastWork_ = 0;
  uint64_t lastKey_ = 0;
  int lastConnection_ = 0;
  std::map<int, Held> connections_;
};

/// Does what lines of standard input say, and answers each by a line of standard output.
int playQueuePairClient(const QueuePairPlace& place, uint16_t port);

}  // namespace cinnabar::test
