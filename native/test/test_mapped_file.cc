// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "base/mapped_file.h"
#include "base/thread.h"
#include "test/child.h"

using namespace cinnabar;
using namespace cinnabar::test;
using base::Allocation;
using base::Fd;
using base::MappedFile;

namespace {

constexpr size_t kMappedPage = 4096;
constexpr size_t kMappedBytes = 64 * kMappedPage;

Fd memoryFile(unsigned flags = 0) {
  return Fd(memfd_create("mapped", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
}

/// Another descriptor of the file.
Fd again(const Fd& file) { return Fd(dup(file.get())); }

std::shared_ptr<MappedFile> mapped(const Fd& file, std::shared_ptr<const Fd> alarm = nullptr) {
  MappedFile::Failure failure{"", 0};
  return MappedFile::open({.file = again(file),
                           .bytes = kMappedBytes,
                           .writable = true,
                           .allocates = true,
                           .alarm = std::move(alarm)},
                          &failure);
}

off_t lengthOf(const Fd& file) {
  struct stat status;
  return fstat(file.get(), &status) == 0 ? status.st_size : -1;
}

bool areAll(const uint8_t* bytes, size_t length, uint8_t value) {
  return std::all_of(bytes, bytes + length, [&](uint8_t byte) { return byte == value; });
}

/// How a child ends that plays a part of `busErrors`.
int endOf(const std::string& part, std::string* said) {
  Child child({"--part", "bus-error", "none", part});
  *said = child.hear();
  return child.wait();
}

}  // namespace

TEST_SUITE("mapped file") {
  TEST_CASE("has its space allocated, and stores go to the file") {
    Fd file = memoryFile();
    size_t before = Allocation::totalBytes();
    auto whole = mapped(file);
    REQUIRE(whole != nullptr);
    CHECK(lengthOf(file) == kMappedBytes);
    CHECK(Allocation::totalBytes() == before + kMappedBytes);
    CHECK(MappedFile::of(whole->bytes() + 5000) == whole);
    whole->bytes()[5000] = 7;
    uint8_t seen = 0;
    CHECK(pread(file.get(), &seen, 1, 5000) == 1);
    CHECK(seen == 7);
    CHECK(whole->flush(4999, 2) == 0);
    CHECK(whole->flush(0, kMappedBytes + 1) == EINVAL);
    CHECK_FALSE(whole->isDamaged());
    // Growth is a new mapping of the same pages.
    MappedFile::Failure failure{"", 0};
    auto longer = MappedFile::open(
        {.file = again(file), .bytes = 2 * kMappedBytes, .writable = true, .allocates = true},
        &failure);
    REQUIRE(longer != nullptr);
    CHECK(longer->bytes()[5000] == 7);
    CHECK_FALSE(whole->isDamaged());
    longer.reset();
    whole.reset();
    CHECK(Allocation::totalBytes() == before);
    auto pages = Allocation::create(kMappedPage, false);
    CHECK(MappedFile::of(pages->bytes()) == nullptr);
  }

  TEST_CASE("that is not writable keeps stores to itself") {
    Fd file = memoryFile();
    REQUIRE(ftruncate(file.get(), kMappedBytes) == 0);
    MappedFile::Failure failure{"", 0};
    auto copy = MappedFile::open({.file = again(file), .bytes = kMappedBytes}, &failure);
    REQUIRE(copy != nullptr);
    copy->bytes()[10] = 9;
    uint8_t seen = 1;
    CHECK(pread(file.get(), &seen, 1, 10) == 1);
    CHECK(seen == 0);
  }

  TEST_CASE("that has no room fails at the start, and keeps its length") {
    MappedFile::Failure failure{"", 0};
    Fd sealed = memoryFile();
    REQUIRE(ftruncate(sealed.get(), 100) == 0);
    REQUIRE(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_GROW) == 0);
    CHECK(MappedFile::open(
              {.file = again(sealed), .bytes = kMappedBytes, .writable = true, .allocates = true},
              &failure) == nullptr);
    CHECK(std::string(failure.call) == "posix_fallocate");
    CHECK(failure.code == EPERM);
    CHECK(lengthOf(sealed) == 100);

    Fd onTmpfs(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    struct statvfs system;
    if (!onTmpfs || fstatvfs(onTmpfs.get(), &system) != 0 || system.f_blocks == 0) return;
    uint64_t tooMuch = (uint64_t{system.f_blocks} + 1) * system.f_frsize;
    CHECK(MappedFile::open(
              {.file = again(onTmpfs), .bytes = tooMuch, .writable = true, .allocates = true},
              &failure) == nullptr);
    CHECK(failure.code == ENOSPC);
    CHECK(lengthOf(onTmpfs) == 0);
    CHECK(MappedFile::open({.file = again(onTmpfs), .bytes = 0}, &failure) == nullptr);
    CHECK(MappedFile::open({.file = Fd(), .bytes = 1}, &failure) == nullptr);
    CHECK(failure.code == EBADF);
  }

  TEST_CASE("that is truncated reads as zeros from there on, and is damaged for good") {
    Fd file = memoryFile();
    auto alarm = std::make_shared<Fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    auto whole = mapped(file, alarm);
    REQUIRE(whole != nullptr);
    uint8_t* bytes = whole->bytes();
    std::fill_n(bytes, kMappedBytes, uint8_t{5});
    REQUIRE(ftruncate(file.get(), 8 * kMappedPage) == 0);
    CHECK(whole->isDamaged());
    CHECK(areAll(bytes, 8 * kMappedPage, 5));
    // The look has marked it, and rings so that the calls which hold it end.
    uint64_t times = 0;
    REQUIRE(read(alarm->get(), &times, sizeof times) == sizeof times);
    CHECK(times == 1);
    CHECK(whole->isDamaged());
    CHECK(read(alarm->get(), &times, sizeof times) < 0);
    CHECK(areAll(bytes + 8 * kMappedPage, kMappedBytes - 8 * kMappedPage, 0));
    // One repair for all of it.
    REQUIRE(read(alarm->get(), &times, sizeof times) == sizeof times);
    CHECK(times == 1);
    bytes[kMappedBytes - 1] = 1;
    REQUIRE(ftruncate(file.get(), kMappedBytes) == 0);
    CHECK(whole->isDamaged());
    CHECK(areAll(bytes, 8 * kMappedPage, 5));
  }

  TEST_CASE("whose lost page was met is damaged though the file has its length again") {
    Fd file = memoryFile();
    auto whole = mapped(file);
    REQUIRE(whole != nullptr);
    whole->bytes()[0] = 1;
    REQUIRE(ftruncate(file.get(), 0) == 0);
    CHECK(whole->bytes()[kMappedPage] == 0);
    REQUIRE(ftruncate(file.get(), kMappedBytes) == 0);
    CHECK(whole->isDamaged());
  }

  TEST_CASE("may be touched by a thread of ours when it is truncated") {
    Fd file = memoryFile();
    auto whole = mapped(file);
    REQUIRE(whole != nullptr);
    whole->bytes()[kMappedPage] = 3;
    REQUIRE(ftruncate(file.get(), 0) == 0);
    std::atomic<int> seen{-1};
    base::Thread thread;
    REQUIRE(thread.start([&] { seen = whole->bytes()[kMappedPage]; }));
    thread.join();
    CHECK(seen == 0);
  }

  TEST_CASE("may be truncated while several threads read it and others are mapped") {
    Fd file = memoryFile();
    auto whole = mapped(file);
    REQUIRE(whole != nullptr);
    std::atomic<bool> done{false};
    std::atomic<uint64_t> sum{0};
    auto reader = [&] {
      while (!done) {
        for (size_t at = 0; at < kMappedBytes; at += kMappedPage)
          sum += static_cast<volatile uint8_t*>(whole->bytes())[at];
      }
    };
    std::thread first(reader), second(reader);
    std::thread mapper([&] {
      for (int i = 0; i < 500; ++i) {
        Fd other = memoryFile();
        auto brief = mapped(other);
        if (ftruncate(other.get(), 0) == 0) brief->bytes()[kMappedPage] = 1;
      }
      done = true;
    });
    for (off_t pages = 63; pages >= 0; --pages) CHECK(ftruncate(file.get(), pages * 4096) == 0);
    for (std::thread* each : {&first, &second, &mapper}) each->join();
    CHECK(whole->isDamaged());
  }

  TEST_CASE("leaves bus errors of other memory to whom they belong") {
    std::string said;
    int status = endOf("handled", &said);
    CHECK(said == "passed on");
    CHECK(WIFEXITED(status));
    for (const char* part : {"unhandled", "sent"}) {
      CAPTURE(part);
      status = endOf(part, &said);
      CHECK(said == "touching");
      CHECK(WIFSIGNALED(status));
      if (WIFSIGNALED(status)) CHECK(WTERMSIG(status) == SIGBUS);
    }
    // A handler that somebody has put away is set again with the next file.
    status = endOf("put away", &said);
    CHECK(said == "zeros");
    CHECK(WIFEXITED(status));
  }
}
