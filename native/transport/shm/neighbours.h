// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fi_errno.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/shm/byte_ring.h"
#include "transport/shm/claim.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/hello.h"
#include "transport/shm/keys.h"
#include "transport/shm/ring_copies.h"
#include "transport/transport.h"

namespace cinnabar::shm {

/// One socket to another shm port, and the facts learned over it. Two ports that connect to each
/// other at the same moment have two.
struct Neighbour : transport::Peer {
  enum class State {
    waiting,  // no hello yet
    ready,    // posts may begin
    gone,     // the socket ended: the process is dead or has closed its port
  };

  State state = State::waiting;
  base::Fd socket;
  bool connected = false;  // by us, not accepted
  std::string name;        // empty until known
  uint32_t id = 0;
  uint32_t slotBytes = 0;                // of the peer's receive slots
  uint32_t endStatus = FI_ECONNABORTED;  // `ended`, once it is gone
  bool copies = false;                   // direct copies between the processes work
  uint64_t order = 0;                    // age, to drop the oldest of the unnamed
  uint32_t references = 0;               // addresses that name it
  std::unique_ptr<RemoteDoorbell> doorbell;
  std::unique_ptr<RemoteKeys> keys;
  /// The ring that the neighbour writes and we read. Stays until it is drained.
  std::unique_ptr<RingReader> inbound;
  std::unique_ptr<RingWriter> outbound;
  RingExchange exchange;  // copies, where they go through the rings

  pid_t pid() const { return process->pid; }
  bool isReady() const { return state == State::ready; }
  bool isGone() const { return state == State::gone; }
  bool isRead() const { return !inbound || !inbound->hasRecord(); }
};

/// A neighbour in the middle of a copy, and its word then.
struct UnderWay {
  uint32_t neighbour;
  uint32_t word;
  bool isHere;  // by a thread of this process
};

/// The neighbours of an shm port. Meets other ports, wakes them, is woken by them, and notices
/// their end.
class Neighbours {
 public:
  /// The most at a time. Their rings take 64 MiB.
  static constexpr size_t kMost = 250;

  /// `claim`, `doorbell` and `keys` outlive this.
  static fabric::Result<std::unique_ptr<Neighbours>> open(ShmClaim& claim, Doorbell& doorbell,
                                                          KeyTable& keys, uint32_t slotBytes);

  /// What to sleep on: the listening socket and every peer's socket.
  int waitFd() const { return epoll_.get(); }

  /// Finds or meets the live owner of a name. nullptr with -ECONNREFUSED if the name has no live
  /// owner.
  Neighbour* meet(const std::string& name, int* status);
  /// Gives back one reference. The pointer is dead afterwards if the neighbour is gone.
  void release(Neighbour* neighbour);

  /// Takes a ring of each neighbour with a record that was not read yet. Whether there was such a
  /// ring.
  bool takeRings();
  /// Handles all events on the sockets, without blocking. Appends ended neighbours with drained
  /// rings to `gone`; drops those without references.
  void poll(std::vector<transport::Peer*>& gone);
  /// Whether a neighbour is between hello and ready, so that polling soon is useful.
  bool isMeeting() const { return meeting_ > 0; }
  /// Whether a neighbour has ended and is not reported yet.
  bool hasEnded() const { return !ended_.empty(); }
  /// The neighbours whose rings are read.
  const std::vector<Neighbour*>& readable() const { return readable_; }
  /// The neighbour has sent what no honest peer sends.
  void expel(Neighbour& neighbour);
  /// The same for a neighbour that never ends a copy.
  void expel(const UnderWay& copy);

  /// The copies that may still use a key that was just removed from the table: those of the process
  /// `holder`, or of all if it is 0. A process may copy by any of its ports, whichever got the key.
  /// Later neighbours map the table as it is then.
  std::vector<UnderWay> copiesUnderWay(pid_t holder) const;
  bool isCopying(const UnderWay& copy) const;
  size_t count() const { return all_.size(); }
  /// Connections that were refused for lack of descriptors.
  const transport::Turned& turned() const { return turned_; }

 private:
  Neighbours(ShmClaim& claim, Doorbell& doorbell, KeyTable& keys, uint32_t slotBytes);

  Neighbour* add(base::Fd socket, bool connected);
  void acceptAll();
  void turnAway();
  void turnAway(Neighbour& neighbour);
  void read(Neighbour& neighbour);
  void readRings(Neighbour& neighbour);
  void sayNo(Neighbour& neighbour, HelloKind kind);
  void refuse(Neighbour& neighbour, const HelloMessage& theirs);
  bool greet(Neighbour& neighbour, Received& received);
  bool sayHello(Neighbour& neighbour);
  void end(Neighbour& neighbour);
  void setState(Neighbour& neighbour, Neighbour::State state);
  void erase(Neighbour& neighbour);

  ShmClaim& claim_;
  Doorbell& doorbell_;
  KeyTable& keys_;
  uint32_t slotBytes_;
  base::Fd epoll_;
  std::unordered_map<uint32_t, std::unique_ptr<Neighbour>> all_;
  std::vector<Neighbour*> ended_;  // not reported yet
  std::vector<Neighbour*> readable_;
  transport::Turned turned_;
  uint32_t nextId_ = 1;
  uint32_t meeting_ = 0;
  uint64_t clock_ = 0;
  uint64_t proof_;
};

}  // namespace cinnabar::shm
