// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "test/child.h"
#include "test/harness.h"
#include "transport/shm/byte_ring.h"
#include "transport/shm/claim.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/hello.h"
#include "transport/shm/keys.h"
#include "transport/shm/ring_copies.h"
#include "transport/shm/sealed_memory.h"

using namespace cinnabar;
using namespace cinnabar::test;
using namespace cinnabar::shm;
using base::Fd;
using engine::Completion;
using fabric::Scheme;
using transport::Operation;

namespace {

/// Memory that its owner goes on writing to, though its seals say what a peer wants to hear.
struct OwnMemory {
  Fd fd{memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  size_t bytes;
  uint64_t* words;

  OwnMemory(size_t length, int seals) : bytes(length) {
    REQUIRE(ftruncate(fd.get(), static_cast<off_t>(length)) == 0);
    void* mapped = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    words = static_cast<uint64_t*>(mapped);
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  }
  ~OwnMemory() { munmap(words, bytes); }
};

/// A neighbour that greets as it should, and then writes anything to all that is shared.
class Hostile {
 public:
  Hostile(std::string victim, uint32_t seed) : victim_(std::move(victim)), random_(seed) {}

  /// Runs until so many writes are done. The victim turns in another thread.
  void run(uint64_t writes) {
    while (done_ < writes) {
      if (!connect()) continue;
      ++sessions;
      while (done_ < writes && !isDropped()) {
        for (int i = 0; i < 2000; ++i) scribble();
      }
    }
  }

  /// Says that a copy is under way.
  void copyForEver() { *reinterpret_cast<uint32_t*>(page_.words + 8) = 1; }

  std::atomic<uint64_t> sessions = 0;

