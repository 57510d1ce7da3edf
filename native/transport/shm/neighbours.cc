// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/neighbours.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor_reserve.h"
#include "fabric/memory.h"
#include "transport/shm/peer_credentials.h"
#include "transport/shm/process_memory.h"

namespace cinnabar::shm {
namespace {

// epoll's user data: a neighbour's id, or one of these.
constexpr uint64_t kListenEvent = UINT64_MAX;

// Connected sockets without a hello. More are a flood; the oldest is closed.
constexpr size_t kMostUnnamed = 64;
constexpr int kAcceptsAtOnce = 64;
constexpr int kEventsAtOnce = 64;
// Rings of one neighbour in one read. An honest neighbour rings once for each sleep.
constexpr int kRingsAtOnce = 8;

int watch(int epoll, int fd, uint64_t data) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = data;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

fabric::Result<std::unique_ptr<Neighbours>> Neighbours::open(ShmClaim& claim, Doorbell& doorbell,
                                                             KeyTable& keys, uint32_t slotBytes) {
  std::unique_ptr<Neighbours> opened(new Neighbours(claim, doorbell, keys, slotBytes));
  int epoll = opened->epoll_.get();
  if (epoll < 0 || watch(epoll, claim.socket(), kListenEvent) != 0) {
    int code = errno;
    return fabric::Failure{"epoll", code, strerror(code), "cannot watch the port's socket"};
  }
  return opened;
}

Neighbours::Neighbours(ShmClaim& claim, Doorbell& doorbell, KeyTable& keys, uint32_t slotBytes)
    : claim_(claim),
      doorbell_(doorbell),
      keys_(keys),
      slotBytes_(slotBytes),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      proof_(fabric::randomNumber()) {}

Neighbour* Neighbours::add(base::Fd socket, bool connected) {
  while (all_.count(nextId_) != 0 || nextId_ == 0) ++nextId_;
  auto neighbour = std::make_unique<Neighbour>();
  neighbour->process = credentialsOf(socket.get());
  if (!neighbour->process || !isTrusted(*neighbour->process)) return nullptr;
  if (watch(epoll_.get(), socket.get(), nextId_) != 0) return nullptr;
  neighbour->socket = std::move(socket);
  neighbour->connected = connected;
  neighbour->id = nextId_++;
  neighbour->order = ++clock_;
  ++meeting_;
  return (all_[neighbour->id] = std::move(neighbour)).get();
}

Neighbour* Neighbours::meet(const std::string& name, int* status) {
  // The neighbour may be connecting to us at this moment.
  acceptAll();
  std::vector<Neighbour*> unread;
  for (auto& [id, neighbour] : all_) {
    if (neighbour->state == Neighbour::State::waiting) unread.push_back(neighbour.get());
  }
  for (Neighbour* neighbour : unread) read(*neighbour);
  for (auto& [id, neighbour] : all_) {
    if (neighbour->isGone() || neighbour->name != name) continue;
    // Its socket may have ended since the last look.
    read(*neighbour);
    if (neighbour->isGone()) continue;
    ++neighbour->references;
    return neighbour.get();
  }

  if (all_.size() >= kMost) {
    *status = -FI_ENOSPC;
    return nullptr;
  }
  *status = -ECONNREFUSED;
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length = socketAddress(name, &address);
  if (!socket || connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    // EAGAIN: the owner lives, but its backlog is full. ENOENT: nothing lies at a path.
    if (errno != ECONNREFUSED && errno != ENOENT) *status = errno == EAGAIN ? -ENOBUFS : -errno;
    return nullptr;
  }
  Neighbour* neighbour = add(std::move(socket), true);
  if (neighbour == nullptr) return nullptr;
  neighbour->name = name;
  ++neighbour->references;
  if (!sayHello(*neighbour)) {
    if (!neighbour->inbound) *status = -errno;
    // The neighbour may have turned us away already, and sent the reason.
    read(*neighbour);
    if (neighbour->endStatus == EUSERS || neighbour->endStatus == EMFILE)
      *status = -static_cast<int>(neighbour->endStatus);
    neighbour->references = 0;
    end(*neighbour);
    return nullptr;
  }
  return neighbour;
}

void Neighbours::release(Neighbour* neighbour) {
  if (--neighbour->references == 0 && neighbour->isGone()) erase(*neighbour);
}

bool Neighbours::takeRings() {
  bool took = false;
  for (Neighbour* neighbour : readable_) {
    // `poll` handles ended sockets.
    if (neighbour->isReady() && neighbour->inbound->hasRecord())
      took = takeRing(neighbour->socket.get()) == RingTaken::ring || took;
  }
  return took;
}

void Neighbours::poll(std::vector<transport::Peer*>& gone) {
  epoll_event events[kEventsAtOnce];
  int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    uint64_t data = events[i].data.u64;
    if (data == kListenEvent) {
      acceptAll();
    } else {
      auto found = all_.find(static_cast<uint32_t>(data));
      if (found != all_.end()) read(*found->second);
    }
  }
  std::erase_if(ended_, [&](Neighbour* neighbour) {
    // Its last messages come first.
    if (!neighbour->isRead()) return false;
    std::erase(readable_, neighbour);
    neighbour->inbound.reset();
    if (neighbour->references > 0) {
      gone.push_back(neighbour);
    } else {
      all_.erase(neighbour->id);
    }
    return true;
  });
}

void Neighbours::erase(Neighbour& neighbour) {
  std::erase(readable_, &neighbour);
  std::erase(ended_, &neighbour);
  all_.erase(neighbour.id);
}

void Neighbours::acceptAll() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    base::Fd socket(accept4(claim_.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (base::lacksDescriptors(errno)) turnAway();
      return;
    }
    if (add(std::move(socket), false) == nullptr) continue;
    std::vector<Neighbour*> unnamed;
    for (auto& [id, neighbour] : all_) {
      if (neighbour->name.empty() && !neighbour->isGone()) unnamed.push_back(neighbour.get());
    }
    if (unnamed.size() <= kMostUnnamed) continue;
    auto oldest = std::min_element(unnamed.begin(), unnamed.end(),
                                   [](auto* a, auto* b) { return a->order < b->order; });
    end(**oldest);
  }
}

