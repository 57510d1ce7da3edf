// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/neighbours.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor_reserve.h"
#include "fabric/library.h"
#include "fabric/memory.h"
#include "fabric/shm_room.h"
#include "transport/shm/peer_credentials.h"
#include "transport/shm/process_memory.h"

namespace cinnabar::shm {
namespace {

// epoll's user data: a neighbour's id, or one of these.
constexpr uint64_t kDoorbellEvent = UINT64_MAX;
constexpr uint64_t kListenEvent = UINT64_MAX - 1;

// Sockets that connected and said nothing yet. More are a flood; the oldest goes.
constexpr size_t kMostUnnamed = 64;
constexpr int kAcceptsAtOnce = 64;
constexpr int kEventsAtOnce = 64;

int watch(int epoll, int fd, uint64_t data) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = data;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

fabric::Result<std::unique_ptr<Neighbours>> Neighbours::open(ShmClaim& claim, Doorbell& doorbell,
                                                             KeyTable& keys, Mappings& mappings,
                                                             uint32_t slotBytes) {
  std::unique_ptr<Neighbours> opened(new Neighbours(claim, doorbell, keys, mappings, slotBytes));
  int epoll = opened->epoll_.get();
  if (epoll < 0 || watch(epoll, doorbell.eventFd(), kDoorbellEvent) != 0 ||
      watch(epoll, claim.socket(), kListenEvent) != 0) {
    int code = errno;
    return fabric::Failure{"epoll", code, strerror(code), "cannot watch the doorbell"};
  }
  return opened;
}

Neighbours::Neighbours(ShmClaim& claim, Doorbell& doorbell, KeyTable& keys, Mappings& mappings,
                       uint32_t slotBytes)
    : claim_(claim),
      doorbell_(doorbell),
      keys_(keys),
      mappings_(mappings),
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
    // Its socket may have ended since it was last looked at.
    read(*neighbour);
    if (neighbour->isGone()) continue;
    ++neighbour->references;
    return neighbour.get();
  }

  *status = -ECONNREFUSED;
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length = socketAddress(name, &address);
  if (!socket || connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    // EAGAIN: the owner lives, but its backlog is full.
    if (errno != ECONNREFUSED) *status = errno == EAGAIN ? -ENOBUFS : -errno;
    return nullptr;
  }
  Neighbour* neighbour = add(std::move(socket), true);
  if (neighbour == nullptr) return nullptr;
  neighbour->name = name;
  ++neighbour->references;
  if (!sayHello(*neighbour, HelloKind::hello)) {
    // It may have been turned away already, and told why.
    read(*neighbour);
    if (neighbour->endStatus == EUSERS) *status = -EUSERS;
    neighbour->references = 0;
    end(*neighbour);
    return nullptr;
  }
  return neighbour;
}

void Neighbours::release(Neighbour* neighbour) {
  if (--neighbour->references > 0 || !neighbour->isGone()) return;
  std::erase(ended_, neighbour);
  erase(*neighbour);
}

void Neighbours::poll(std::vector<transport::Peer*>& gone) {
  epoll_event events[kEventsAtOnce];
  int count = epoll_wait(epoll_.get(), events, kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    uint64_t data = events[i].data.u64;
    if (data == kDoorbellEvent) {
      doorbell_.drain();
    } else if (data == kListenEvent) {
      acceptAll();
    } else {
      auto found = all_.find(static_cast<uint32_t>(data));
      if (found != all_.end()) read(*found->second);
    }
  }
  for (Neighbour* neighbour : ended_) {
    if (neighbour->references > 0) {
      gone.push_back(neighbour);
    } else {
      erase(*neighbour);
    }
  }
  ended_.clear();
}

