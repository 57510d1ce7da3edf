// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <arpa/inet.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "test/harness.h"
#include "transport/tcp/local_connection.h"

using namespace cinnabar;
using namespace cinnabar::test;
using engine::Completion;
using fabric::Scheme;

namespace {

std::string controlOf(int fd) {
  char name[16] = {};
  socklen_t length = sizeof name;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return "";
  return name;
}

/// What everybody may choose beside Reno; empty where there is nothing else.
std::string otherControl() {
  std::ifstream allowed("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
  for (std::string name; allowed >> name;) {
    if (name != "reno") return name;
  }
  return "";
}

int socketWith(int family, const std::string& control) {
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control.c_str(),
             static_cast<socklen_t>(control.size()));
  return fd;
}

sockaddr_in6 loopback(int family, uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = static_cast<sa_family_t>(family);
  address.sin6_port = port;
  if (family == AF_INET6) {
    address.sin6_addr = in6addr_loopback;
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  return address;
}

}  // namespace

TEST_SUITE("tcp connections within the host") {
  TEST_CASE("are not paced, whatever the system's congestion control is") {
    std::string other = otherControl();
    if (other.empty()) return;
    for (int family : {AF_INET, AF_INET6}) {
      int listener = socketWith(family, other);
      sockaddr_in6 address = loopback(family, 0);
      socklen_t length = sizeof address;
      if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0) {
        // No IPv6 here.
        close(listener);
        continue;
      }
      REQUIRE(listen(listener, 1) == 0);
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
      int near = socketWith(family, other);
      REQUIRE(controlOf(near) == other);
      connect(near, reinterpret_cast<sockaddr*>(&address), sizeof address);
      errno = EINPROGRESS;
      tcp::unpaceIfLocal(near, address);
      CHECK(errno == EINPROGRESS);
      CHECK(controlOf(near) == "reno");
      close(near);
      close(listener);
    }
  }

  TEST_CASE("are told from those with other hosts") {
    std::string other = otherControl();
    if (other.empty()) return;
    // An address of a network that documents use: nobody answers, and nobody need.
    sockaddr_in6 address{};
    auto& elsewhere = reinterpret_cast<sockaddr_in&>(address);
    elsewhere.sin_family = AF_INET;
    elsewhere.sin_port = htons(9);
    inet_pton(AF_INET, "192.0.2.1", &elsewhere.sin_addr);
    int fd = socketWith(AF_INET, other);
    connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    tcp::unpaceIfLocal(fd, address);
    CHECK(controlOf(fd) == other);
    close(fd);
  }

  TEST_CASE("are those of two ports, at both ends") {
    if (!haveLibfabric()) return;
    TestPort a(Scheme::tcp), b(Scheme::tcp);
    REQUIRE(a.open());
    REQUIRE(b.open());
    REQUIRE(a.sendPattern(a.admit(b), 0, 1000, 1) >= 0);
    REQUIRE(eventually({&a, &b}, [&] { return b.messages.size() == 1; }));
    // All sockets of this process that are connected belong to the two ports.
    size_t ends = 0;
    DIR* folder = opendir("/proc/self/fd");
    REQUIRE(folder != nullptr);
    while (dirent* entry = readdir(folder)) {
      int fd = std::atoi(entry->d_name);
      sockaddr_in6 peer{};
      socklen_t length = sizeof peer;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
      if (peer.sin6_family != AF_INET) continue;
      ++ends;
      CHECK(controlOf(fd) == "reno");
    }
    closedir(folder);
    CHECK(ends >= 2);
  }
}
