// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "test/child.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/mapped_file.h"
#include "test/harness.h"
#include "test/queue_pair_client.h"
#include "transport/shm/doorbell.h"

namespace cinnabar::test {
namespace {

using transport::Operation;

bool inputEnded() {
  pollfd input{0, POLLIN, 0};
  return poll(&input, 1, 0) > 0 && (input.revents & POLLHUP) && !(input.revents & POLLIN);
}

void say(const std::string& line) {
  std::string text = line + "\n";
  if (write(1, text.data(), text.size()) < 0) _exit(3);
}

/// Opens a port, says its address and a region's key and base, then answers every message with
/// itself. The first message is the sender's address.
int echo(fabric::Scheme scheme, const std::string& name) {
  TestPort here(scheme, name);
  if (!here.open()) {
    say("failed " + here.failure.message);
    return 1;
  }
  std::vector<uint8_t> memory(1 << 20, 1);
  int region = here.port->registerRegion(memory.data(), memory.size(), 3);
  if (region < 0) return 1;
  std::ostringstream line;
  line << toHex(here.port->address()) << ' ' << here.port->region(0)->key() << ' '
       << here.port->region(0)->base();
  say(line.str());
  int back = -1;
  uint32_t slot = 0;
  while (!inputEnded()) {
    here.turn();
    for (const auto& message : here.messages) {
      if (back < 0) {
        back = here.port->admit(message.data(), message.size());
        say("admitted " + std::to_string(back));
        continue;
      }
      memcpy(here.slot(slot), message.data(), message.size());
      here.port->send(static_cast<uint32_t>(back), uint64_t{slot} * TestPort::kSlotBytes,
                      message.size());
      slot = (slot + 1) % 32;
    }
    here.messages.clear();
    for (const auto& entry : here.entries) {
      if (entry.kind == engine::Completion::peerGone) say("gone");
    }
    here.entries.clear();
  }
  here.port->close();
  return 0;
}

/// Meets a peer, then obeys its commands: "read KEY REMOTE BYTES" or "write …" moves so many bytes
/// of a region of ones, and prints status and bytes. Without copies between processes the rings
/// have to move them.
int mover(const std::string& peerAddress, bool copies) {
  if (!copies && !forbidCopies()) return 1;
  TestPort here(fabric::Scheme::shm);
  if (!here.open()) return 1;
  auto address = fromHex(peerAddress);
  int to = here.port->admit(address.data(), address.size());
  std::vector<uint8_t> memory(4 << 20, 1);
  auto region = static_cast<uint32_t>(here.port->registerRegion(memory.data(), memory.size(), 0));
  here.sendPattern(to, 0, 8, 1);
  say(std::to_string(here.port->gauge(engine::Gauge::addresses)));
  while (!inputEnded()) {
    here.turn();
    pollfd input{0, POLLIN, 0};
    if (poll(&input, 1, 0) == 0) continue;
    std::string line, what;
    if (!std::getline(std::cin, line)) break;
    uint64_t key, remote, bytes;
    std::istringstream(line) >> what >> key >> remote >> bytes;
    auto type = what == "read" ? Operation::Type::read : Operation::Type::write;
    here.entries.clear();
    int status = here.transfer(type, to, region, 0, bytes, key, remote, 1);
    if (status < 0) {
      say(std::to_string(-status) + " 0");
      continue;
    }
    eventually({&here}, [&] { return here.count(engine::Completion::transfer) == 1; });
    const engine::Entry& entry = here.entries.back();
    say(std::to_string(entry.status) + " " + std::to_string(entry.bytes));
  }
  return 0;
}

/// Opens a port and does not look at it until a command comes. Then counts numbered messages and
/// prints whether all came in order.
int late(fabric::Scheme scheme, uint32_t expected) {
  TestPort here(scheme, "", 4, 64, 256);
  if (!here.open()) return 1;
  say(toHex(here.port->address()));
  std::string go;
  // The doorbell must be answered for a peer to be let in at all; messages stay where they are
  // until then.
  here.turn();
  pollfd input{0, POLLIN, 0};
  while (poll(&input, 1, 0) == 0) {
    if (scheme == fabric::Scheme::shm) here.port->progress(0);
  }
  std::getline(std::cin, go);
  uint32_t next = 0;
  bool ordered = true;
  bool done = eventually({&here}, [&] {
    for (const auto& message : here.messages) {
      uint32_t number = 0;
      memcpy(&number, message.data(), sizeof number);
      ordered = ordered && number == next;
      ++next;
    }
    here.messages.clear();
    return next >= expected;
  });
  say(done && ordered ? "ordered" : "failed at " + std::to_string(next));
  while (!inputEnded()) here.turn();
  return 0;
}

/// Loads libfabric, probes and opens every provider, and says whether any signal's disposition
/// changed.
int signals() {
  auto dispositions = [] {
    std::vector<std::pair<void*, int>> all;
    for (int signal = 1; signal < 32; ++signal) {
      struct sigaction now {};
      sigaction(signal, nullptr, &now);
      constexpr int kRestorer = 0x04000000;  // the C library's own business
      all.emplace_back(reinterpret_cast<void*>(now.sa_handler), now.sa_flags & ~kRestorer);
    }
    return all;
  };
  auto before = dispositions();
  if (!haveLibfabric()) return 1;
  for (const auto& provider : fabric::providerTable())
    fabric::reasonAgainst(*fabric::library(), provider);
  TestPort shm(fabric::Scheme::shm), tcp(fabric::Scheme::tcp);
  if (!shm.open() || !tcp.open()) {
    say("failed " + shm.failure.message + tcp.failure.message);
    return 1;
  }
  auto after = dispositions();
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] != before[i]) say("changed " + std::to_string(i + 1));
  }
  say("the same");
  return 0;
}