  bool connect() {
    socket_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    socklen_t length = socketAddress(victim_, &address);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return false;
    HelloMessage hello;
    hello.kind = static_cast<uint32_t>(HelloKind::hello);
    hello.slotBytes = 4096;
    hello.ringBytes = kLeastRingBytes;
    hello.proof = 7;
    strcpy(hello.name, "hostile");
    HelloDescriptors along{page_.fd.get(), keys_.fd.get(), ring_.fd.get()};
    if (sendHello(socket_.get(), hello, along) != 0) return false;
    pollfd answer{socket_.get(), POLLIN, 0};
    if (poll(&answer, 1, 20'000) != 1) return false;
    Received received = receiveHello(socket_.get());
    if (received.outcome != Received::Outcome::message) return false;
    memory_ = RingMapping::map(received.ring.get(), received.message.ringBytes);
    writer_ = RingWriter::adopt(std::move(received.ring), received.message.ringBytes);
    return writer_ != nullptr;
  }

  bool isDropped() const {
    RingTaken taken = takeRing(socket_.get());
    return taken == RingTaken::ended;
  }

 private:
  uint64_t number() {
    // Small ones and those near a bound are the likely mistakes.
    switch (random_() % 4) {
      case 0:
        return random_() % 64;
      case 1:
        return kLeastRingBytes / 4 + random_() % 64 - 32;
      case 2:
        return random_();
      default:
        return uint64_t{random_()} << 32 | random_();
    }
  }

  void scribble() {
    ++done_;
    auto anywhere = [&](OwnMemory& memory) {
      memory.words[random_() % (memory.bytes / 8)] = number();
    };
    switch (random_() % 9) {
      case 0:
        return anywhere(page_);
      case 1:
        return anywhere(keys_);
      case 2:
        return anywhere(ring_);
      case 3:
        ring_.words[0] = number();  // how far it has read what the victim wrote
        return;
      case 4:
      case 5:
        *reinterpret_cast<uint64_t*>(memory_->at(random_() % kLeastRingBytes / 8 * 8)) = number();
        return;
      case 8:
        send(socket_.get(), "", random_() % 1000 == 0 ? 0 : 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
      case 6:
        memory_->page().starved.store(random_() % 2);
        return;
      default: {
        // A record like an honest one, with anything in it.
        uint8_t bytes[256];
        for (auto& byte : bytes) byte = static_cast<uint8_t>(random_());
        CopyHead head{number(), number(), number(), static_cast<uint32_t>(random_() % 64), 0};
        memcpy(bytes, &head, sizeof head);
        auto kind = static_cast<RecordKind>(random_() % 6);
        writer_->write(kind, bytes, sizeof head + (random_() % 2 == 0 ? 0 : head.bytes));
      }
    }
  }

  static constexpr int kOwners = kSealedSize | F_SEAL_FUTURE_WRITE;
  std::string victim_;
  std::mt19937 random_;
  OwnMemory page_{kDoorbellBytes, kOwners};
  OwnMemory keys_{kKeysBytes, kOwners};
  OwnMemory ring_{kLeastRingBytes + static_cast<size_t>(sysconf(_SC_PAGESIZE)), kSealedSize};
  Fd socket_;
  std::unique_ptr<RingMapping> memory_;
  std::unique_ptr<RingWriter> writer_;
  uint64_t done_ = 0;
};

}  // namespace

TEST_SUITE("hostile neighbour") {
  TEST_CASE("who writes anything to all that is shared ends its own session, and no other") {
    constexpr uint64_t kWrites = 10'000'000;
    TestPort victim(Scheme::shm, own("victim")), honest(Scheme::shm);
    REQUIRE(victim.open());
    REQUIRE(honest.open());
    int to = honest.admit(victim), back = victim.admit(honest);
    std::vector<uint8_t> memory(1 << 16, 42), here(1 << 16);
    auto granted = static_cast<uint32_t>(
        victim.port->registerRegion(memory.data(), memory.size(), fabric::kRemoteRead));
    auto region = static_cast<uint32_t>(honest.port->registerRegion(here.data(), here.size(), 0));
    uint64_t key = victim.port->region(granted)->key(), base = victim.port->region(granted)->base();

    Hostile hostile(own("victim"), 4711);
    std::atomic<bool> isOver = false;
    std::thread writing([&] {
      hostile.run(kWrites);
      isOver = true;
    });
    uint32_t rounds = 0, wrong = 0;
    bool ends = true;
    while (ends && (!isOver || rounds == 0)) {
      auto seed = static_cast<uint8_t>(rounds++);
      std::fill(here.begin(), here.end(), 0);
      honest.entries.clear();
      size_t bytes = 1 + rounds * 37 % 4000;
      honest.sendPattern(to, 0, bytes, seed);
      victim.sendPattern(back, 0, bytes, seed);
      honest.transfer(Operation::Type::read, to, region, 0, here.size(), key, base, 1);
      // The hostile one's messages come to the victim, too.
      auto isOurs = [&](const std::vector<uint8_t>& message) {
        return message.size() == bytes && isPattern(message, seed);
      };
      bool arrived = false;
      ends = eventually({&honest, &victim}, [&] {
        for (const auto& message : victim.messages) arrived = arrived || isOurs(message);
        victim.messages.clear();
        victim.entries.clear();
        return arrived && honest.messages.size() == 1 && honest.count(Completion::transfer) == 1;
      });
      if (!ends) break;
      wrong += !isOurs(honest.messages[0]) || here != memory;
      honest.messages.clear();
    }
    isOver = isOver || !ends;
    while (!isOver) victim.turn();
    writing.join();
    CHECK(ends);
    CHECK(wrong == 0);
    CHECK(rounds > 1);
    CHECK(hostile.sessions > 1);
    CHECK(honest.count(Completion::peerGone) == 0);
    CHECK(std::all_of(memory.begin(), memory.end(), [](uint8_t byte) { return byte == 42; }));
    // Its page may say for ever that it copies, and closing does not wait for it.
    victim.port->close();
    MESSAGE(rounds << " honest rounds beside " << hostile.sessions.load() << " hostile sessions");
  }

  TEST_CASE("who says for ever that it copies keeps no memory that other processes were given") {
    TestPort victim(Scheme::shm, own("copied")), sibling(Scheme::shm);
    REQUIRE(victim.open());
    REQUIRE(sibling.open());
    Child honest({"--part", "echo", "shm", ""});
    std::string said = honest.hear();
    fabric::RawAddress address = fromHex(said.substr(0, said.find(' ')));
    int back = victim.port->admit(address.data(), address.size());
    REQUIRE(back >= 0);
    // Another port of the hostile neighbour's process, which may copy by either.
    int beside = victim.admit(sibling);
    Hostile hostile(own("copied"), 1);
    std::atomic<bool> hasMet = false;
    std::thread meeting([&] { hasMet = hostile.connect(); });
    bool met = eventually({&victim, &sibling}, [&] { return hasMet.load(); });
    meeting.join();
    REQUIRE(met);
    hostile.copyForEver();
    fabric::RawAddress name = fabric::encodeShmAddress("hostile");
    int there = victim.port->admit(name.data(), name.size());
    REQUIRE(there >= 0);

    std::vector<uint8_t> memory(4096);
    auto give = [&](uint32_t holder) {
      int region =
          victim.port->registerRegion(memory.data(), memory.size(), fabric::kRemoteRead, holder);
      REQUIRE(region >= 0);
      return static_cast<uint32_t>(region);
    };
    uint32_t toHonest = give(static_cast<uint32_t>(back)),
             toHostile = give(static_cast<uint32_t>(there)),
             toSibling = give(static_cast<uint32_t>(beside)), toAll = give(engine::kAnybody);
    auto isBack = [&](uint32_t region) { return victim.port->deregisterRegion(region) == 0; };
    CHECK(isBack(toHonest));
    CHECK_FALSE(isBack(toHostile));
    CHECK_FALSE(isBack(toSibling));
    CHECK_FALSE(isBack(toAll));
    CHECK_FALSE(hostile.isDropped());
    CHECK(eventually({&victim, &sibling}, [&] { return isBack(toHostile); }));
    CHECK(eventually({&victim, &sibling}, [&] { return isBack(toSibling); }));
    CHECK(eventually({&victim, &sibling}, [&] { return isBack(toAll); }));
    CHECK(eventually({&victim, &sibling}, [&] {
      return victim.count(Completion::peerGone) == 1 && hostile.isDropped();
    }));
    fabric::RawAddress mine = victim.port->address();
    memcpy(victim.slot(31), mine.data(), mine.size());
    victim.port->send(static_cast<uint32_t>(back), 31 * TestPort::kSlotBytes, mine.size());
    CHECK(eventually({&victim, &sibling}, [&] { return honest.hasSaid(); }));
    CHECK(honest.hear().starts_with("admitted"));
  }
}
