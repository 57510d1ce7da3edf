// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/doorbell.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <string_view>

#include "transport/shm/sealed_memory.h"

namespace cinnabar::shm {
namespace {

DoorbellPage* map(int fd, int protection) {
  void* page = mmap(nullptr, kDoorbellBytes, protection, MAP_SHARED, fd, 0);
  return page == MAP_FAILED ? nullptr : static_cast<DoorbellPage*>(page);
}

// A blocking file in the eventfd's place would let a peer stop us in write(2).
bool isEventFd(int fd) {
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  char target[64];
  ssize_t length = readlink(path, target, sizeof target);
  return length > 0 &&
         std::string_view(target, static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

}  // namespace

std::unique_ptr<Doorbell> Doorbell::create() {
  base::Fd page(memfd_create("cinnabar-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  base::Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!page || !event) return nullptr;
  if (ftruncate(page.get(), kDoorbellBytes) != 0) return nullptr;
  // Mapped before the seal, after which no writable mapping can be made.
  DoorbellPage* mapped = map(page.get(), PROT_READ | PROT_WRITE);
  if (mapped == nullptr) return nullptr;
  std::unique_ptr<Doorbell> doorbell(new Doorbell(std::move(page), std::move(event), mapped));
  int seals = kSealedSize | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  return fcntl(doorbell->pageFd(), F_ADD_SEALS, seals) == 0 ? std::move(doorbell) : nullptr;
}

Doorbell::~Doorbell() { munmap(page_, kDoorbellBytes); }

bool Doorbell::drain() {
  uint64_t count;
  return read(eventFd_.get(), &count, sizeof count) > 0;
}

std::unique_ptr<RemoteDoorbell> RemoteDoorbell::adopt(base::Fd page, base::Fd event) {
  struct stat info;
  int seals = fcntl(page.get(), F_GET_SEALS);
  if (seals < 0 || !isOwnersAlone(seals)) return nullptr;
  if (fstat(page.get(), &info) != 0 || info.st_size != static_cast<off_t>(kDoorbellBytes))
    return nullptr;
  if (!isEventFd(event.get())) return nullptr;
  int flags = fcntl(event.get(), F_GETFL);
  if (flags < 0 || fcntl(event.get(), F_SETFL, flags | O_NONBLOCK) != 0) return nullptr;
  DoorbellPage* mapped = map(page.get(), PROT_READ);
  if (mapped == nullptr) return nullptr;
  return std::unique_ptr<RemoteDoorbell>(new RemoteDoorbell(std::move(event), mapped));
}

RemoteDoorbell::~RemoteDoorbell() { munmap(const_cast<DoorbellPage*>(page_), kDoorbellBytes); }

void RemoteDoorbell::write() {
  // EAGAIN means that the counter is full of unread rings, which wakes just as well.
  uint64_t one = 1;
  [[maybe_unused]] ssize_t wrote = ::write(eventFd_.get(), &one, sizeof one);
}

}  // namespace cinnabar::shm
