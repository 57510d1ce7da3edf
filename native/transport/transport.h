// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/endpoint.h"
#include "transport/operation.h"
#include "transport/region_table.h"

namespace cinnabar::transport {

/// The bounds on peers' connections, and on the memory that they make a port hold.
struct ConnectionBounds {
  uint32_t connections = UINT32_MAX;
  uint32_t idleMs = UINT32_MAX;   // for a connection without a known peer
  uint32_t holding = UINT32_MAX;  // connections that keep a receive for a message in part
};

struct OpenRequest {
  fabric::Scheme scheme = fabric::Scheme::tcp;
  std::string host;
  uint32_t service = 0;
  std::string name;
  std::string provider;  // "" lets the table choose
  uint32_t slotBytes = 0;
  uint32_t receiveSlots = 0;
  uint32_t maxConnections = UINT32_MAX;
  uint32_t maxIdleConnectionMs = UINT32_MAX;
};

/// A process of this host, from the kernel. Numbers are those of this process's namespaces.
struct ProcessCredentials {
  uid_t uid;
  gid_t gid;
  pid_t pid;
};

/// The peer of a port's operations. The transport owns it; a port holds it from `admit` to
/// `release`.
struct Peer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  /// 0, or the status of its operations after its end; and the transport's own number.
  uint32_t ended = 0;
  uint32_t endedDetail = 0;
  /// The peer's process, where the kernel reports it.
  std::optional<ProcessCredentials> process;
};

// Results of a post besides errors and 0, which means that the provider has the operation.
constexpr int kDone = 1;      // complete, and no completion follows
constexpr int kTaken = 2;     // the transport moves it by itself; `advance` reports its end
constexpr int kTakenNow = 3;  // likewise, and `advance` should be called at once

/// An operation that the transport moved by itself, and its error.
struct Ended {
  Operation* operation;
  uint32_t status;
};

/// A connection of the provider's, where the provider reports connections.
struct Connection {
  uint64_t number = 0;      // they are numbered from 1 on, as they are made
  fabric::RawAddress peer;  // where the other side listens, once it has sent that
  bool isInbound = false;
  bool isUp = false;  // both sides have greeted each other
};

/// Peers' connections that were not kept, since the port was opened.
struct Turned {
  uint64_t away = 0;       // for lack of descriptors
  uint32_t code = 0;       // the last one's error number
  uint64_t malformed = 0;  // for bytes that are not libfabric's
  uint64_t shed = 0;       // ended: they were too many, held too much or belonged to no peer
};

/// Events beside the queue.
struct News {
  struct Unreachable {
    fi_addr_t address;
    uint32_t code;  // an error number
  };
  std::vector<Unreachable> unreachable;
  /// Peers whose connections have ended. Earlier messages of them may still be in the queue.
  std::vector<fi_addr_t> disconnected;
  Turned turned;
};

/// Moves a port's messages and transfers.
///
/// fabric_transport.h is libfabric's plain case, the base of tcp/ and verbs/. shm/ does not use
/// libfabric. A port calls it on its own thread only, or on its guard's in an absence
/// (engine/guard.h).
///
/// For a message a port makes one call of this class to send, one to decide what a turn should do,
/// and three in each poll. docs/design/transport.md has their costs.
class Transport {
 public:
  /// Opens the endpoint for the request, and what the endpoint needs beside it.
  static fabric::Result<std::unique_ptr<Transport>> open(const OpenRequest& request);

  virtual ~Transport() = default;

  const fabric::EndpointTraits& traits() const { return traits_; }

  /// Admits peers, once the receives are posted. Returns the failure, if any.
  virtual std::optional<fabric::Failure> publish() { return std::nullopt; }
  /// Ends all access of peers and the provider to the port's memory. Then the regions are freed,
  /// and only the destructor may be called.
  virtual void close(const RegionTable& regions) = 0;

  // Facts
  virtual const std::string& name() const { return noName_; }
  virtual fabric::RawAddress address() const = 0;
  /// Readable when the port may have something to do; valid until `close`.
  virtual int waitFd() const { return traits().waitFd; }
  /// Whether `look` reports the end of a peer.
  virtual bool reportsDeath() const { return false; }
  /// Whether a region has no user any more once `isCopied` returns false.
  virtual bool revokesKeys() const { return traits().revokesKeys; }
  /// Whether a transfer that its owner refuses ends without a reason, and the connection with it.
  virtual bool refusesSilently() const { return true; }
  /// Whether the bytes of transfers pass through calls of the port. Then its descriptor reports
  /// each piece, and `movedBytes` counts them.
  bool movesBytes() const { return movedBytes_ != nullptr; }
  uint64_t movedBytes() const { return movesBytes() ? *movedBytes_ : 0; }
  /// Whether an unreachable peer answers EAGAIN for ever, so that tries must become rare.
  virtual bool thinsRetries() const { return true; }

  // Peers
  virtual fabric::Result<fabric::RawAddress> addressOf(const std::string& hostOrName,
                                                       uint32_t service) const = 0;
  /// 0 or a negated error.
  virtual int admit(const uint8_t* address, size_t length, Peer** into) = 0;
  virtual void release(Peer& peer) = 0;
  /// The port has no user of the peer any more. Returns whether this ends the provider's operations
  /// with the peer: they complete with an error soon.
  virtual bool cutOff(Peer&) { return false; }
  /// The port has no user of the peer any more, and the provider's operations with it did not
  /// complete for `traits().linger`. Called where the transport `endsConnections`.
  virtual void endConnection(Peer&) {}

