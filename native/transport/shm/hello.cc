// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/hello.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "fabric/address.h"

namespace cinnabar::shm {
namespace {

#ifdef SO_PASSRIGHTS
constexpr int kPassRights = SO_PASSRIGHTS;
#else
constexpr int kPassRights = 83;
#endif

constexpr size_t kDescriptors = 3;
// Room for the kernel's own limit (SCM_MAX_FD), so that no descriptor is lost in a truncated
// control message.
constexpr size_t kMostDescriptors = 253;

bool endsWithin(const char* text, size_t room) { return memchr(text, 0, room) != nullptr; }

}  // namespace

bool HelloMessage::isSound() const {
  if (magic != kMagic || version != kVersion) return false;
  if (kind == static_cast<uint32_t>(HelloKind::refused) ||
      kind == static_cast<uint32_t>(HelloKind::crowded) ||
      kind == static_cast<uint32_t>(HelloKind::full)) {
    return true;
  }
  if (kind != static_cast<uint32_t>(HelloKind::hello)) return false;
  return endsWithin(name, sizeof name) && slotBytes > 0 && fabric::isShmName(name);
}

int sendHello(int socket, const HelloMessage& message, const HelloDescriptors& along) {
  iovec data{const_cast<HelloMessage*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (along.page >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(kDescriptors * sizeof(int));
    int descriptors[kDescriptors] = {along.page, along.keys, along.ring};
    memcpy(CMSG_DATA(rights), descriptors, sizeof descriptors);
  }
  ssize_t sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(sizeof message) ? 0 : errno;
}

void refuseDescriptors(int socket) {
  int no = 0;
  setsockopt(socket, SOL_SOCKET, kPassRights, &no, sizeof no);
}

Received receiveHello(int socket) {
  Received result;
  // One byte more than a message, to notice a longer one.
  char bytes[sizeof(HelloMessage) + 1];
  iovec data{bytes, sizeof bytes};
  std::vector<char> control(CMSG_SPACE(kMostDescriptors * sizeof(int)) + alignof(cmsghdr));
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // The peer has closed its end and left our hello unread. Linux reports that once, ahead of the
  // peer's last message.
  if (got < 0 && errno == ECONNRESET)
    got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    result.outcome = later ? Received::Outcome::nothing : Received::Outcome::closed;
    return result;
  }
  std::vector<base::Fd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  // A zero read is the end of the connection; a zero-length packet looks the same and is no message
  // of ours either.
  if (got == 0) {
    result.outcome = Received::Outcome::closed;
    return result;
  }
  result.outcome = Received::Outcome::garbage;
  if (got < static_cast<ssize_t>(HelloMessage::kStableBytes)) return result;
  memcpy(static_cast<void*>(&result.message), bytes, HelloMessage::kStableBytes);
  if (result.message.magic != HelloMessage::kMagic) return result;
  if (result.message.version != HelloMessage::kVersion) {
    result.outcome = Received::Outcome::otherVersion;
    return result;
  }
  if (got != sizeof(HelloMessage) || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return result;
  memcpy(&result.message, bytes, sizeof result.message);
  if (!result.message.isSound()) return result;
  bool hello = result.message.kind == static_cast<uint32_t>(HelloKind::hello);
  if (descriptors.size() != (hello ? kDescriptors : 0)) return result;
  if (hello) {
    result.page = std::move(descriptors[0]);
    result.keys = std::move(descriptors[1]);
    result.ring = std::move(descriptors[2]);
  }
  result.outcome = Received::Outcome::message;
  return result;
}

}  // namespace cinnabar::shm
