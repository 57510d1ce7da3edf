// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "base/thread.h"
#include "engine/port.h"

namespace cinnabar::engine {

/// How often the port's thread was absent, and for how long.
struct Absences {
  uint32_t count = 0;
  uint64_t totalNs = 0;
  uint64_t longestNs = 0;
};

/// A thread that owns ports, as their guards see it. Its presence is one fact for all of its
/// guards. The more guards it has, the less often each looks.
struct Owner {
  /// The calling thread.
  static std::shared_ptr<Owner> current();

  std::atomic<uint64_t> turns = 0;       // of all its ports; it alone writes
  std::atomic<uint32_t> guards = 0;      // guards of relevant ports
  std::atomic<uint32_t> standingIn = 0;  // those that stand in for their owner
};

/// A thread that stands in for the owner of a port, the thread that opened it, while the owner
/// computes. It makes progress, so that peers' reads and writes go on, and it answers pings. It
/// runs no code of the user. Arrivals wait in the ring.
///
/// The owner is absent in two cases. It is awake and has made no progress for 5 to 20 ms,
/// or it sleeps although the port has something to do. An owner that makes progress at another of
/// its ports comes to this one soon, unless it takes very long. The guard sleeps while no peer
/// could miss the owner (`Port::isRelevant`). While the owner is idle, the guard sleeps on the
/// port's descriptor. See docs/design/guard.md.
class Guard {
 public:
  /// `port` outlives the guard. `nudge` is called on the guard's thread at the start of an absence.
  /// It must bring the owner back to the port as soon as possible: the descriptor may no longer
  /// report what the guard has taken in.
  Guard(Port& port, std::function<void()> nudge);
  /// Called by the owner, without a lock.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  using Lock = std::unique_lock<std::mutex>;
  /// The lock that the owner holds while it uses the port.
  [[nodiscard]] Lock use();
  /// The same for `progress`, `arm` and `wake`, which show that the owner is present.
  [[nodiscard]] Lock drive();
  /// The port has been armed: the owner comes back when its descriptor is readable. Call it within
  /// `drive`. The owner of a polled port looks by itself, as if it were awake.
  void sleeps() { asleep_ = !port_.isPolled(); }
  /// Whether the port is relevant may have changed. Within `use`.
  void update();

  /// The present absence included. Within `use`.
  Absences absences() const;
  /// How long the owner may stay away now before it is absent. From any thread.
  uint64_t leaveNs() const;
  /// How often the guard's thread has woken up.
  uint64_t looks() const { return looks_; }

 private:
  void start();
  void run();
  void rest(bool owned);
  void standIn(uint64_t turn, bool asleep, uint64_t sinceNs);
  bool tryTurn(uint64_t now, StandIn* outlook);
  bool wait(bool descriptor, uint64_t ns);
  void signal();

  Port& port_;
  const std::function<void()> nudge_;
  const base::Fd signal_;  // ends every sleep of the guard
  const std::shared_ptr<Owner> owner_ = Owner::current();

  std::mutex mutex_;            // for the port, and for all members below
  uint64_t absentSinceNs_ = 0;  // 0: the owner is present, or considered present
  Absences absences_;

  // What the guard reads without the lock.
  std::atomic<uint64_t> turns_ = 0;  // the owner's calls of `drive`
  std::atomic<bool> asleep_ = false;
  std::atomic<bool> relevant_ = false;
  std::atomic<bool> waiting_ = false;  // the owner waits for the lock
  std::atomic<bool> resting_ = false;  // the guard waits for a signal
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> looks_ = 0;
  std::atomic<uint64_t> presences_ = 0;  // looks that found the owner there since its last absence
  base::Thread thread_;
};

}  // namespace cinnabar::engine