  /// Whether `takeNews` has something. Read in every poll, so it is not a virtual call.
  bool hasNews() const { return news_ != nullptr && news_->load(std::memory_order_relaxed); }
  virtual News takeNews() { return {}; }
  /// Whether the provider's connections are known.
  virtual bool watchesSockets() const { return false; }
  virtual std::vector<Connection> connections() const { return {}; }
  /// Whether open connections are counted, and their number.
  virtual bool countsConnections() const { return watchesSockets(); }
  virtual size_t connectionCount() const { return connections().size(); }
  virtual uint64_t connectionsMade() const { return 0; }
  /// Whether the provider trusts the bytes of every peer that can connect.
  virtual bool trustsStreams() const { return traits().trustsStreams; }

  // Operations. Each has its peer set.
  /// 0, kDone or a negated error; -FI_EAGAIN to be asked again.
  virtual int send(Operation& operation, const uint8_t* bytes, void* descriptor) = 0;
  /// Sends without a completion, past all waiting operations. The message may be lost.
  virtual void say(Peer& peer, const uint8_t* bytes, size_t length) = 0;
  /// Before the parts of a transfer are posted, at each try. 0, kTaken or kTakenNow, or
  /// -FI_EAGAIN.
  virtual int beginTransfer(Operation&) { return 0; }
  /// Posts the next part of a transfer: 0 if the provider has it. `*stop` becomes the reason not to
  /// post the following parts; returned errors stop them, too.
  virtual int postPart(Part&, const fi_msg_rma&, int* /*stop*/) { return -FI_EOPNOTSUPP; }
  /// After the parts that could be posted now.
  virtual void endTransfer(Operation&) {}
  /// An operation failed on the connection of that number (Operation::connection).
  virtual void onFailed(Peer&, uint32_t /*connection*/) {}

  // Completions
  /// Takes a slot for a message from any peer: 0 or a negated error. `context` comes back with the
  /// message (fi_recv(3)).
  virtual ssize_t receive(void* bytes, size_t length, void* descriptor, void* context) = 0;
  /// Takes completions out (fi_cq_read(3)): how many, -FI_EAGAIN or -FI_EAVAIL.
  virtual ssize_t read(fi_cq_data_entry* entries, size_t count) = 0;
  /// The error that `read` found (fi_cq_readerr(3)): 1, or no error.
  virtual ssize_t readError(fi_cq_err_entry* into) = 0;

  // What the transport moves by itself
  virtual const std::vector<Ended>& advance(const RegionTable&) { return nothingEnded_; }
  bool isMoving() const { return isMoving_; }
  /// Takes back the operations that it moves for an address; the port ends them.
  virtual std::vector<Operation*> takeBack(uint32_t /*address*/, Peer&) { return {}; }

  // Turns
  /// Whether this turn should `look`. Called once a turn.
  virtual bool beginTurn() { return false; }
  void endTurn() {
    if (hasMoved_) onTurnEnded();
  }
  /// Looks at peers' actions beside the queue, and appends ended peers. Returns whether to read the
  /// queue first.
  virtual bool look(std::vector<Peer*>&) { return false; }
  /// At the end of a poll.
  virtual void endPoll() {}
  /// Whether the transport implements `look`.
  bool looks() const { return looks_; }
  /// Whether to look again soon, whatever the descriptor says.
  virtual bool wantsLook() const { return false; }

  // Sleep: announce, ask peers without room to ring, poll once more.
  /// Whether to `look` before that. Events beside the queue make the descriptor readable.
  virtual bool looksBeforeSleep() const { return looks_; }
  /// 0 to sleep on the descriptor; -FI_EAGAIN if there is something to read.
  virtual int announceSleep() = 0;
  virtual void askForRoom(Peer&) {}
  virtual void wake() {}

  // Memory
  /// Registers memory under a key, where the transport does not choose keys by itself. 0 or a
  /// negated error; -FI_ENOKEY if the key is taken.
  virtual int registerMemory(void* bytes, size_t length, uint32_t access, uint64_t key,
                             std::unique_ptr<fabric::Region>* into) = 0;
  /// Before a region's first use on this side. 0 or a negated error.
  virtual int prepareMemory(fabric::Region&) { return 0; }
  /// Registers the slots of messages, if the transport needs that.
  virtual int registerSlots(void* /*slab*/, size_t, std::unique_ptr<fabric::Region>*) { return 0; }
  /// Publishes a region's key to peers. False: draw another. `holder`: the one peer that gets the
  /// key; nullptr if any peer may have it.
  virtual bool publishKey(fabric::Region&, uint32_t /*access*/, Peer* /*holder*/) { return true; }
  /// Takes the key back at once.
  virtual void withdraw(uint32_t /*index*/, fabric::Region& region) { region.withdraw(true); }
  /// Whether a peer may still be in the middle of a copy that began before the key was withdrawn.
  virtual bool isCopied(uint32_t /*index*/) { return false; }

 protected:
  /// The end of a turn in which something was moved.
  virtual void onTurnEnded() {}

  /// Fixed once the transport is open.
  fabric::EndpointTraits traits_;
  const std::atomic<bool>* news_ = nullptr;
  const uint64_t* movedBytes_ = nullptr;
  // Read in every turn, so they are not virtual calls.
  bool looks_ = false;
  bool isMoving_ = false;
  bool hasMoved_ = false;  // since the last turn ended

 private:
  std::string noName_;
  std::vector<Ended> nothingEnded_;
};

}  // namespace cinnabar::transport
