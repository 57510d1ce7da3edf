// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/socket_watch.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/clock.h"

namespace cinnabar::tcp {
namespace {

// Bounds what no port takes. A dropped entry comes again, because the peer's next attempt fails
// too.
constexpr size_t kMostUnreachable = 1024;
// Bounds what no port takes. The heartbeat notices a peer with a dropped entry.
constexpr size_t kMostDisconnected = 65536;

// Connections that were accepted and have not said who they are. An honest peer does so at once;
// the provider itself waits for ever. As many as clients that connect at once on a busy machine.
constexpr size_t kMostPending = 1024;
constexpr uint64_t kPendingNs = 5'000'000'000;

constexpr uint64_t kSweepNs = 1'000'000'000;
// The part of the connections that ends at once when there are too many. Each look is at all of
// them, so the next connection should not be too many again.
constexpr size_t kEndedPart = 32;

std::string keyOf(const fabric::RawAddress& peer) { return {peer.begin(), peer.end()}; }

// The provider closes at its next look what was ended. One that it has forgotten stays.
constexpr uint64_t kClosingNs = 100'000'000;

// TCP_ESTABLISHED of the kernel, which linux/tcp.h does not have.
constexpr uint8_t kEstablished = 1;

/// The kernel's report on a connection; nullopt for a descriptor that is not a connection.
std::optional<tcp_info> infoOf(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return info;
}

/// The kernel asks the other end whether the connection is there. One that is not is reset, and one
/// that does not answer ends after four seconds.
void probe(int fd) {
  const int seconds = 1;
  const int count = 3;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

/// For how long nothing has come, in milliseconds.
uint32_t idleMs(int fd) {
  auto info = infoOf(fd);
  return info ? info->tcpi_last_data_recv : UINT32_MAX;
}

}  // namespace

fabric::RawAddress addressOf(const sockaddr_in6& peer) {
  sockaddr_in6 plain = peer;
  size_t length = sizeof(sockaddr_in);
  if (peer.sin6_family == AF_INET6) {
    length = sizeof(sockaddr_in6);
    plain.sin6_flowinfo = 0;
  } else {
    // sin_zero, which is where an IPv6 address goes on.
    std::memset(reinterpret_cast<uint8_t*>(&plain) + 8, 0, sizeof plain - 8);
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(&plain);
  return {bytes, bytes + length};
}

SocketWatch::~SocketWatch() {
  std::vector<int> forgotten;
  {
    std::lock_guard lock(mutex_);
    for (auto& [fd, known] : known_) {
      Socket* socket = SocketTable::find(fd);
      if (socket == nullptr) continue;
      socket->watch.store(nullptr, std::memory_order_release);
      if (known.connection.number == 0) continue;
      forgotten.push_back(fd);
      SocketTable::drop(*socket);
    }
    known_.clear();
  }
  for (int fd : forgotten) close(fd);
}

SocketWatch::News SocketWatch::take() {
  std::lock_guard lock(mutex_);
  news_.store(false, std::memory_order_relaxed);
  News taken = std::move(pending_);
  pending_ = {};
  pending_.turned = taken.turned;
  return taken;
}

std::vector<transport::Connection> SocketWatch::connections() const {
  std::lock_guard lock(mutex_);
  std::vector<transport::Connection> all;
  for (const auto& [fd, known] : known_) {
    if (known.connection.number != 0) all.push_back(known.connection);
  }
  return all;
}

uint64_t SocketWatch::connectionsMade() const {
  std::lock_guard lock(mutex_);
  return made_;
}

std::vector<SocketWatch::Use> SocketWatch::usesOf(uint64_t key) const {
  std::lock_guard lock(mutex_);
  std::vector<Use> uses;
  for (const auto& [fd, known] : known_) {
    const Socket* socket = SocketTable::find(fd);
    if (socket != nullptr && socket->keys.uses(key))
      uses.push_back({fd, known.connection.number, socket->filter.moved()});
  }
  std::sort(uses.begin(), uses.end(),
            [](const Use& one, const Use& other) { return one.number < other.number; });
  return uses;
}

void SocketWatch::endUse(const Use& use) {
  std::lock_guard lock(mutex_);
  auto known = known_.find(use.fd);
  if (known != known_.end() && known->second.connection.number == use.number)
    end(use.fd, known->second);
}

bool SocketWatch::endAll(const fabric::RawAddress& peer) {
  std::lock_guard lock(mutex_);
  bool found = false;
  for (auto& [fd, known] : known_) {
    if (!known.connection.isUp || known.connection.peer != peer) continue;
    end(fd, known);
    known.isCutOff = true;
    found = true;
  }
  return found;
}

void SocketWatch::attach(int fd, Socket& socket) {
  {
    std::lock_guard lock(mutex_);
    known_.try_emplace(fd);
  }
  socket.isFiltered = filters_;
  if (filters_) {
    socket.keys.countIn(&keys_);
    socket.filter.noteKeysIn(&socket.keys);
  }
  socket.watch.store(this, std::memory_order_release);
  if (socket.stage.load(std::memory_order_relaxed) != Socket::Stage::other)
    onConnection(fd, socket);
}

void SocketWatch::detach(int fd) {
  std::lock_guard lock(mutex_);
  Socket* socket = SocketTable::find(fd);
  if (socket != nullptr && socket->held != 0) {
    socket->held = 0;
    --holding_;
  }
  auto found = known_.find(fd);
  if (found == known_.end()) return;
  transport::Connection ended = found->second.connection;
  bool isCutOff = found->second.isCutOff;
  known_.erase(found);
  // Its user has ended it and gone. A later user of the peer did not have this connection.
  if (isCutOff) return;
  // When two sides connect to each other at once, one connection goes on. The other side's may be
  // refused before the answer to ours has come. A failure of ours is reported by itself.
  if (ended.number == 0 || !ended.isUp || isReached(ended.peer)) return;
  if (pending_.disconnected.size() >= kMostDisconnected) return;
  pending_.disconnected.push_back(std::move(ended.peer));
  news_.store(true, std::memory_order_relaxed);
}

bool SocketWatch::isReached(const fabric::RawAddress& peer) const {
  return std::any_of(known_.begin(), known_.end(), [&](const auto& entry) {
    const transport::Connection& each = entry.second.connection;
    bool isOpen = each.isUp || (!each.isInbound && !entry.second.isEnding());
    return each.number != 0 && isOpen && each.peer == peer;
  });
}

bool SocketWatch::isTaken(const fabric::RawAddress& peer) {
  std::lock_guard lock(mutex_);
  if (!admitted_.contains(keyOf(peer))) return false;
  for (auto& [fd, known] : known_) {
    const transport::Connection& each = known.connection;
    if (each.number == 0 || !each.isUp || known.isEnding() || each.peer != peer) continue;
    // Its end may have come, and not been read.
    auto info = infoOf(fd);
    if (!info || info->tcpi_state != kEstablished) continue;
    probe(fd);
    return true;
  }
  return false;
}

void SocketWatch::abandon(const fabric::RawAddress& peer) {
  std::lock_guard lock(mutex_);
  for (auto& [fd, known] : known_) {
    const transport::Connection& each = known.connection;
    if (each.number != 0 && !each.isInbound && !each.isUp && each.peer == peer) end(fd, known);
  }
}

void SocketWatch::admit(const fabric::RawAddress& peer) {
  std::lock_guard lock(mutex_);
  ++admitted_[keyOf(peer)];
}

void SocketWatch::forget(const fabric::RawAddress& peer) {
  std::lock_guard lock(mutex_);
  auto found = admitted_.find(keyOf(peer));
  if (found != admitted_.end() && --found->second == 0) {
    admitted_.erase(found);
    uint64_t now = base::nowNs();
    for (auto& [fd, known] : known_)
      if (known.connection.peer == peer) known.unknownSinceNs = now;
  }
  hasStrangers_.store(true, std::memory_order_relaxed);
}

void SocketWatch::onConnection(int fd, Socket& socket) {
  std::lock_guard lock(mutex_);
  Known& known = known_[fd];
  if (socket.number == 0) socket.number = ++made_;
  known.connection.number = socket.number;
  known.connection.peer = addressOf(socket.peer);
  known.connection.isInbound = socket.isInbound;
  known.connection.isUp = socket.stage.load(std::memory_order_relaxed) == Socket::Stage::streaming;
  known.sinceNs = socket.sinceNs;
  known.unknownSinceNs = base::nowNs();
  if (!socket.isInbound) return;
  hasStrangers_.store(true, std::memory_order_relaxed);
  if (!known.connection.isUp) boundInbound();
}

/// Bounds inbound connections. Ends those that have waited too long for the peer's identity, or the
/// oldest of too many of them. Ends all inbound connections if they are too many. The provider then
/// closes them.
void SocketWatch::boundInbound() {
  size_t pending = 0;
  size_t inbound = 0;
  int oldest = -1;
  uint64_t oldestNs = UINT64_MAX;
  uint64_t now = base::nowNs();
  for (auto& [fd, known] : known_) {
    if (!known.connection.isInbound || known.isEnding()) continue;
    ++inbound;
    if (known.connection.isUp) continue;
    if (now - known.sinceNs > kPendingNs) {
      end(fd, known);
      continue;
    }
    ++pending;
    if (known.sinceNs < oldestNs) {
      oldest = fd;
      oldestNs = known.sinceNs;
    }
  }
  if (pending > kMostPending) end(oldest, known_[oldest]);
  if (inbound > bounds_.connections) endIdle(inbound - bounds_.connections + inbound / kEndedPart);
}

bool SocketWatch::makeRoom() {
  std::lock_guard lock(mutex_);
  boundInbound();
  uint64_t now = base::nowNs();
  return std::any_of(known_.begin(), known_.end(), [now](const auto& entry) {
    return entry.second.isEnding() && now - entry.second.endedNs < kClosingNs;
  });
}

bool SocketWatch::isStranger(const transport::Connection& connection) const {
  return connection.isInbound && connection.isUp && !admitted_.contains(keyOf(connection.peer));
}

/// Ends `count` connections that others have made: those of strangers first, and among equals those
/// that have been idle longest.
void SocketWatch::endIdle(size_t count) {
  struct Candidate {
    bool isKnown;
    uint32_t activeMs;  // ago, from the end of time
    int fd;
    auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
  for (auto& [fd, known] : known_) {
    if (!known.connection.isInbound || !known.connection.isUp || known.isEnding()) continue;
    candidates.push_back({!isStranger(known.connection), UINT32_MAX - idleMs(fd), fd});
  }
  count = std::min(count, candidates.size());
  auto last = candidates.begin() + static_cast<ptrdiff_t>(count);
  std::nth_element(candidates.begin(), last, candidates.end());
  for (auto each = candidates.begin(); each != last; ++each) shed(each->fd, known_[each->fd]);
}

void SocketWatch::sweepNow() {
  uint64_t now = base::nowNs();
  if (now - sweptNs_ < kSweepNs) return;
  sweptNs_ = now;
  std::lock_guard lock(mutex_);
  bool some = false;
  uint64_t most = uint64_t{bounds_.idleMs} * 1'000'000;
  for (auto& [fd, known] : known_) {
    if (known.isEnding() || !known.connection.isInbound) continue;
    // Whatever comes meanwhile: a byte now and then would keep a connection for ever.
    bool isOver;
    if (!known.connection.isUp)
      isOver = now - known.sinceNs > kPendingNs;
    else if (isStranger(known.connection))
      isOver = now - known.unknownSinceNs > most;
    else
      continue;
    if (isOver)
      shed(fd, known);
    else
      some = true;
  }
  hasStrangers_.store(some, std::memory_order_relaxed);
}

void SocketWatch::onHeld(Socket& socket) {
  bool held = socket.held != 0;
  socket.held = socket.filter.heldMessage();
  if (socket.held == 0) {
    --holding_;
    return;
  }
  socket.heldSinceNs = base::nowNs();
  if (!held && ++holding_ > bounds_.holding) endHolders();
}

/// Ends connections that have sent a part of a message and so keep a receive. Ends the half that
/// has done so longest, so that the next one need not be looked for soon.
void SocketWatch::endHolders() {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, int>> holders;
  for (auto& [fd, known] : known_) {
    Socket* socket = SocketTable::find(fd);
    if (socket != nullptr && socket->held != 0) holders.emplace_back(socket->heldSinceNs, fd);
  }
  auto half = holders.begin() + static_cast<ptrdiff_t>(holders.size() / 2);
  std::nth_element(holders.begin(), half, holders.end());
  for (auto each = holders.begin(); each != half; ++each) {
    Socket& socket = *SocketTable::find(each->second);
    socket.held = 0;
    --holding_;
    // Nothing that comes counts any more.
    socket.stage.store(Socket::Stage::bad, std::memory_order_release);
    shed(each->second, known_[each->second]);
  }
}

void SocketWatch::shed(int fd, Known& known) {
  end(fd, known);
  ++pending_.turned.shed;
  news_.store(true, std::memory_order_relaxed);
}

/// The provider sees the end of the connection at its next look, and closes it.
void SocketWatch::end(int fd, Known& known) {
  known.endedNs = base::nowNs();
  shutdown(fd, SHUT_RDWR);
}

void SocketWatch::onUnreachable(const Socket& socket, int code) {
  std::lock_guard lock(mutex_);
  if (pending_.unreachable.size() >= kMostUnreachable) return;
  // A connection that this side has ended says nothing about the peer, which may be about to
  // connect again.
  for (const auto& [fd, known] : known_) {
    if (known.isEnding() && known.connection.number == socket.number) return;
  }
  pending_.unreachable.push_back({addressOf(socket.peer), static_cast<uint32_t>(code)});
  news_.store(true, std::memory_order_relaxed);
}

void SocketWatch::onTurnedAway(int code, unsigned count) {
  std::lock_guard lock(mutex_);
  pending_.turned.away += count;
  pending_.turned.code = static_cast<uint32_t>(code);
  news_.store(true, std::memory_order_relaxed);
}

void SocketWatch::onMalformed() {
  std::lock_guard lock(mutex_);
  ++pending_.turned.malformed;
  news_.store(true, std::memory_order_relaxed);
}

}  // namespace cinnabar::tcp
