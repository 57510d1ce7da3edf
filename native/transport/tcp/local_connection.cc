// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/tcp/local_connection.h"

#include <linux/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace cinnabar::tcp {
namespace {

constexpr std::string_view kUnpaced = "reno";

/// The host of an address of either version, without the port; `Bytes` lie at `offset`.
template <size_t Offset, size_t Bytes>
bool isSameHost(const sockaddr_in6& one, const sockaddr_in6& other) {
  auto bytesOf = [](const sockaddr_in6& address) {
    return reinterpret_cast<const char*>(&address) + Offset;
  };
  return std::memcmp(bytesOf(one), bytesOf(other), Bytes) == 0;
}

/// Whether this end's address is the other end's: the kernel takes such a connection through
/// loopback, whatever device the address belongs to.
bool isLocal(int fd, const sockaddr_in6& peer) {
  sockaddr_in6 own{};
  socklen_t length = sizeof own;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
  if (own.sin6_family != peer.sin6_family) return false;
  if (own.sin6_family == AF_INET6)
    return isSameHost<offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr)>(own, peer);
  return own.sin6_family == AF_INET &&
         isSameHost<offsetof(sockaddr_in, sin_addr), sizeof(in_addr)>(own, peer);
}

}  // namespace

void unpaceIfLocal(int fd, const sockaddr_in6& peer) {
  int code = errno;
  if (isLocal(fd, peer))
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
  errno = code;
}

}  // namespace cinnabar::tcp
