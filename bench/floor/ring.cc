// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
//
// Messages between two processes over the bare rings of shm://: the floor under small calls.
// Started as `ring BYTES`, it makes a ring for each direction, and a child that sends back what
// comes. Each line of its input, `COUNT`, sends so many messages there and back, one at a time. It
// answers with the nanoseconds that all took. Both ends copy a record out of the ring before they
// answer. Both look without a pause, and give the processor away between many looks, as a port
// does.
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transport/shm/byte_ring.h"

namespace {

using cinnabar::base::Fd;
using cinnabar::shm::RecordKind;
using cinnabar::shm::RingReader;
using cinnabar::shm::RingWriter;

constexpr size_t kRingBytes = cinnabar::shm::kLeastRingBytes;
constexpr uint32_t kLooksBetweenYields = 8192;  // some 20 µs

[[noreturn]] void fail(const char* what) {
  perror(what);
  exit(1);
}

/// One end: the ring that it reads, and the ring that its peer reads.
class End {
 public:
  End(RingReader& reader, int peersRing)
      : reader_(reader), writer_(RingWriter::adopt(Fd(dup(peersRing)), kRingBytes)) {
    if (!writer_) fail("a ring cannot be mapped");
  }

  void send(const std::vector<uint8_t>& bytes) {
    if (!writer_->write(RecordKind::message, bytes.data(), bytes.size())) fail("a ring is full");
  }

  void receive(std::vector<uint8_t>& into) {
    cinnabar::shm::Record record;
    for (uint32_t looks = 1; reader_.look(&record) != RingReader::Look::record; ++looks) {
      if (looks % kLooksBetweenYields == 0) sched_yield();
    }
    memcpy(into.data(), record.bytes, record.length);
    reader_.pop(record);
    reader_.release();
  }

 private:
  RingReader& reader_;
  std::unique_ptr<RingWriter> writer_;
};

}  // namespace

int main(int count, char** words) {
  size_t bytes = count > 1 ? strtoul(words[1], nullptr, 10) : 0;
  if (bytes == 0 || bytes > kRingBytes / 4) {
    fprintf(stderr, "ring BYTES: 1 to %zu\n", kRingBytes / 4);
    return 2;
  }
  auto ours = RingReader::create(kRingBytes), childs = RingReader::create(kRingBytes);
  if (!ours || !childs) fail("memfd_create");
  std::vector<uint8_t> message(bytes, 'x');
  pid_t parent = getpid();
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    // The parent ends, and so does the child.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1;
    for (End end(*childs, ours->fd());;) {
      end.receive(message);
      end.send(message);
    }
  }
  End end(*ours, childs->fd());
  for (unsigned trips; scanf("%u", &trips) == 1;) {
    auto begun = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < trips; ++i) {
      end.send(message);
      end.receive(message);
    }
    auto took = std::chrono::steady_clock::now() - begun;
    printf("%lld\n", static_cast<long long>(std::chrono::nanoseconds(took).count()));
    fflush(stdout);
  }
  kill(child, SIGKILL);
  return 0;
}
