// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "test/harness.h"
#include "transport/shm/byte_ring.h"

using namespace cinnabar;
using namespace cinnabar::test;
using namespace cinnabar::shm;
using base::Fd;

namespace {

struct RingPair {
  std::unique_ptr<RingReader> reader = RingReader::create(kLeastRingBytes);
  std::unique_ptr<RingWriter> writer = RingWriter::adopt(Fd(dup(reader->fd())), kLeastRingBytes);
  /// The memory as a third party sees it: a page, then the records.
  std::unique_ptr<RingMapping> memory = RingMapping::map(reader->fd(), kLeastRingBytes);

  bool write(const std::vector<uint8_t>& bytes) {
    return writer->write(RecordKind::message, bytes.data(), bytes.size());
  }
  /// The next record, or nothing.
  bool read(std::vector<uint8_t>* into) {
    Record record;
    if (reader->look(&record) != RingReader::Look::record) return false;
    into->assign(record.bytes, record.bytes + record.length);
    reader->pop(record);
    reader->release();
    return true;
  }
};

std::vector<uint8_t> pattern(size_t bytes, uint8_t seed) {
  std::vector<uint8_t> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<uint8_t>(seed + i * 7);
  return all;
}

/// Runs `work` in another process, one instruction after the other, and looks in between at what is
/// shared: what is there at a step is what a process leaves that is killed at it. How many steps it
/// took.
int stepThrough(const std::function<void()>& work, const std::function<void()>& look) {
  pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status = 0;
  int steps = 0;
  for (waitpid(pid, &status, 0); WIFSTOPPED(status); waitpid(pid, &status, 0)) {
    look();
    ++steps;
    ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr);
  }
  REQUIRE(WIFEXITED(status));
  return steps;
}

}  // namespace

