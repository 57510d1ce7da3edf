// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "engine/guard.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"

namespace cinnabar::engine {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kForEver = UINT64_MAX;

// An owner without progress for so long is absent. A shorter time could be a pause of the
// collector, or another process on its processor.
constexpr uint64_t kLeaveNs = 5 * kMs;
// Each look wakes a thread, which takes a processor from others where they are scarce. So an owner
// that was present at so many looks in a row gets as much time again, up to this.
constexpr uint32_t kPresentLooks = 8;
constexpr uint64_t kPresentLeaveNs = 20 * kMs;
// The owner of a polled port comes at least each 10 ms (binding/wake.cc).
constexpr uint64_t kPolledLeaveNs = 40 * kMs;
// A guard looks less and less often while its owner sleeps. After a second of quiet it waits for
// the descriptor. It does not while there is traffic: it would wake each time that its owner does.
constexpr uint64_t kSeldomNs = 40 * kMs;
constexpr uint64_t kQuietNs = 1000 * kMs;
// Between turns when the ring is full, or when the owner has the lock.
constexpr uint64_t kPauseNs = kMs;
// So many guards of one owner look as often as a single guard. More guards share their looks.
// Otherwise their owner, which they wait for, would get no processor.
constexpr uint64_t kGuardsAtOnce = 16;
constexpr uint64_t kLongestLeaveNs = 200 * kMs;
constexpr uint64_t kLongestPauseNs = 100 * kMs;
// A port without its owner for so long counts as absent, even if the owner serves its other ports.
// Peers give a process up after a second.
constexpr uint64_t kNeglectNs = 250 * kMs;

constexpr int kExitWaits = 1000;
constexpr useconds_t kExitWaitUs = 1000;

// process.exit() on Node's main thread closes no ports, and the end of the process destroys
// libfabric. So a guard enters the provider only through this gate, which closes for ever before
// that.
class ExitGate {
 public:
  static ExitGate& instance() {
    static ExitGate* gate = new ExitGate;  // outlives every thread and exit handler
    return *gate;
  }
  bool enter() {
    ++inside_;
    if (!closed_) return true;
    --inside_;
    return false;
  }
  void leave() { --inside_; }

 private:
  ExitGate() {
    atexit([] { instance().close(); });
  }
  void close() {
    closed_ = true;
    // Bounded, in case a guard is caught inside the provider.
    for (int i = 0; i < kExitWaits && inside_ > 0; ++i) usleep(kExitWaitUs);
  }

  std::atomic<int> inside_ = 0;
  std::atomic<bool> closed_ = false;
};

}  // namespace

std::shared_ptr<Owner> Owner::current() {
  thread_local auto owner = std::make_shared<Owner>();
  return owner;
}

Guard::Guard(Port& port, std::function<void()> nudge)
    : port_(port), nudge_(std::move(nudge)), signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Guard::~Guard() {
  if (relevant_) --owner_->guards;
  if (!thread_.runs()) return;
  stopping_ = true;
  signal();
  thread_.join();
}

Guard::Lock Guard::use() {
  Lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  // Without this a busy guard could take the lock again and again.
  waiting_ = true;
  lock.lock();
  waiting_ = false;
  return lock;
}

Guard::Lock Guard::drive() {
  Lock lock = use();
  for (auto* turns : {&turns_, &owner_->turns})
    turns->store(turns->load(std::memory_order_relaxed) + 1, std::memory_order_release);
  if (absentSinceNs_ != 0) {
    absences_ = absences();
    absentSinceNs_ = 0;
    port_.endAbsence();
    signal();
  }
  if (asleep_.load(std::memory_order_relaxed)) {
    asleep_ = false;
    // The guard sleeps on a descriptor that does not report an owner that is awake. One of the two
    // threads sees the other's store.
    if (resting_ && resting_.exchange(false)) signal();
  }
  return lock;
}

void Guard::update() {
  bool relevant = port_.isRelevant();
  if (relevant == relevant_.load(std::memory_order_relaxed)) return;
  relevant_ = relevant;
  if (!relevant) {
    --owner_->guards;
    return;
  }
  ++owner_->guards;
  if (!thread_.runs()) start();
  if (resting_.exchange(false)) signal();
}

Absences Guard::absences() const {
  Absences all = absences_;
  if (absentSinceNs_ == 0) return all;
  uint64_t ns = base::nowNs() - absentSinceNs_;
  ++all.count;
  all.totalNs += ns;
  all.longestNs = std::max(all.longestNs, ns);
  return all;
}

/// Without a thread or a descriptor for it, the port goes unguarded.
void Guard::start() {
  if (!signal_) return;
  ExitGate::instance();
  thread_.start([this] { run(); });
}

