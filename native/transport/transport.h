// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/endpoint.h"
#include "transport/operation.h"
#include "transport/region_table.h"

namespace cinnabar::transport {

/// How many connections others may make, and what they may make a port hold.
struct ConnectionBounds {
  uint32_t connections = UINT32_MAX;
  uint32_t idleMs = UINT32_MAX;   // of a connection that belongs to nobody the port knows
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

/// A process of this host, as the kernel knows it. Numbers are those of this process's namespaces.
struct ProcessCredentials {
  uid_t uid;
  gid_t gid;
  pid_t pid;
};

/// Whom a port posts to. The transport owns it; a port holds it from `admit` to `release`.
struct Peer {
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  /// 0, or what operations to it end with, because it is gone.
  uint32_t ended = 0;
  /// Who it is, where the kernel says so.
  std::optional<ProcessCredentials> process;
};

// What posting an operation returns besides 0, which means that the provider has it, and errors.
constexpr int kDone = 1;      // over, and no completion follows
constexpr int kTaken = 2;     // the transport moves it by itself; `advance` tells of its end
constexpr int kTakenNow = 3;  // likewise, and `advance` should be called at once

/// An operation that the transport moved by itself, and its error.
struct Ended {
  Operation* operation;
  uint32_t status;
};

/// A message that has arrived, or a piece of one.
struct Arrival {
  bool isWhole = true;  // if not, its slot is free again
  size_t bytes = 0;
  uint32_t status = 0;
};

/// A connection of the provider's, where that tells of them.
struct Connection {
  uint64_t number = 0;      // they are numbered from 1 on, as they are made
  fabric::RawAddress peer;  // where the other side listens, once it has said so
  bool isInbound = false;
  bool isUp = false;  // both sides have greeted each other
};

/// Connections of others that were not kept, since the port was opened.
struct Turned {
  uint64_t away = 0;       // for lack of descriptors
  uint32_t code = 0;       // the last one's error number
  uint64_t malformed = 0;  // what they sent was not libfabric's
  uint64_t shed = 0;       // ended because they were too many, held too much or belonged to nobody
};

/// What happened beside the queue.
struct News {
  struct Unreachable {
    fi_addr_t address;
    uint32_t code;  // an error number
  };
  std::vector<Unreachable> unreachable;
  /// Whose connections have ended. What they had sent before may still be in the queue.
  std::vector<fi_addr_t> disconnected;
  Turned turned;
};

/// What a port asks of its provider beyond libfabric's own calls.
///
/// This class is the plain case: a provider that keeps what libfabric's pages promise. shm/ and
/// verbs/ override what their providers need beside it. A port calls it on its own thread only, or
/// on its guard's in an absence (engine/guard.h).
///
/// On the path of a message a port makes one call of this class to send, one to look for what a
/// turn should do, and two in each poll. docs/design/transport.md has what they cost.
class Transport {
 public:
  /// Opens the endpoint that suits the request, and what it needs beside it.
  static fabric::Result<std::unique_ptr<Transport>> open(const OpenRequest& request);

  Transport(fabric::Scheme scheme, std::shared_ptr<fabric::Endpoint> endpoint);
  virtual ~Transport();

  fabric::Endpoint& endpoint() const { return *endpoint_; }
  const fabric::EndpointTraits& traits() const { return endpoint_->traits(); }

  /// Lets peers come, once the receives are posted. What went wrong, if anything.
  virtual std::optional<fabric::Failure> publish() { return std::nullopt; }
  /// Ends what peers and the provider do with the port's memory. Nothing but the destructor may be
  /// called after it; the regions go in between.
  virtual void close(const RegionTable& regions);

  // Facts
  virtual const std::string& name() const { return noName_; }
  virtual fabric::RawAddress address() const { return endpoint_->name(); }
  /// Readable when there may be something to do; valid until `close`.
  virtual int waitFd() const { return traits().waitFd; }
  /// Whether the end of a peer is told by `look`.
  virtual bool reportsDeath() const { return false; }
  /// Whether nobody uses a region any more once `isCopied` says so.
  virtual bool revokesKeys() const { return traits().revokesKeys; }
  /// Whether a transfer that its owner refuses ends without a reason, and the connection with it.
  virtual bool refusesSilently() const { return true; }
  /// Whether the bytes of transfers pass through calls of the port, so that its descriptor tells of
  /// each piece, and `movedBytes` counts them.
  bool movesBytes() const { return movedBytes_ != nullptr; }
  uint64_t movedBytes() const { return movesBytes() ? *movedBytes_ : 0; }
  /// Whether a peer that cannot be reached answers EAGAIN for ever, so that tries have to thin out.
  virtual bool thinsRetries() const { return true; }

  // Peers
  virtual fabric::Result<fabric::RawAddress> addressOf(const std::string& hostOrName,
                                                       uint32_t service) const;
  /// 0 or a negated error.
  virtual int admit(const uint8_t* address, size_t length, Peer** into);
  virtual void release(Peer& peer);
  /// Nobody speaks with the peer any more. Whether that ends what the provider has of it: it will
  /// complete it with an error soon.
  virtual bool cutOff(Peer&) { return false; }
  /// Nobody speaks with the peer any more, and what the provider has of it did not complete for
  /// `traits().linger`. Asked where the transport `endsConnections`.
  virtual void endConnection(Peer&) {}
  /// A peer that `look` gave has been dealt with.
  virtual void onGone(Peer&) {}

