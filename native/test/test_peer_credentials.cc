// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "transport/shm/peer_credentials.h"

using namespace cinnabar;

namespace {

const std::string kEverybody = "         0          0 4294967295\n";

TEST_SUITE("peer credentials") {
  TEST_CASE("the kernel names the process at the other end of a socket") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    base::Fd one(ends[0]), other(ends[1]);
    auto who = shm::credentialsOf(one.get());
    REQUIRE(who);
    CHECK(who->uid == geteuid());
    CHECK(who->gid == getegid());
    CHECK(who->pid == getpid());
    CHECK(shm::isTrusted(*who));
    CHECK_FALSE(shm::credentialsOf(-1));
  }

  TEST_CASE("another user is not trusted, root is") {
    CHECK(shm::isTrusted({0, 0, 1}));
    CHECK_FALSE(shm::isTrusted({geteuid() + 1, 0, 1}));
  }

  TEST_CASE("a uid that stands for everybody outside of the namespace proves nothing") {
    CHECK_FALSE(shm::isAmbiguous(65534, kEverybody));
    CHECK(shm::isAmbiguous(65534, ""));
    CHECK(shm::isAmbiguous(65534, "0 1000 1\n"));
    CHECK(shm::isAmbiguous(65534, "0 1000 1\n1 100000 65536\n"));
    CHECK(shm::isAmbiguous(65534, "0 1000 65536\n"));
    CHECK_FALSE(shm::isAmbiguous(0, ""));
    CHECK_FALSE(shm::isAmbiguous(1000, "0 1000 1\n"));
  }
}

}  // namespace
