// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/kernel_version.h"
#include "test/harness.h"
#include "transport/shm/byte_ring.h"
#include "transport/shm/claim.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/hello.h"
#include "transport/shm/keys.h"
#include "transport/shm/neighbours.h"

using namespace cinnabar;
using namespace cinnabar::test;
using namespace cinnabar::engine;
using namespace cinnabar::shm;
using base::Fd;
using fabric::Scheme;

namespace {

int openDescriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

Fd connectTo(const std::string& name) {
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length = socketAddress(name, &address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return Fd();
  return socket;
}

bool wasDropped(TestPort& port, const Fd& socket) {
  char byte;
  return eventually({&port}, [&] {
    ssize_t got = recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  });
}

}  // namespace

TEST_SUITE("doorbell") {
  struct DoorbellFixture {
    DoorbellFixture() { REQUIRE(haveLibfabric()); }
  };

  TEST_CASE("a doorbell writes only to a sleeper, once for each peer and sleep") {
    auto doorbell = Doorbell::create();
    REQUIRE(doorbell);
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    Fd near(sockets[0]), far(sockets[1]);
    auto adopt = [&] { return RemoteDoorbell::adopt(Fd(dup(doorbell->pageFd())), far.get()); };
    auto one = adopt(), two = adopt();
    REQUIRE(one);
    REQUIRE(two);
    one->ring();
    CHECK(takeRing(near.get()) == RingTaken::none);
    doorbell->fallAsleep();
    doorbell->fallAsleep();
    one->ring();
    one->ring();
    CHECK(takeRing(near.get()) == RingTaken::ring);
    CHECK(takeRing(near.get()) == RingTaken::none);
    two->ring();
    CHECK(takeRing(near.get()) == RingTaken::ring);
    doorbell->wake();
    one->ring();
    CHECK(takeRing(near.get()) == RingTaken::none);
    doorbell->fallAsleep();
    one->ring();
    CHECK(takeRing(near.get()) == RingTaken::ring);
    send(far.get(), "two", 2, 0);
    CHECK(takeRing(near.get()) == RingTaken::ended);
    far.reset();
    CHECK(takeRing(near.get()) == RingTaken::ended);
  }

  TEST_CASE("a ring to a peer that takes none returns, though the sockets block") {
    auto doorbell = Doorbell::create();
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    Fd near(sockets[0]), far(sockets[1]);
    auto remote = RemoteDoorbell::adopt(Fd(dup(doorbell->pageFd())), far.get());
    REQUIRE(remote);
    // Far more than the socket holds.
    for (int i = 0; i < 100'000; ++i) {
      doorbell->fallAsleep();
      remote->ring();
      doorbell->wake();
    }
    uint32_t taken = 0;
    while (takeRing(near.get()) == RingTaken::ring) ++taken;
    CHECK(taken > 0);
    CHECK(taken < 100'000);
  }

  TEST_CASE("a doorbell shows that a copy is under way, and each by a number of its own") {
    auto doorbell = Doorbell::create();
    auto remote = RemoteDoorbell::adopt(Fd(dup(doorbell->pageFd())), -1);
    REQUIRE(remote);
    CHECK(remote->copying() % 2 == 0);
    doorbell->beginCopy();
    uint32_t first = remote->copying();
    CHECK(first % 2 == 1);
    doorbell->beginCopy();
    doorbell->endCopy();
    CHECK(remote->copying() == first);
    doorbell->endCopy();
    CHECK(remote->copying() % 2 == 0);
    doorbell->beginCopy();
    CHECK(remote->copying() % 2 == 1);
    CHECK(remote->copying() != first);
  }

  TEST_CASE("a refusal is read from a peer that has left the hello unread and closed its end") {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    Fd near(sockets[0]), far(sockets[1]);
    HelloMessage message;
    message.kind = static_cast<uint32_t>(HelloKind::hello);
    REQUIRE(sendHello(near.get(), message) == 0);
    message.kind = static_cast<uint32_t>(HelloKind::crowded);
    REQUIRE(sendHello(far.get(), message) == 0);
    far.reset();
    Received answer = receiveHello(near.get());
    CHECK(answer.outcome == Received::Outcome::message);
    CHECK(answer.message.kind == static_cast<uint32_t>(HelloKind::crowded));
    CHECK(receiveHello(near.get()).outcome == Received::Outcome::closed);
  }

  TEST_CASE("a socket that takes no descriptors any more refuses them at their sender") {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
    Fd near(sockets[0]), far(sockets[1]);
    HelloMessage message;
    message.kind = static_cast<uint32_t>(HelloKind::hello);
    HelloDescriptors along{near.get(), near.get(), near.get()};
    REQUIRE(sendHello(far.get(), message, along) == 0);
    REQUIRE(receiveHello(near.get()).outcome != Received::Outcome::nothing);
    refuseDescriptors(near.get());
    // Kernels before 6.16 take them.
    utsname system;
    REQUIRE(uname(&system) == 0);
    bool refuses = base::kernelVersion(system.release) >= base::KernelVersion{6, 16};
    CHECK(sendHello(far.get(), message, along) == (refuses ? EPERM : 0));
  }

  TEST_CASE("descriptors that are no doorbell are refused, and closed") {
    int before = openDescriptors();
    auto doorbell = Doorbell::create();
    auto adopt = [&](int page) { return RemoteDoorbell::adopt(Fd(page), -1) != nullptr; };
    auto memory = [](off_t size, int seals) {
      int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      if (ftruncate(fd, size) != 0) return -1;
      if (seals != 0) fcntl(fd, F_ADD_SEALS, seals);
      return fd;
    };
    constexpr int kFixed = F_SEAL_SHRINK | F_SEAL_GROW, kSealed = kFixed | F_SEAL_FUTURE_WRITE;
    CHECK_FALSE(adopt(memory(4096, 0)));       // could shrink: SIGBUS
    CHECK_FALSE(adopt(memory(4096, kFixed)));  // others could write
    CHECK_FALSE(adopt(memory(100, kSealed)));  // too small
    CHECK_FALSE(adopt(open("/dev/null", O_RDWR | O_CLOEXEC)));
    CHECK_FALSE(adopt(-1));
    CHECK(adopt(memory(4096, kSealed)));
    doorbell.reset();
    CHECK(openDescriptors() == before);
  }

  TEST_CASE_FIXTURE(DoorbellFixture,
                    "garbage on the socket costs that socket only, and no descriptor") {
    TestPort port(Scheme::shm, own("hostile-target")), peer(Scheme::shm);
    REQUIRE(port.open());
    REQUIRE(peer.open());
    int to = peer.admit(port);
    peer.sendPattern(to, 0, 8, 1);
    REQUIRE(eventually({&port, &peer}, [&] { return port.messages.size() == 1; }));
    int before = openDescriptors();
    auto doorbell = Doorbell::create();

    HelloMessage good;
    good.kind = static_cast<uint32_t>(HelloKind::hello);
    good.slotBytes = 1024;
    good.ringBytes = kLeastRingBytes;
    strcpy(good.name, "somebody");
    auto bytes = [](const Fd& socket, size_t length) {
      std::vector<char> data(length, 'x');
      send(socket.get(), data.data(), length, MSG_NOSIGNAL);
    };
    auto keys = KeyTable::create();
    auto ring = RingReader::create(kLeastRingBytes);
    auto hello = [&](const Fd& socket, auto&& change, int page) {
      HelloMessage message = good;
      change(message);
      sendHello(socket.get(), message, {page, keys->fd(), ring->fd()});
    };
    auto same = [](HelloMessage&) {};
    std::vector<std::function<void(const Fd&)>> attacks = {
        [&](const Fd& s) { bytes(s, 1); },
        [&](const Fd& s) { bytes(s, sizeof(HelloMessage)); },
        [&](const Fd& s) { bytes(s, sizeof(HelloMessage) + 1); },
        [&](const Fd& s) { bytes(s, 60000); },
        [&](const Fd& s) { hello(s, same, -1); },
        [&](const Fd& s) { hello(s, same, s.get()); },
        [&](const Fd& s) { hello(s, same, keys->fd()); },
        [&](const Fd& s) {
          sendHello(s.get(), good, {doorbell->pageFd(), doorbell->pageFd(), ring->fd()});
        },
        [&](const Fd& s) {
          sendHello(s.get(), good, {doorbell->pageFd(), keys->fd(), keys->fd()});
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.ringBytes *= 2; }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.ringBytes = 0; }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.slotBytes = kLeastRingBytes; }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.version = 9; }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.kind = 9; }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.kind = 2; }, -1);
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { m.kind = 2; }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          hello(
              s, [](auto& m) { memset(m.name, 'a', sizeof m.name); }, doorbell->pageFd());
        },
        [&](const Fd& s) {
          // More descriptors than anybody asked for.
          char control[CMSG_SPACE(100 * sizeof(int))] = {};
          iovec data{&good, sizeof good};
          msghdr header{};
          header.msg_iov = &data;
          header.msg_iovlen = 1;
          header.msg_control = control;
          header.msg_controllen = sizeof control;
          cmsghdr* part = CMSG_FIRSTHDR(&header);
          part->cmsg_level = SOL_SOCKET;
          part->cmsg_type = SCM_RIGHTS;
          part->cmsg_len = CMSG_LEN(100 * sizeof(int));
          for (int i = 0; i < 100; ++i) {
            int fd = doorbell->pageFd();
            memcpy(CMSG_DATA(part) + static_cast<size_t>(i) * sizeof fd, &fd, sizeof fd);
          }
          sendmsg(s.get(), &header, MSG_NOSIGNAL);
        },
    };
    for (size_t i = 0; i < attacks.size(); ++i) {
      CAPTURE(i);
      Fd socket = connectTo(own("hostile-target"));
      REQUIRE(socket);
      attacks[i](socket);
      CHECK(wasDropped(port, socket));
    }
    // Connections that never say anything are bounded: the oldest goes.
    std::vector<Fd> silent;
    for (int i = 0; i < 100; ++i) {
      silent.push_back(connectTo(own("hostile-target")));
      port.turn();
    }
    CHECK(wasDropped(port, silent[0]));
    silent.clear();
    doorbell.reset();
    keys.reset();
    ring.reset();
    CHECK(eventually({&port, &peer}, [&] { return openDescriptors() == before; }));
    peer.sendPattern(to, 0, 8, 2);
    CHECK(eventually({&port, &peer}, [&] { return port.messages.size() == 2; }));
    CHECK(peer.count(Completion::peerGone) == 0);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a hello of another version is refused with ours") {
    TestPort port(Scheme::shm, own("one-version"));
    REQUIRE(port.open());
    Fd socket = connectTo(own("one-version"));
    REQUIRE(socket);
    // Shorter than ours, as an older one may be.
    uint32_t older[] = {HelloMessage::kMagic, HelloMessage::kVersion - 1,
                        static_cast<uint32_t>(HelloKind::hello), 0};
    REQUIRE(send(socket.get(), older, sizeof older, 0) == sizeof older);
    Received answer;
    CHECK(eventually({&port}, [&] {
      answer = receiveHello(socket.get());
      return answer.outcome != Received::Outcome::nothing;
    }));
    CHECK(answer.outcome == Received::Outcome::message);
    CHECK(answer.message.kind == static_cast<uint32_t>(HelloKind::refused));
    CHECK(answer.message.version == HelloMessage::kVersion);
    CHECK(wasDropped(port, socket));
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "who is refused by another version hears which it is") {
    Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    socklen_t length = socketAddress(own("other-version"), &address);
    REQUIRE(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    TestPort port(Scheme::shm);
    REQUIRE(port.open());
    fabric::RawAddress other = fabric::encodeShmAddress(own("other-version"));
    int to = port.port->admit(other.data(), other.size());
    REQUIRE(to >= 0);
    port.sendPattern(to, 0, 8, 1);
    Fd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(accepted);
    HelloMessage refusal;
    refusal.version = HelloMessage::kVersion + 3;
    refusal.kind = static_cast<uint32_t>(HelloKind::refused);
    sendHello(accepted.get(), refusal);
    CHECK(eventually({&port}, [&] { return port.count(Completion::peerGone) == 1; }));
    REQUIRE(port.last(Completion::sent) != nullptr);
    CHECK(port.last(Completion::sent)->status == EPROTONOSUPPORT);
    CHECK(port.last(Completion::sent)->providerError == refusal.version);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a name has one owner at a time") {
    TestPort first(Scheme::shm, own("one-owner")), second(Scheme::shm, own("one-owner"));
    REQUIRE(first.open());
    CHECK_FALSE(second.open());
    CHECK(second.failure.code == EADDRINUSE);
    CHECK(second.failure.message.find("already in use") != std::string::npos);
    first.port->close();
    CHECK(second.open());
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a path has one owner at a time, and lets peers meet") {
    std::string path = "/tmp/" + own("path") + ".sock";
    TestPort first(Scheme::shm, path), second(Scheme::shm, path), peer(Scheme::shm);
    REQUIRE(first.open());
    CHECK_FALSE(second.open());
    CHECK(second.failure.code == EADDRINUSE);
    CHECK(second.failure.message.find("already in use") != std::string::npos);
    REQUIRE(peer.open());
    int to = peer.admit(first);
    REQUIRE(to >= 0);
    peer.sendPattern(to, 0, 8, 1);
    CHECK(eventually({&first, &peer}, [&] { return first.count(Completion::message) == 1; }));
    first.port->close();
    CHECK(access(path.c_str(), F_OK) != 0);
    CHECK(second.open());
    second.port->close();
    unlink((path + ".lock").c_str());
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a path takes the place of a dead owner's socket alone") {
    std::string path = "/tmp/" + own("stale") + ".sock";
    {
      Fd dead(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un address;
      socklen_t length = socketAddress(path, &address);
      REQUIRE(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
      REQUIRE(listen(dead.get(), 1) == 0);
      TestPort early(Scheme::shm, path);
      CHECK_FALSE(early.open());
    }
    TestPort port(Scheme::shm, path);
    CHECK(port.open());
    port.port->close();
    Fd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    TestPort other(Scheme::shm, path);
    CHECK_FALSE(other.open());
    CHECK(access(path.c_str(), F_OK) == 0);
    unlink(path.c_str());
    unlink((path + ".lock").c_str());
    TestPort nowhere(Scheme::shm, "/tmp/no-such-folder/" + own("path"));
    CHECK_FALSE(nowhere.open());
    CHECK(nowhere.failure.code == ENOENT);
    TestPort peer(Scheme::shm);
    REQUIRE(peer.open());
    fabric::RawAddress nobody = fabric::encodeShmAddress(path);
    CHECK(peer.port->admit(nobody.data(), nobody.size()) == -ECONNREFUSED);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a name whose owner is still opening is in use") {
    TestPort port(Scheme::shm, own("opening-name"));
    Fd owner(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    socklen_t length = socketAddress(own("opening-name"), &address);
    REQUIRE(bind(owner.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    // Long enough for many looks of the port that opens, and far below the time it waits.
    std::thread opening([&] {
      usleep(200'000);
      listen(owner.get(), 1);
    });
    CHECK_FALSE(port.open());
    opening.join();
    CHECK(port.failure.code == EADDRINUSE);
    CHECK(port.failure.message.find("already in use by a live process") != std::string::npos);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a name that another user has taken names that user") {
    if (geteuid() != 0) return;
    TestPort port(Scheme::shm, own("taken-name"));
    Fd stranger(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    socklen_t length = socketAddress(own("taken-name"), &address);
    REQUIRE(bind(stranger.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    CHECK_FALSE(port.open());
    CHECK(port.failure.code == EADDRINUSE);
    CHECK(port.failure.message.find("does not listen") != std::string::npos);
    // The user of this thread alone: the kernel notes the user who begins to listen.
    REQUIRE(syscall(SYS_setresuid, -1, 65534, -1) == 0);
    int listening = listen(stranger.get(), 1);
    REQUIRE(syscall(SYS_setresuid, -1, 0, -1) == 0);
    REQUIRE(listening == 0);
    CHECK_FALSE(port.open());
    CHECK(port.failure.message.find("the user with id 65534") != std::string::npos);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a name nobody owns is refused at once") {
    TestPort port(Scheme::shm);
    REQUIRE(port.open());
    fabric::RawAddress nobody = fabric::encodeShmAddress("nobody-lives-here");
    CHECK(port.port->admit(nobody.data(), nobody.size()) == -ECONNREFUSED);
    CHECK(port.port->gauge(Gauge::addresses) == 0);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "both sides may admit each other at the same moment") {
    TestPort a(Scheme::shm, own("cross-a")), b(Scheme::shm, own("cross-b"));
    REQUIRE(a.open());
    REQUIRE(b.open());
    int ab = a.admit(b);
    int ba = b.admit(a);
    REQUIRE(ab >= 0);
    REQUIRE(ba >= 0);
    a.sendPattern(ab, 0, 10000, 1);
    b.sendPattern(ba, 0, 10000, 2);
    REQUIRE(eventually({&a, &b}, [&] { return a.messages.size() == 1 && b.messages.size() == 1; }));
    CHECK(isPattern(a.messages[0], 2));
    CHECK(isPattern(b.messages[0], 1));
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a port that a ring has woken takes the ring alone at first") {
    TestPort port(Scheme::shm, own("woken")), peer(Scheme::shm);
    REQUIRE(port.open());
    REQUIRE(peer.open());
    int to = peer.admit(port);
    REQUIRE(to >= 0);
    peer.sendPattern(to, 0, 8, 1);
    REQUIRE(eventually({&port, &peer}, [&] { return port.messages.size() == 1; }));
    auto sleeps = [&] { return eventually({&port}, [&] { return port.port->arm() == 1; }); };
    auto isReadable = [&] {
      pollfd wait{port.port->waitFd(), POLLIN, 0};
      return poll(&wait, 1, 0) == 1;
    };
    // A sleep without a ring: the next turns need not look at all sockets.
    REQUIRE(sleeps());
    port.port->wake();
    port.turn();
    REQUIRE(sleeps());
    CHECK_FALSE(isReadable());
    peer.sendPattern(to, 0, 8, 2);
    Fd stranger = connectTo(own("woken"));
    REQUIRE(stranger);
    CHECK(isReadable());
    port.port->wake();
    port.turn();
    CHECK(port.messages.size() == 2);
    CHECK(port.port->gauge(Gauge::connections) == 1);
    // The stranger has its turn at the next sleep.
    REQUIRE(sleeps());
    CHECK(isReadable());
    port.port->wake();
    port.turn();
    CHECK(port.port->gauge(Gauge::connections) == 2);
    // No ring is left.
    REQUIRE(sleeps());
    CHECK_FALSE(isReadable());
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a port meets more peers in its life than there are places") {
    constexpr uint8_t kPeers = 3, kRounds = 100;
    TestPort here(Scheme::shm);
    REQUIRE(here.open());
    for (uint8_t round = 0; round < kRounds; ++round) {
      CAPTURE(round);
      std::vector<std::unique_ptr<TestPort>> peers;
      std::vector<uint32_t> addresses;
      for (uint8_t i = 0; i < kPeers; ++i) {
        TestPort& peer = *peers.emplace_back(std::make_unique<TestPort>(Scheme::shm));
        REQUIRE(peer.open());
        int to = here.admit(peer);
        REQUIRE(to >= 0);
        addresses.push_back(static_cast<uint32_t>(to));
        REQUIRE(here.sendPattern(to, i, 64, i) >= 0);
        REQUIRE(eventually({&here, &peer}, [&] { return peer.messages.size() == 1; }));
        CHECK(isPattern(peer.messages[0], i));
      }
      here.entries.clear();
      peers.clear();
      REQUIRE(eventually({&here}, [&] { return here.count(Completion::peerGone) == kPeers; }));
      for (uint32_t address : addresses) CHECK(here.port->forget(address) == 0);
    }
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "who has no descriptor for a ring hears of that") {
    TestPort here(Scheme::shm), there(Scheme::shm);
    REQUIRE(here.open());
    REQUIRE(there.open());
    rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    // The lowest free descriptor is for the socket, and the limit takes the next.
    int lowest = dup(0);
    REQUIRE(lowest >= 0);
    ::close(lowest);
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(lowest) + 1;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    int refused = here.admit(there);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(refused == -EMFILE);
    int to = here.admit(there);
    REQUIRE(to >= 0);
    here.sendPattern(to, 0, 8, 1);
    CHECK(eventually({&here, &there}, [&] { return there.messages.size() == 1; }));
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "a port has 250 neighbours, and says so to those beyond") {
    TestPort here(Scheme::shm, own("popular"), 4, 4, 256);
    REQUIRE(here.open());
    std::vector<std::unique_ptr<TestPort>> peers;
    auto another = [&]() -> TestPort& {
      TestPort& peer =
          *peers.emplace_back(std::make_unique<TestPort>(Scheme::shm, "", 4, 4, uint32_t{256}));
      REQUIRE(peer.open());
      return peer;
    };
    std::vector<int> to;
    for (size_t i = 0; i < Neighbours::kMost; ++i) to.push_back(here.admit(another()));
    CHECK(std::all_of(to.begin(), to.end(), [](int address) { return address >= 0; }));
    REQUIRE(eventually({&here}, [&] {
      for (auto& peer : peers) peer->turn();
      return here.port->transport().connectionCount() == Neighbours::kMost &&
             here.sendPattern(to.back(), 0, 8, 1) == 1;
    }));
    TestPort& beyond = another();
    CHECK(here.admit(beyond) == -FI_ENOSPC);
    int back = beyond.admit(here);
    REQUIRE(back >= 0);
    beyond.sendPattern(back, 0, 8, 1);
    REQUIRE(eventually({&here, &beyond}, [&] { return beyond.count(Completion::peerGone) == 1; }));
    CHECK(beyond.last(Completion::sent)->status == ENOBUFS);
    // One goes, and there is a place.
    peers.front().reset();
    REQUIRE(eventually({&here}, [&] { return here.count(Completion::peerGone) == 1; }));
    CHECK(here.port->forget(static_cast<uint32_t>(to.front())) == 0);
    CHECK(here.admit(beyond) >= 0);
  }

  TEST_CASE_FIXTURE(DoorbellFixture, "ports leave no descriptor behind") {
    {
      TestPort warm(Scheme::shm);
      REQUIRE(warm.open());
    }
    int before = openDescriptors();
    for (int i = 0; i < 5; ++i) {
      TestPort a(Scheme::shm), b(Scheme::shm);
      REQUIRE(a.open());
      REQUIRE(b.open());
      int to = a.admit(b);
      a.sendPattern(to, 0, 8, 1);
      REQUIRE(eventually({&a, &b}, [&] { return b.messages.size() == 1; }));
    }
    CHECK(openDescriptors() == before);
  }
}