TEST_SUITE("byte ring") {
  TEST_CASE("records of all lengths come in order, many times round") {
    RingPair pair;
    size_t most = pair.writer->mostRecordBytes();
    std::mt19937 random(7);
    std::vector<std::vector<uint8_t>> sent;
    size_t got = 0;
    std::vector<uint8_t> bytes;
    for (int i = 0; i < 20'000; ++i) {
      size_t length = random() % 50 == 0 ? random() % (most + 1) : random() % 300;
      auto record = pattern(length, static_cast<uint8_t>(i));
      while (!pair.write(record)) {
        REQUIRE(pair.read(&bytes));
        REQUIRE(bytes == sent[got++]);
      }
      sent.push_back(std::move(record));
    }
    while (pair.read(&bytes)) REQUIRE(bytes == sent[got++]);
    CHECK(got == sent.size());
    CHECK_FALSE(pair.reader->hasRecord());
  }

  TEST_CASE("two parts of a record come as one, and its kind with them") {
    RingPair pair;
    REQUIRE(pair.writer->write(RecordKind::writeAsked, "abc", 3, "defgh", 5));
    Record record;
    REQUIRE(pair.reader->look(&record) == RingReader::Look::record);
    CHECK(record.kind == RecordKind::writeAsked);
    CHECK(std::string(reinterpret_cast<const char*>(record.bytes), record.length) == "abcdefgh");
  }

  TEST_CASE("a thread that writes and one that reads see the same") {
    RingPair pair;
    constexpr uint32_t kRecords = 200'000;
    std::thread writing([&] {
      for (uint32_t i = 0; i < kRecords; ++i) {
        std::vector<uint8_t> record = pattern(4 + i % 61, static_cast<uint8_t>(i));
        memcpy(record.data(), &i, sizeof i);
        while (!pair.write(record)) sched_yield();
      }
    });
    uint32_t wrong = 0;
    std::vector<uint8_t> bytes;
    for (uint32_t i = 0; i < kRecords; ++i) {
      while (!pair.read(&bytes)) sched_yield();
      auto expected = pattern(4 + i % 61, static_cast<uint8_t>(i));
      memcpy(expected.data(), &i, sizeof i);
      wrong += bytes != expected;
    }
    writing.join();
    CHECK(wrong == 0);
  }

  TEST_CASE("a full ring takes no more, and a writer that waits is heard before it is empty") {
    RingPair pair;
    auto record = pattern(1000, 1);
    size_t held = 0;
    while (pair.write(record)) ++held;
    CHECK(held == kLeastRingBytes / RingMapping::recordBytes(1000));
    CHECK_FALSE(pair.writer->hasRoom(1000));
    pair.writer->setStarved();
    CHECK_FALSE(pair.writer->hasRoom(1000));
    size_t read = 0;
    bool heard = false;
    for (Record next{}; pair.reader->look(&next) == RingReader::Look::record; ++read) {
      pair.reader->pop(next);
      heard = pair.reader->release() || heard;
    }
    CHECK(read == held);
    CHECK(heard);
    CHECK(pair.writer->hasRoom(1000));
  }

  TEST_CASE("a length that no record has is noticed, whatever it is") {
    for (uint32_t word :
         {kLeastRingBytes / 4 + 2, kLeastRingBytes, size_t{0x80000000}, size_t{UINT32_MAX}}) {
      CAPTURE(word);
      RingPair pair;
      pair.memory->word(0).store(word);
      Record record;
      CHECK(pair.reader->look(&record) == RingReader::Look::broken);
    }
    RingPair pair;
    pair.memory->word(0).store(kLeastRingBytes / 4 + 1);
    Record record;
    CHECK(pair.reader->look(&record) == RingReader::Look::record);
  }

  TEST_CASE("a reader's position that cannot be makes no room") {
    RingPair pair;
    auto record = pattern(1000, 1);
    while (pair.write(record)) continue;
    for (uint64_t head : {uint64_t{1} << 40, ~uint64_t{0}, uint64_t{kLeastRingBytes} * 2}) {
      CAPTURE(head);
      pair.memory->page().head.store(head);
      CHECK_FALSE(pair.write(record));
    }
    pair.memory->page().head.store(RingMapping::recordBytes(1000));
    CHECK(pair.write(record));
    pair.memory->page().head.store(0);
    CHECK_FALSE(pair.write(record));
  }

  TEST_CASE("memory that is no ring is refused") {
    auto memory = [](size_t bytes, int seals) {
      Fd fd(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
      if (seals != 0) fcntl(fd.get(), F_ADD_SEALS, seals);
      return fd;
    };
    auto isRing = [](Fd fd, size_t capacity) {
      return RingWriter::adopt(std::move(fd), capacity) != nullptr;
    };
    constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
    size_t whole = kLeastRingBytes + static_cast<size_t>(sysconf(_SC_PAGESIZE));
    CHECK(isRing(memory(whole, kSealed), kLeastRingBytes));
    CHECK_FALSE(isRing(memory(whole, 0), kLeastRingBytes));
    CHECK_FALSE(isRing(memory(whole, F_SEAL_SHRINK), kLeastRingBytes));
    CHECK_FALSE(isRing(memory(whole, kSealed | F_SEAL_WRITE), kLeastRingBytes));
    CHECK_FALSE(isRing(memory(whole - 1, kSealed), kLeastRingBytes));
    CHECK_FALSE(isRing(memory(whole, kSealed), 2 * kLeastRingBytes));
    CHECK_FALSE(isRing(memory(whole, kSealed), kLeastRingBytes - 8));
    CHECK_FALSE(isRing(memory(whole, kSealed), 0));
    CHECK_FALSE(isRing(memory(8192 + 4096, kSealed), 8192));
    CHECK_FALSE(isRing(Fd(open("/dev/null", O_RDWR | O_CLOEXEC)), kLeastRingBytes));
    CHECK_FALSE(isRing(Fd(), kLeastRingBytes));
  }

  TEST_CASE("the capacity suits the messages") {
    CHECK(ringBytesFor(1) == kLeastRingBytes);
    CHECK(ringBytesFor(32 << 10) == kLeastRingBytes);
    CHECK(ringBytesFor((32 << 10) + 1) == 2 * kLeastRingBytes);
    CHECK(ringBytesFor(kMostRingBytes / 4) == kMostRingBytes);
    CHECK(ringBytesFor(kMostRingBytes / 4 + 1) == 0);
  }

  TEST_CASE("a writer that is killed at any step leaves what it had published, and nothing else") {
    auto first = pattern(40, 1), second = pattern(200, 2);
    RingPair pair;
    // Near the end of the ring, so that the second record crosses it.
    auto filler = pattern(kLeastRingBytes / 8 - 24, 3);
    std::vector<uint8_t> bytes;
    for (int i = 0; i < 8; ++i) {
      REQUIRE(pair.write(filler));
      REQUIRE(pair.read(&bytes));
    }
    uint64_t start = 8 * RingMapping::recordBytes(filler.size());
    // The records that are there from the start on, in one number.
    auto published = [&] {
      int count = 0;
      for (uint64_t at = start; uint32_t word = pair.memory->word(at).load(); ++count) {
        const auto& expected = count == 0 ? first : second;
        if (count == 2 || word != expected.size() + 1) return -1;
        const uint8_t* found = pair.memory->at(at) + RingMapping::kRecordHead;
        if (memcmp(found, expected.data(), expected.size()) != 0) return -1;
        at += RingMapping::recordBytes(expected.size());
      }
      return count;
    };
    int seen[3] = {};
    bool isSound = true;
    int before = 0;
    auto look = [&] {
      int now = published();
      isSound = isSound && now >= before;
      if (isSound) ++seen[before = now];
    };
    stepThrough([&] { pair.write(first) && pair.write(second); }, look);
    CHECK(isSound);
    CHECK(published() == 2);
    for (int steps : seen) CHECK(steps > 10);
  }

  TEST_CASE("a reader that is killed at any step leaves a ring that its writer can go on with") {
    RingPair pair;
    auto record = pattern(1000, 1);
    while (pair.write(record)) continue;
    uint64_t whole = RingMapping::recordBytes(1000);
    bool isSound = true;
    int before = 0, after = 0;
    auto look = [&] {
      uint64_t head = pair.memory->page().head.load();
      isSound = isSound && (head == 0 || head == whole);
      isSound = isSound && pair.writer->hasRoom(1000) == (head == whole);
      ++(head == 0 ? before : after);
    };
    stepThrough(
        [&] {
          Record next{};
          pair.reader->look(&next);
          pair.reader->pop(next);
          pair.reader->release();
        },
        look);
    CHECK(isSound);
    CHECK(before > 5);
    CHECK(after > 0);
    CHECK(pair.write(record));
    CHECK_FALSE(pair.write(record));
  }
}