/// Answers connections for which no descriptor is left.
void Neighbours::turnAway() {
  int code = errno;
  HelloMessage message;
  message.kind = static_cast<uint32_t>(HelloKind::crowded);
  turned_.away += base::turnAway(claim_.socket(), [&](int fd) { sendHello(fd, message); });
  turned_.code = static_cast<uint32_t>(code);
}

/// More rings than that stay in the socket, which stays readable.
void Neighbours::readRings(Neighbour& neighbour) {
  for (int i = 0; i < kRingsAtOnce; ++i) {
    RingTaken taken = takeRing(neighbour.socket.get());
    if (taken == RingTaken::ended) end(neighbour);
    if (taken != RingTaken::ring) return;
  }
}

void Neighbours::read(Neighbour& neighbour) {
  if (neighbour.isReady()) return readRings(neighbour);
  while (neighbour.state == Neighbour::State::waiting) {
    Received received = receiveHello(neighbour.socket.get());
    switch (received.outcome) {
      case Received::Outcome::nothing:
        return;
      case Received::Outcome::garbage:
        // Without a free descriptor the kernel cuts off those of a hello.
        if (base::lacksDescriptors()) turnAway(neighbour);
        return end(neighbour);
      case Received::Outcome::otherVersion:
        refuse(neighbour, received.message);
        return end(neighbour);
      case Received::Outcome::closed:
        return end(neighbour);
      case Received::Outcome::message:
        break;
    }
    bool isCrowded = received.message.kind == static_cast<uint32_t>(HelloKind::crowded);
    if (isCrowded || received.message.kind == static_cast<uint32_t>(HelloKind::full)) {
      neighbour.endStatus = isCrowded ? EUSERS : ENOBUFS;
      return end(neighbour);
    }
    bool hello = received.message.kind == static_cast<uint32_t>(HelloKind::hello);
    bool isExpected = hello && neighbour.state == Neighbour::State::waiting;
    if (isExpected && greet(neighbour, received)) continue;
    if (hello && base::lacksDescriptors()) turnAway(neighbour);
    return end(neighbour);
  }
}

/// The same for an accepted connection that cannot become a neighbour.
void Neighbours::turnAway(Neighbour& neighbour) {
  if (neighbour.connected) {
    neighbour.endStatus = EMFILE;
    return;
  }
  sayNo(neighbour, HelloKind::crowded);
  ++turned_.away;
  turned_.code = EMFILE;
}

void Neighbours::sayNo(Neighbour& neighbour, HelloKind kind) {
  HelloMessage message;
  message.kind = static_cast<uint32_t>(kind);
  sendHello(neighbour.socket.get(), message);
}