void Neighbours::erase(Neighbour& neighbour) {
  if (reaper_) reaper_->forget(neighbour.id);
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

/// Answers those for whom there is no descriptor.
void Neighbours::turnAway() {
  int code = errno;
  HelloMessage message;
  message.kind = static_cast<uint32_t>(HelloKind::crowded);
  turned_.away += base::turnAway(claim_.socket(), [&](int fd) {
    // Read first: a message that is left unread would reset the connection, and hide the answer.
    char asked[1];
    (void)!recv(fd, asked, sizeof asked, MSG_DONTWAIT);
    sendHello(fd, message);
  });
  turned_.code = static_cast<uint32_t>(code);
}

void Neighbours::read(Neighbour& neighbour) {
  while (!neighbour.isGone()) {
    Received received = receiveHello(neighbour.socket.get());
    switch (received.outcome) {
      case Received::Outcome::nothing:
        return;
      case Received::Outcome::garbage:
        // What comes with a hello is cut off where it finds no descriptor.
        if (base::lacksDescriptors()) turnAway(neighbour);
        return end(neighbour);
      case Received::Outcome::closed:
        return end(neighbour);
      case Received::Outcome::message:
        break;
    }
    if (received.message.kind == static_cast<uint32_t>(HelloKind::refused)) {
      neighbour.endStatus = EPROTONOSUPPORT;
      return end(neighbour);
    }
    if (received.message.kind == static_cast<uint32_t>(HelloKind::crowded)) {
      neighbour.endStatus = EUSERS;
      return end(neighbour);
    }
    bool hello = received.message.kind == static_cast<uint32_t>(HelloKind::hello);
    bool good = false;
    if (hello && neighbour.state == Neighbour::State::waiting) {
      good = greet(neighbour, received);
    } else if (!hello && neighbour.state == Neighbour::State::mapped) {
      setState(neighbour, Neighbour::State::ready);
      good = true;
    }
    if (good) continue;
    if (hello && neighbour.endStatus != EPROTONOSUPPORT && base::lacksDescriptors())
      turnAway(neighbour);
    return end(neighbour);
  }
}

/// The same for one that was accepted, and cannot be met.
void Neighbours::turnAway(Neighbour& neighbour) {
  if (neighbour.connected) {
    neighbour.endStatus = EMFILE;
    return;
  }
  sayHello(neighbour, HelloKind::crowded);
  ++turned_.away;
  turned_.code = EMFILE;
}

bool Neighbours::greet(Neighbour& neighbour, Received& received) {
  const HelloMessage& message = received.message;
  if (neighbour.connected && neighbour.name != message.name) return false;
  if (message.libfabric != fabric::library()->loadedVersion) {
    neighbour.endStatus = EPROTONOSUPPORT;
    sayHello(neighbour, HelloKind::refused);
    return false;
  }
  neighbour.doorbell = RemoteDoorbell::adopt(std::move(received.page), std::move(received.event));
  neighbour.keys = RemoteKeys::adopt(std::move(received.keys));
  if (!neighbour.doorbell || !neighbour.keys) return false;
  // For a port of this process the provider uses the port's own mapping, which must stay until we
  // are through with it.
  EndpointLease local;
  if (neighbour.pid() == getpid()) {
    local = SharedEndpoint::lease(message.fabricName);
    if (!local) return false;
  }
  {
    // The file must be there until the provider has mapped it.
    base::Fd held = holdRegionFile(message.name, message.fabricName);
    if (!held) return false;
    if (neighbour.pid() != getpid()) {
      if (!reaper_) reaper_ = StaleLockReaper::create(claim_.regionFile());
      if (reaper_) reaper_->watch(neighbour.id, neighbour.pid(), held.get());
    }
    neighbour.copies = canCopy(neighbour.pid(), message.proofAt, message.proof);
    // The provider copies then, through buffers in the peer's region.
    if (!neighbour.copies && fabric::reserveCopies(held.get()) != 0) {
      neighbour.endStatus = ENOSPC;
      return false;
    }
    neighbour.mapping = mappings_.map(message.fabricName, std::move(local));
  }
  if (!neighbour.mapping) return false;
  neighbour.address = neighbour.mapping->address;
  neighbour.name = message.name;
  neighbour.theirId = message.senderId;
  neighbour.slotBytes = message.slotBytes;
  setState(neighbour, neighbour.connected ? Neighbour::State::ready : Neighbour::State::mapped);
  return sayHello(neighbour, neighbour.connected ? HelloKind::mapped : HelloKind::hello);
}

bool Neighbours::sayHello(Neighbour& neighbour, HelloKind kind) {
  HelloMessage message;
  message.kind = static_cast<uint32_t>(kind);
  message.libfabric = fabric::library()->loadedVersion;
  if (kind != HelloKind::hello) return sendHello(neighbour.socket.get(), message) == 0;
  // The peer tries a copy when it reads this.
  if (neighbour.pid() != getpid()) permitProcessCopies();
  message.senderId = neighbour.id;
  message.slotBytes = slotBytes_;
  message.proof = proof_;
  message.proofAt = reinterpret_cast<uint64_t>(&proof_);
  claim_.name().copy(message.name, kPortNameMax);
  claim_.fabricName().copy(message.fabricName, kFabricNameMax);
  return sendHello(neighbour.socket.get(), message,
                   {doorbell_.pageFd(), doorbell_.eventFd(), keys_.fd()}) == 0;
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
  ended_.push_back(&neighbour);
  ++endings_;
}

void Neighbours::ringAll() {
  for (auto& [id, neighbour] : all_) {
    if (neighbour->doorbell) neighbour->doorbell->ring();
  }
}

std::vector<UnderWay> Neighbours::underWay(Word word) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::vector<UnderWay> all;
  for (const auto& [id, neighbour] : all_) {
    uint32_t seen = neighbour->doorbell ? (*neighbour->doorbell.*word)() : 0;
    if (seen % 2 != 0) all.push_back({id, seen});
  }
  return all;
}

bool Neighbours::isUnderWay(const UnderWay& seen, Word word) const {
  auto found = all_.find(seen.neighbour);
  if (found == all_.end() || !found->second->doorbell) return false;
  return (*found->second->doorbell.*word)() == seen.word;
}

Neighbour* Neighbours::findById(uint32_t id) {
  auto found = all_.find(id);
  return found == all_.end() ? nullptr : found->second.get();
}

}  // namespace cinnabar::shm
