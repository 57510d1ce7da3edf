// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <rdma/fi_errno.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/shm/claim.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/hello.h"
#include "transport/shm/keys.h"
#include "transport/shm/mapping.h"
#include "transport/shm/stale_lock_reaper.h"
#include "transport/transport.h"

namespace cinnabar::shm {

/// One socket to another shm port, and what was learned over it. Two ports that connect to each
/// other at the same moment have two.
struct Neighbour : transport::Peer {
  enum class State {
    waiting,  // no hello yet
    mapped,   // we mapped the peer; it has not yet said that it mapped us
    ready,    // both; posts may begin
    gone,     // the socket ended: the process is dead or has closed its port
  };

  State state = State::waiting;
  base::Fd socket;
  bool connected = false;                // by us, not accepted
  std::string name;                      // empty until known
  uint32_t id = 0;                       // what the peer puts into its fragments
  uint32_t theirId = 0;                  // what we put into ours
  uint32_t slotBytes = 0;                // of the peer's receive slots
  uint32_t endStatus = FI_ECONNABORTED;  // `ended`, once it is gone
  bool copies = false;                   // direct copies between the processes work
  uint64_t order = 0;                    // age, to drop the oldest of the unnamed
  uint32_t references = 0;               // addresses that name it
  std::unique_ptr<RemoteDoorbell> doorbell;
  std::unique_ptr<RemoteKeys> keys;
  std::shared_ptr<Mapping> mapping;

  pid_t pid() const { return process->pid; }
  bool isReady() const { return state == State::ready; }
  bool isGone() const { return state == State::gone; }
};

/// A neighbour that was in the middle of a copy, or of a post, and its word then.
struct UnderWay {
  uint32_t neighbour;
  uint32_t word;
};

/// The doorbell side of an shm port: meets other ports, wakes them, is woken by them, and notices
/// their end.
class Neighbours {
 public:
  /// `claim`, `doorbell`, `keys` and `mappings` outlive this.
  static fabric::Result<std::unique_ptr<Neighbours>> open(ShmClaim& claim, Doorbell& doorbell,
                                                          KeyTable& keys, Mappings& mappings,
                                                          uint32_t slotBytes);

  /// What to sleep on: the doorbell, the listening socket and every peer's socket.
  int waitFd() const { return epoll_.get(); }

  /// Finds or meets the live owner of a name. nullptr with -ECONNREFUSED if there is none.
  Neighbour* meet(const std::string& name, int* status);
  /// Gives back one reference. The pointer is dead afterwards if the neighbour is gone.
  void release(Neighbour* neighbour);

  /// Handles whatever happened on the sockets, without blocking. Neighbours that ended are appended
  /// to `gone`; those without references are dropped.
  void poll(std::vector<transport::Peer*>& gone);
  /// Whether somebody is between hello and ready, so that polling soon is worth it.
  bool isMeeting() const { return meeting_ > 0; }

  /// Wakes every neighbour that sleeps.
  void ringAll();
  /// The copies that may still use what was just taken out of the key table. Neighbours that come
  /// later map the table as it is then.
  std::vector<UnderWay> copiesUnderWay() const { return underWay(&RemoteDoorbell::copying); }
  bool isCopying(const UnderWay& copy) const { return isUnderWay(copy, &RemoteDoorbell::copying); }
  /// The posts that may have taken a place in our queue and not yet filled it. Neighbours that come
  /// later take none of those that are taken now.
  std::vector<UnderWay> postsUnderWay() const { return underWay(&RemoteDoorbell::posting); }
  bool isPosting(const UnderWay& post) const { return isUnderWay(post, &RemoteDoorbell::posting); }
  /// How many neighbours have ended so far.
  uint64_t ended() const { return endings_; }
  size_t count() const { return all_.size(); }
  /// Those that were not met for lack of descriptors.
  const transport::Turned& turned() const { return turned_; }
  /// The neighbour that was told to use this id in fragments.
  Neighbour* findById(uint32_t id);

 private:
  Neighbours(ShmClaim& claim, Doorbell& doorbell, KeyTable& keys, Mappings& mappings,
             uint32_t slotBytes);

  Neighbour* add(base::Fd socket, bool connected);
  void acceptAll();
  void turnAway();
  void turnAway(Neighbour& neighbour);
  void read(Neighbour& neighbour);
  bool greet(Neighbour& neighbour, Received& received);
  bool sayHello(Neighbour& neighbour, HelloKind kind);
  void end(Neighbour& neighbour);
  void setState(Neighbour& neighbour, Neighbour::State state);
  void erase(Neighbour& neighbour);
  using Word = uint32_t (RemoteDoorbell::*)() const;
  std::vector<UnderWay> underWay(Word word) const;
  bool isUnderWay(const UnderWay& seen, Word word) const;

  ShmClaim& claim_;
  Doorbell& doorbell_;
  KeyTable& keys_;
  Mappings& mappings_;
  uint32_t slotBytes_;
  base::Fd epoll_;
  std::unordered_map<uint32_t, std::unique_ptr<Neighbour>> all_;
  std::vector<Neighbour*> ended_;
  uint64_t endings_ = 0;
  transport::Turned turned_;
  uint32_t nextId_ = 1;
  uint32_t meeting_ = 0;
  uint64_t clock_ = 0;
  uint64_t proof_;
  /// Made with the first peer of another process, where it is needed at all.
  std::unique_ptr<StaleLockReaper> reaper_;
};

}  // namespace cinnabar::shm