/// The two ports have different layouts of the shared memory. The other side may be older, and read
/// only the stable words.
void Neighbours::refuse(Neighbour& neighbour, const HelloMessage& theirs) {
  neighbour.endStatus = EPROTONOSUPPORT;
  neighbour.endedDetail = theirs.version;
  if (theirs.kind != static_cast<uint32_t>(HelloKind::hello)) return;
  sayNo(neighbour, HelloKind::refused);
}

bool Neighbours::greet(Neighbour& neighbour, Received& received) {
  refuseDescriptors(neighbour.socket.get());
  const HelloMessage& message = received.message;
  if (neighbour.connected && neighbour.name != message.name) return false;
  if (readable_.size() >= kMost) {
    sayNo(neighbour, HelloKind::full);
    return false;
  }
  neighbour.doorbell = RemoteDoorbell::adopt(std::move(received.page), neighbour.socket.get());
  neighbour.keys = RemoteKeys::adopt(std::move(received.keys));
  neighbour.outbound = RingWriter::adopt(std::move(received.ring), message.ringBytes);
  if (!neighbour.doorbell || !neighbour.keys || !neighbour.outbound) return false;
  if (message.slotBytes > neighbour.outbound->mostRecordBytes()) return false;
  neighbour.copies = canCopy(neighbour.pid(), message.proofAt, message.proof);
  neighbour.name = message.name;
  neighbour.slotBytes = message.slotBytes;
  if (!neighbour.connected && !sayHello(neighbour)) return false;
  setState(neighbour, Neighbour::State::ready);
  readable_.push_back(&neighbour);
  return true;
}

bool Neighbours::sayHello(Neighbour& neighbour) {
  size_t ringBytes = ringBytesFor(slotBytes_);
  neighbour.inbound = RingReader::create(ringBytes);
  if (!neighbour.inbound) return false;
  // The peer tries a copy when it reads this.
  if (neighbour.pid() != getpid()) permitProcessCopies();
  HelloMessage message;
  message.kind = static_cast<uint32_t>(HelloKind::hello);
  message.slotBytes = slotBytes_;
  message.ringBytes = ringBytes;
  message.proof = proof_;
  message.proofAt = reinterpret_cast<uint64_t>(&proof_);
  claim_.name().copy(message.name, kPortNameMax);
  HelloDescriptors along{doorbell_.pageFd(), keys_.fd(), neighbour.inbound->fd()};
  bool isSent = sendHello(neighbour.socket.get(), message, along) == 0;
  // A peer costs one descriptor: the socket.
  neighbour.inbound->closeFd();
  return isSent;
}

void Neighbours::setState(Neighbour& neighbour, Neighbour::State state) {
  bool wasMeeting = neighbour.state < Neighbour::State::ready;
  neighbour.state = state;
  if (wasMeeting && state >= Neighbour::State::ready) --meeting_;
}

void Neighbours::end(Neighbour& neighbour) {
  if (neighbour.isGone()) return;
  setState(neighbour, Neighbour::State::gone);
  neighbour.ended = neighbour.endStatus;
  neighbour.socket.reset();  // leaves the epoll set with its last descriptor
  neighbour.doorbell.reset();
  neighbour.keys.reset();
  neighbour.outbound.reset();
  ended_.push_back(&neighbour);
}

void Neighbours::expel(Neighbour& neighbour) {
  std::erase(readable_, &neighbour);
  neighbour.inbound.reset();
  end(neighbour);
}

void Neighbours::expel(const UnderWay& copy) {
  auto found = all_.find(copy.neighbour);
  if (found != all_.end()) expel(*found->second);
}

std::vector<UnderWay> Neighbours::copiesUnderWay(pid_t holder) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::vector<UnderWay> under;
  for (const auto& [id, neighbour] : all_) {
    if (holder != 0 && neighbour->pid() != holder) continue;
    uint32_t seen = neighbour->doorbell ? neighbour->doorbell->copying() : 0;
    if (seen % 2 != 0) under.push_back({id, seen, neighbour->pid() == getpid()});
  }
  return under;
}

bool Neighbours::isCopying(const UnderWay& copy) const {
  auto found = all_.find(copy.neighbour);
  if (found == all_.end() || !found->second->doorbell) return false;
  return found->second->doorbell->copying() == copy.word;
}

}  // namespace cinnabar::shm