  /// Whether `takeNews` has something. Asked in every poll, so it is no call.
  bool hasNews() const { return news_ != nullptr && news_->load(std::memory_order_relaxed); }
  virtual News takeNews() { return {}; }
  /// Whether the provider's connections are known.
  virtual bool watchesSockets() const { return false; }
  virtual std::vector<Connection> connections() const { return {}; }
  /// Whether those that are open are counted, and how many there are.
  virtual bool countsConnections() const { return watchesSockets(); }
  virtual size_t connectionCount() const { return connections().size(); }
  virtual uint64_t connectionsMade() const { return 0; }
  /// Whether bytes from anybody who can connect go to a provider that believes them.
  virtual bool trustsStreams() const { return traits().trustsStreams; }

  // Operations. Each has its peer set.
  /// 0, kDone or a negated error; -FI_EAGAIN to be asked again.
  virtual int send(Operation& operation, const uint8_t* bytes, void* descriptor);
  /// Sends without a completion, past all that waits. May be lost.
  virtual void say(Peer& peer, const uint8_t* bytes, size_t length);
  /// Before the parts of a transfer are posted, at each try. 0, kTaken or kTakenNow, or
  /// -FI_EAGAIN.
  virtual int beginTransfer(Operation&) { return 0; }
  /// Posts the next part of a transfer: 0 if the provider has it. `*stop` becomes what keeps the
  /// following parts from being posted, as do the errors that are returned.
  virtual int postPart(Part& part, const fi_msg_rma& message, int* stop);
  /// After what could be posted of a transfer was.
  virtual void endTransfer(Operation&) {}
  /// The provider has let go of a part, or never will (`onGone`).
  virtual void letGo(Part&) {}
  /// Something failed on the connection of that number (Operation::connection).
  virtual void onFailed(Peer&, uint32_t /*connection*/) {}
  /// A message that carries data of the transport's beside its bytes.
  virtual Arrival assemble(uint64_t /*data*/, uint8_t* /*bytes*/, size_t length) {
    return {true, length, 0};
  }

  // What the transport moves by itself
  virtual const std::vector<Ended>& advance(const RegionTable&) { return nothingEnded_; }
  bool isMoving() const { return isMoving_; }
  /// Takes an address's operations back; the port ends them.
  virtual std::vector<Operation*> takeBack(uint32_t /*address*/) { return {}; }

  // Turns
  /// Whether this turn should `look`. Called once a turn.
  virtual bool beginTurn() { return false; }
  void endTurn() {
    if (hasMoved_) onTurnEnded();
  }
  /// Looks at what peers do beside the queue; those that are gone are appended. Whether the queue
  /// should be read before anything else is done.
  virtual bool look(std::vector<Peer*>&) { return false; }
  /// At the end of a poll. `isDrained`: the queue was read to its end with receives posted.
  virtual void endPoll(bool /*isDrained*/) {}
  /// Whether `look` is of use at all.
  bool looks() const { return looks_; }
  /// Whether to look again soon, whatever the descriptor says.
  virtual bool wantsLook() const { return false; }

  // Sleep: announce, ask peers without room to ring, poll once more, look a last time.
  /// Whether to `look` before that. What has come beside the queue makes the descriptor readable.
  virtual bool looksBeforeSleep() const { return looks_; }
  /// 0 to sleep on the descriptor; -FI_EAGAIN if there is something to read.
  virtual int announceSleep() { return endpoint_->tryWait(); }
  virtual void askForRoom(Peer&) {}
  virtual void lastLook() {}
  virtual void wake() {}

  // Keys
  /// Tells peers of a region's key. False: draw another.
  virtual bool publishKey(const fabric::Region&, uint32_t /*access*/) { return true; }
  /// Takes the key back at once.
  virtual void withdraw(uint32_t /*index*/, fabric::Region& region) { region.withdraw(true); }
  /// Whether a peer may still be in the middle of a copy that began before the key was withdrawn.
  virtual bool isCopied(uint32_t /*index*/) { return false; }

 protected:
  /// The end of a turn in which something was moved.
  virtual void onTurnEnded() {}
  /// In the address vector.
  virtual fi_addr_t insert(const uint8_t* address);
  virtual void remove(fi_addr_t address);
  int postMessage(const Part& part, const fi_msg_rma& message);

  fabric::Scheme scheme_;
  std::shared_ptr<fabric::Endpoint> endpoint_;
  const std::atomic<bool>* news_ = nullptr;
  const uint64_t* movedBytes_ = nullptr;
  // Asked in every turn, so they are no calls.
  bool looks_ = false;
  bool isMoving_ = false;
  bool hasMoved_ = false;  // since the last turn ended

 private:
  int insertInto(const uint8_t* address, Peer** into);

  std::string noName_;
  std::vector<Ended> nothingEnded_;
  std::deque<Peer> peers_;
  std::vector<Peer*> freePeers_;
};

}  // namespace cinnabar::transport