/// Says how many bytes of files the first look at libfabric's providers has read.
int firstLook() {
  auto read = [] {
    std::ifstream counts("/proc/self/io");
    std::string word;
    uint64_t bytes = 0;
    counts >> word >> bytes;  // rchar, proc(5)
    return bytes;
  };
  if (!haveLibfabric()) return 1;
  uint64_t before = read();
  fabric::Provider provider{fabric::Scheme::tcp, "tcp", 0, UINT32_MAX};
  fabric::reasonAgainst(*fabric::library(), provider);
  std::string line = std::to_string(read() - before);
  std::ifstream maps("/proc/self/maps");
  std::string all{std::istreambuf_iterator<char>(maps), {}};
  if (all.find("verbs-fi.so") != std::string::npos) line += " verbs apart";
  say(line);
  return 0;
}

/// Maps a file, and touches lost memory of another.
int busError(const std::string& part) {
  auto passedOn = [](int) {
    say("passed on");
    _exit(0);
  };
  // Sanitizers have a handler of their own otherwise.
  signal(SIGBUS, part == "handled" ? static_cast<void (*)(int)>(passedOn) : SIG_DFL);
  auto map = [](int file) {
    base::MappedFile::Failure failure{"", 0};
    return base::MappedFile::open(
        {.file = base::Fd(dup(file)), .bytes = 8192, .writable = true, .allocates = true},
        &failure);
  };
  auto watched = map(memfd_create("watched", MFD_CLOEXEC));
  if (part == "put away") {
    signal(SIGBUS, SIG_DFL);
    int file = memfd_create("again", MFD_CLOEXEC);
    auto again = map(file);
    if (ftruncate(file, 0) == 0 && again->bytes()[4096] == 0) say("zeros");
    return 0;
  }
  int file = memfd_create("other", MFD_CLOEXEC);
  void* other = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  if (watched == nullptr || other == MAP_FAILED) return 1;
  if (part != "handled") say("touching");
  if (part == "sent") raise(SIGBUS);
  return *static_cast<volatile uint8_t*>(other);
}

}  // namespace

