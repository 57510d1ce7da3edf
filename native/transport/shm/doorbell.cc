// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/doorbell.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>

#include "transport/shm/sealed_memory.h"

namespace cinnabar::shm {
namespace {

DoorbellPage* map(int fd, int protection) {
  void* page = mmap(nullptr, kDoorbellBytes, protection, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : static_cast<DoorbellPage*>(page);
}

}  // namespace

std::unique_ptr<Doorbell> Doorbell::create() {
  base::Fd page(memfd_create("cinnabar-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!page) return nullptr;
  if (ftruncate(page.get(), kDoorbellBytes) != 0) return nullptr;
  // Mapped before the seal, after which no writable mapping can be made.
  DoorbellPage* mapped = map(page.get(), PROT_READ | PROT_WRITE);
  if (mapped == nullptr) return nullptr;
  std::unique_ptr<Doorbell> doorbell(new Doorbell(std::move(page), mapped));
  int seals = kSealedSize | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  return fcntl(doorbell->pageFd(), F_ADD_SEALS, seals) == 0 ? std::move(doorbell) : nullptr;
}

Doorbell::~Doorbell() { munmap(page_, kDoorbellBytes); }

RingTaken takeRing(int socket) {
  char packet;
  // The true length of a longer packet.
  ssize_t got = recv(socket, &packet, sizeof packet, MSG_DONTWAIT | MSG_TRUNC);
  if (got == sizeof packet) return RingTaken::ring;
  bool later = got < 0 && (errno == EAGAIN || errno == EINTR);
  return later ? RingTaken::none : RingTaken::ended;
}

std::unique_ptr<RemoteDoorbell> RemoteDoorbell::adopt(base::Fd page, int socket) {
  struct stat info;
  int seals = fcntl(page.get(), F_GET_SEALS);
  if (seals < 0 || !isOwnersAlone(seals)) return nullptr;
  if (fstat(page.get(), &info) != 0 || info.st_size != static_cast<off_t>(kDoorbellBytes))
    return nullptr;
  DoorbellPage* mapped = map(page.get(), PROT_READ);
  if (mapped == nullptr) return nullptr;
  return std::unique_ptr<RemoteDoorbell>(new RemoteDoorbell(socket, mapped));
}

RemoteDoorbell::~RemoteDoorbell() { munmap(const_cast<DoorbellPage*>(page_), kDoorbellBytes); }

void RemoteDoorbell::send() {
  // EAGAIN means that the socket is full of unread rings, which wake just as well.
  char ring = 1;
  [[maybe_unused]] ssize_t sent = ::send(socket_, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace cinnabar::shm