uint64_t Guard::leaveNs() const {
  uint64_t share = std::max<uint64_t>(1, owner_->guards / kGuardsAtOnce);
  uint64_t longest = std::max(kLongestLeaveNs, kPolledLeaveNs);
  uint64_t one = std::min(kLeaveNs * (1 + presences_ / kPresentLooks), kPresentLeaveNs);
  return std::min((port_.isPolled() ? kPolledLeaveNs : one) * share, longest);
}

void Guard::run() {
  uint64_t turn = 0;
  uint64_t sinceNs = base::nowNs();  // when the last of the owner's turns was noticed
  uint64_t dueNs = 0;                // since when it should come; 0 if it need not
  while (!stopping_) {
    if (!relevant_) {
      rest(false);
      continue;
    }
    if (uint64_t latest = turns_; latest != turn) {
      turn = latest;
      ++presences_;
      sinceNs = base::nowNs();
      dueNs = 0;
    }
    bool asleep = asleep_;
    if (asleep) {
      uint64_t quietNs = base::nowNs() - sinceNs;
      if (quietNs > kQuietNs) {
        rest(true);
      } else {
        uint64_t leastNs = leaveNs();
        wait(false, std::clamp(quietNs / 4, leastNs, std::max(leastNs, kSeldomNs)));
      }
      // Nothing has come that should wake the owner, or the owner is awake.
      if (!asleep_ || !wait(true, 0)) {
        dueNs = 0;
        continue;
      }
    }
    if (dueNs == 0) dueNs = asleep ? base::nowNs() : sinceNs;
    uint64_t ownersTurn = owner_->turns;
    wait(false, leaveNs());
    if (turns_ != turn) continue;
    // The owner is at its other ports.
    if (owner_->turns != ownersTurn && base::nowNs() - dueNs < kNeglectNs) continue;
    presences_ = 0;
    ++owner_->standingIn;
    standIn(turn, asleep, dueNs);
    --owner_->standingIn;
  }
}

/// Sleeps until the port is relevant, or, where it is, until its owner is awake or should be.
void Guard::rest(bool relevant) {
  resting_ = true;
  bool stillSo = relevant ? relevant_ && asleep_ : !relevant_;
  if (stillSo && !stopping_) wait(relevant, kForEver);
  resting_ = false;
}

/// `turn` and `asleep`: the owner as it was seen when its absence began.
void Guard::standIn(uint64_t turn, bool asleep, uint64_t sinceNs) {
  {
    Lock lock(mutex_, std::try_to_lock);
    // An owner falls asleep at the end of a turn: it may have been seen in that turn, still awake.
    if (!lock || turns_ != turn || asleep_ != asleep) return;
    absentSinceNs_ = sinceNs;
    port_.beginAbsence();
  }
  for (bool nudged = false; !stopping_;) {
    StandIn outlook;
    uint64_t now = base::nowNs();
    if (!ExitGate::instance().enter()) {
      stopping_ = true;
      return;
    }
    if (!nudged) nudge_();
    nudged = true;
    bool there = !tryTurn(now, &outlook);
    ExitGate::instance().leave();
    if (there) return;
    uint64_t leftNs = outlook.untilNs;
    if (leftNs != kForEver) leftNs = outlook.untilNs > now ? outlook.untilNs - now : 0;
    // A single guard looks when it has something to do. Many guards would look all the time.
    uint64_t pauseNs = std::min(kPauseNs * owner_->standingIn, kLongestPauseNs);
    bool isAmongMany = owner_->standingIn > kGuardsAtOnce;
    if (isAmongMany) leftNs = std::max(leftNs, pauseNs);
    switch (outlook.next) {
      case StandIn::Next::again:
        sched_yield();
        break;
      case StandIn::Next::pause:
        wait(false, pauseNs);
        break;
      case StandIn::Next::sleep:
        wait(true, leftNs);
        break;
    }
  }
}

/// One turn for the owner, if the lock is free; false if the owner is there.
bool Guard::tryTurn(uint64_t now, StandIn* outlook) {
  outlook->next = StandIn::Next::pause;
  Lock lock(mutex_, std::try_to_lock);
  if (!lock || waiting_) return true;
  if (absentSinceNs_ == 0) return false;
  *outlook = port_.standIn(now, now - absentSinceNs_);
  return true;
}

/// Sleeps for at most `ns`, or until a signal, or until the port's descriptor is readable. Returns
/// whether the descriptor was readable.
bool Guard::wait(bool descriptor, uint64_t ns) {
  pollfd watched[] = {{signal_.get(), POLLIN, 0}, {port_.waitFd(), POLLIN, 0}};
  timespec timeout{static_cast<time_t>(ns / (1000 * kMs)), static_cast<long>(ns % (1000 * kMs))};
  ppoll(watched, descriptor ? 2 : 1, ns == kForEver ? nullptr : &timeout, nullptr);
  looks_.store(looks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  eventfd_t count;
  if (watched[0].revents != 0) eventfd_read(signal_.get(), &count);
  return watched[1].revents != 0;
}

void Guard::signal() { eventfd_write(signal_.get(), 1); }

}  // namespace cinnabar::engine
