// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "fabric/endpoint.h"

namespace cinnabar::verbs {

/// An event of a queue pair.
struct QueuePairEvent {
  enum class Kind : uint32_t {
    /// A peer asks for a connection. `pair` is the number of the queue pair that it may become.
    requested = 0,
    /// The work posted with `token` is done, with so many bytes.
    completed = 1,
    /// The connection is over, and with it all posted work. `status` is 0, or an error number of
    /// libfabric.
    ended = 2,
  };
  Kind kind;
  uint32_t pair;
  uint32_t token;
  uint32_t status;
  uint32_t bytes;
};

/// The kinds of work for a queue pair.
enum class Work : uint32_t { receive = 0, send = 1, read = 2, write = 3 };

/// Listens at the address of an RDMA device for connected queue pairs of programs that do not use
/// Cinnabar: FI_EP_MSG of the provider verbs. Its messages and transfers have no header. For one
/// thread. Tests name another provider with such endpoints, so that they need no device.
///
/// A peer's request waits until `open` and `accept`, or `close`. Each queue pair has a completion
/// queue of its own. It has room for all that may be posted, so that no peer can overflow
/// another's.
class QueuePairs {
 public:
  static fabric::Result<std::unique_ptr<QueuePairs>> listen(const fabric::Library& library,
                                                            const std::string& host, uint16_t port,
                                                            uint32_t mostPairs,
                                                            const std::string& provider = "verbs");
  QueuePairs(const QueuePairs&) = delete;
  QueuePairs& operator=(const QueuePairs&) = delete;
  ~QueuePairs();

  /// Readable while `take` has something.
  int fd() const { return epoll_.get(); }
  fabric::HostPort address() const { return address_; }

  /// Pins memory for messages and transfers of this side: its number, or a negated error. No peer
  /// gets a right to it.
  int registerMemory(uint8_t* bytes, size_t length);
  void deregister(uint32_t memory);

  /// Makes the queue pair for a peer's request, with room for so much posted work: 0 or a negated
  /// error. Receives may be posted from now on.
  int open(uint32_t pair, uint32_t sends, uint32_t receives);
  /// Accepts the connection: 0 or a negated error.
  int accept(uint32_t pair);
  /// Ends the connection, or refuses it. The device does not touch memory for it any more, and it
  /// has no further event.
  void close(uint32_t pair);

  struct Posted {
    Work work;
    uint32_t memory;
    uint64_t offset;
    uint64_t length;
    uint32_t token;
    /// The place in the peer's memory, for read and write.
    uint64_t address = 0;
    uint64_t key = 0;
  };
  /// 0 or a negated error. One event follows: of the token, or of the end of the pair.
  int post(uint32_t pair, const Posted& posted);

  /// Takes at most so many events. If more are left, `fd` stays readable.
  size_t take(QueuePairEvent* into, size_t most);

 private:
  struct Pair {
    fabric::InfoPtr info;  // of the peer's request, until it is answered
    fabric::Fid<fid_cq> completions;
    fabric::Fid<fid_ep> endpoint;
    int fd = -1;
    bool isReady = false;  // there may be completions that the descriptor does not report
    bool isOver = false;
  };
  struct Memory {
    fabric::Fid<fid_mr> mr;
    uint8_t* bytes;
    size_t length;
  };

  QueuePairs(const fabric::Library& library, const std::string& provider, uint32_t mostPairs)
      : library_(library), provider_(provider), mostPairs_(mostPairs) {}
  fabric::Result<bool> start(const std::string& host, uint16_t port);
  int watch(int fd, uint64_t what);
  void learnReady();
  void readCompletions(uint32_t number, Pair& pair, size_t most);
  void readConnections();
  void request(fi_info* info);
  void refuse(Pair& pair);
  void end(uint32_t number, Pair& pair, int status);
  void endOf(const fid* endpoint, int status);
  void ring();

  const fabric::Library& library_;
  std::string provider_;
  uint32_t mostPairs_;
  fabric::HostPort address_;
  base::Fd epoll_;
  base::Fd bell_;  // rung for events that no descriptor reports
  fabric::Fid<fid_fabric> fabric_;
  fabric::Fid<fid_eq> connections_;
  fabric::Fid<fid_domain> domain_;
  std::unordered_map<uint32_t, Memory> memories_;
  fabric::Fid<fid_pep> listener_;
  std::unordered_map<uint32_t, Pair> pairs_;
  uint32_t lastMemory_ = 0;
  uint32_t lastPair_ = 0;
  std::vector<uint32_t> ready_;
  std::deque<QueuePairEvent> events_;
  bool hasConnectionEvents_ = false;
};

}  // namespace cinnabar::verbs