bool forbidCopies() {
  auto fail = [](unsigned call) {
    return std::array<sock_filter, 2>{
        sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};
  };
  auto reads = fail(SYS_process_vm_readv), writes = fail(SYS_process_vm_writev);
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          reads[0],
                          reads[1],
                          writes[0],
                          writes[1],
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string toHex(const std::vector<uint8_t>& bytes) {
  std::string text;
  char pair[3];
  for (uint8_t byte : bytes) {
    snprintf(pair, sizeof pair, "%02x", byte);
    text += pair;
  }
  return text;
}

std::vector<uint8_t> fromHex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

bool setCopying(pid_t pid, uint32_t number) {
  // Its own mapping is the only one that can be written.
  std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream maps(folder + "/maps");
  for (std::string line; std::getline(maps, line);) {
    bool isPage = line.find("memfd:cinnabar-doorbell") != std::string::npos;
    if (!isPage || line.find(" rw-s ") == std::string::npos) continue;
    base::Fd memory(open((folder + "/mem").c_str(), O_RDWR | O_CLOEXEC));
    auto at =
        static_cast<off_t>(std::stoull(line, nullptr, 16) + offsetof(shm::DoorbellPage, copying));
    return pwrite(memory.get(), &number, sizeof number, at) == sizeof number;
  }
  return false;
}

int playPart(int argc, char** argv) {
  if (argc < 4 || std::string(argv[1]) != "--part") return -1;
  std::string part = argv[2];
  fabric::Scheme scheme = std::string(argv[3]) == "shm" ? fabric::Scheme::shm : fabric::Scheme::tcp;
  std::string extra = argc > 4 ? argv[4] : "";
  if (part == "signals") return signals();
  if (part == "first-look") return firstLook();
  if (part == "bus-error") return busError(extra);
  if (!haveLibfabric()) return 1;
  if (part == "echo") return echo(scheme, extra);
  if (part == "mover") return mover(extra, true);
  if (part == "mover-without-copies") return mover(extra, false);
  // --part queue-pairs PROVIDER HOST PORT SOURCE
  if (part == "queue-pairs" && argc == 7)
    return playQueuePairClient({argv[3], argv[3], extra, argv[6]},
                               static_cast<uint16_t>(atoi(argv[5])));
  if (part == "late") return late(scheme, static_cast<uint32_t>(std::stoul(extra)));
  return 1;
}

Child::Child(const std::vector<std::string>& arguments) {
  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) return;
  std::vector<char*> argv;
  std::string self = "/proc/self/exe";
  argv.push_back(self.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(input[0], 0);
    dup2(output[1], 1);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  in_ = input[1];
  out_ = output[0];
}

Child::~Child() {
  if (in_ >= 0) close(in_);
  if (pid_ > 0) {
    // The end of its input ends the child; this is for one that hangs.
    auto end = std::chrono::steady_clock::now() + kDeadline;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) ::kill(pid_, SIGKILL);
    }
  }
  if (out_ >= 0) close(out_);
}

void Child::tell(const std::string& line) {
  std::string text = line + "\n";
  [[maybe_unused]] ssize_t wrote = write(in_, text.data(), text.size());
}

std::string Child::hear() {
  for (;;) {
    size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd output{out_, POLLIN, 0};
    if (poll(&output, 1, static_cast<int>(std::chrono::milliseconds(kDeadline).count())) <= 0)
      return "";
    char bytes[4096];
    ssize_t got = read(out_, bytes, sizeof bytes);
    if (got <= 0) return "";
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

bool Child::hasSaid() {
  pollfd output{out_, POLLIN, 0};
  return buffer_.find('\n') != std::string::npos || poll(&output, 1, 0) > 0;
}

void Child::kill(int signal) { ::kill(pid_, signal); }

int Child::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return status;
}

}  // namespace cinnabar::test
