// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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

/// Stands in for the thread that a port belongs to while that computes: a thread of its own that
/// makes progress, so that peers' reads and writes go on, and answers those who ask whether anybody
/// is there. It never runs anybody's code, and what arrives waits in the ring.
///
/// The owner is absent when it has not made progress for a few milliseconds though it does not
/// sleep, or sleeps though there is something to wake up for. The guard sleeps too while nobody
/// could miss the owner (`Port::isRelevant`), and, on the port's own descriptor, while the owner
/// has nothing to do. See docs/design/guard.md.
class Guard {
 public:
  /// `port` outlives the guard. `nudge` is called on the guard's thread at the start of an absence:
  /// it must bring the owner back to the port when it has time, as its descriptor may tell no more
  /// of what the guard has taken in.
  Guard(Port& port, std::function<void()> nudge);
  /// The owner's to call, without a lock.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  using Lock = std::unique_lock<std::mutex>;
  /// What the owner holds while it uses the port.
  [[nodiscard]] Lock use();
  /// The same for `progress`, `arm` and `wake`, which show that it is there.
  [[nodiscard]] Lock drive();
  /// The port has been armed: the owner comes when its descriptor tells. Within `drive`.
  void sleeps() { asleep_ = true; }
  /// Whether the port is relevant may have changed. Within `use`.
  void update();

  /// The present absence included. Within `use`.
  Absences absences() const;

 private:
  void start();
  void run();
  void rest(bool owned);
  void standIn(uint64_t turn, uint64_t sinceNs);
  bool tryTurn(uint64_t now, StandIn* outlook);
  bool wait(bool descriptor, uint64_t ns);
  void signal();

  Port& port_;
  const std::function<void()> nudge_;
  const base::Fd signal_;  // ends every sleep of the guard

  std::mutex mutex_;            // of the port, and of all that follows
  uint64_t absentSinceNs_ = 0;  // 0: the owner is there, or is thought to be
  Absences absences_;

  // What the guard looks at without holding anything up.
  std::atomic<uint64_t> turns_ = 0;  // the owner's calls of `drive`
  std::atomic<bool> asleep_ = false;
  std::atomic<bool> relevant_ = false;
  std::atomic<bool> waiting_ = false;  // the owner waits for the lock
  std::atomic<bool> resting_ = false;  // the guard waits for a signal
  std::atomic<bool> stopping_ = false;
  base::Thread thread_;
};

}  // namespace cinnabar::engine
