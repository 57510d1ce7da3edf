// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
//
// RMA between two processes with nothing above libfabric: the floor under bulk transfers. Started
// as `rma PROVIDER LIBRARY [CONGESTION_CONTROL]`, it opens an endpoint in this process and one in a
// child, whose memory it reads and writes. Connections have that congestion control, or the
// system's. Each line of its input, `read|write BYTES DEPTH MS`, moves so many bytes at a time, so
// many at once, for so long. It answers with `TRANSFERS MICROSECONDS OF_PROCESSORS`: what was
// moved, how long that took, and the processor time of both sides. Both sides poll while bytes
// move, and give the processor away between looks, as the port does.
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kRegionBytes = 128 << 20;
constexpr uint64_t kKey = 0xc1aabac1;
constexpr size_t kMostDepth = 64;

/// Empty: the system's.
const char* congestionControl = "";

int withControl(int fd) {
  if (fd >= 0 && *congestionControl != 0)
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestionControl, std::strlen(congestionControl));
  return fd;
}

/// Anonymous memory that both processes share: how the target is started and stopped, and what it
/// has used.
struct Shared {
  std::atomic<bool> stopped;
  std::atomic<int64_t> targetUs;
  char address[64];
  size_t addressBytes;
  uint64_t base;
};

[[noreturn]] void fail(const char* what, int64_t status) {
  std::fprintf(stderr, "%s: %lld\n", what, static_cast<long long>(status));
  _exit(1);
}

void check(const char* what, int64_t status) {
  if (status != 0) fail(what, status);
}

int64_t processorUs() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  auto us = [](const timeval& time) { return int64_t{1'000'000} * time.tv_sec + time.tv_usec; };
  return us(used.ru_utime) + us(used.ru_stime);
}

/// The entry points of the version that the headers describe, as in native/fabric/library.cc.
template <typename F>
F entry(void* library, const char* name, const char* version) {
  void* symbol = dlvsym(library, name, version);
  if (symbol == nullptr) fail(name, -ENOENT);
  return reinterpret_cast<F>(symbol);
}

struct Endpoint {
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fid_cq* queue = nullptr;
  fid_ep* ep = nullptr;
  fid_mr* registration = nullptr;
  char* memory = nullptr;
  uint64_t base = 0;

  Endpoint(const char* provider, const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(dlerror(), -ENOENT);
    auto getinfo = entry<decltype(&fi_getinfo)>(library, "fi_getinfo", "FABRIC_1.3");
    auto dupinfo = entry<decltype(&fi_dupinfo)>(library, "fi_dupinfo", "FABRIC_1.3");
    auto open = entry<decltype(&fi_fabric)>(library, "fi_fabric", "FABRIC_1.1");
    fi_info* hints = dupinfo(nullptr);
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_LOCAL;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->fabric_attr->prov_name = strdup(provider);
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    hints->src_addr = std::memcpy(std::malloc(sizeof loopback), &loopback, sizeof loopback);
    hints->src_addrlen = sizeof loopback;
    fi_info* info = nullptr;
    check("fi_getinfo", getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info));
    while (info != nullptr && std::strcmp(info->fabric_attr->prov_name, provider) != 0)
      info = info->next;
    if (info == nullptr) fail("fi_getinfo", -FI_ENODATA);
    fid_fabric* fabric = nullptr;
    check("fi_fabric", open(info->fabric_attr, &fabric, nullptr));
    check("fi_domain", fi_domain(fabric, info, &domain, nullptr));
    fi_av_attr table{};
    check("fi_av_open", fi_av_open(domain, &table, &addresses, nullptr));
    fi_cq_attr completions{};
    completions.size = 1024;
    completions.format = FI_CQ_FORMAT_DATA;
    completions.wait_obj = FI_WAIT_FD;
    check("fi_cq_open", fi_cq_open(domain, &completions, &queue, nullptr));
    check("fi_endpoint", fi_endpoint(domain, info, &ep, nullptr));
    check("fi_ep_bind", fi_ep_bind(ep, &addresses->fid, 0));
    check("fi_ep_bind", fi_ep_bind(ep, &queue->fid, FI_TRANSMIT | FI_RECV));
    check("fi_enable", fi_enable(ep));
    // Huge pages, as the pool has them.
    constexpr size_t huge = 2 << 20;
    memory = static_cast<char*>(std::aligned_alloc(huge, kRegionBytes));
    if (memory == nullptr) fail("aligned_alloc", -ENOMEM);
    madvise(memory, kRegionBytes, MADV_HUGEPAGE);
    std::memset(memory, 0x5a, kRegionBytes);
    constexpr uint64_t rights = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    check("fi_mr_reg",
          fi_mr_reg(domain, memory, kRegionBytes, rights, 0, kKey, 0, &registration, nullptr));
    bool isVirtual = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    base = isVirtual ? reinterpret_cast<uint64_t>(memory) : 0;
  }
};

/// Polls as long as the other side is told to move bytes. One byte by `starts` begins it, one by
/// `ends` has it over.
[[noreturn]] void serve(Shared& shared, const char* provider, const char* library, int starts,
                        int ends) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Endpoint own(provider, library);
  shared.addressBytes = sizeof shared.address;
  check("fi_getname", fi_getname(&own.ep->fid, shared.address, &shared.addressBytes));
  shared.base = own.base;
  char byte = 0;
  if (write(ends, &byte, 1) != 1) _exit(1);
  while (read(starts, &byte, 1) == 1) {
    int64_t before = processorUs();
    while (!shared.stopped.load(std::memory_order_relaxed)) {
      fi_cq_data_entry entry;
      fi_cq_read(own.queue, &entry, 1);
      sched_yield();
    }
    shared.targetUs = processorUs() - before;
    if (write(ends, &byte, 1) != 1) _exit(1);
  }
  _exit(0);
}

struct Result {
  uint64_t transfers = 0;
  int64_t us = 0;
  int64_t processorUs = 0;
};

class Initiator {
 public:
  Initiator(Endpoint& own, Shared& shared) : own_(own), base_(shared.base) {
    if (fi_av_insert(own.addresses, shared.address, 1, &peer_, 0, nullptr) != 1)
      fail("fi_av_insert", -1);
  }

  Result move(bool reads, size_t bytes, size_t depth, int64_t us) {
    using Clock = std::chrono::steady_clock;
    auto since = [begun = Clock::now()] {
      return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
    };
    int64_t before = processorUs();
    std::vector<size_t> ready;
    for (size_t lane = 0; lane < depth; ++lane) ready.push_back(lane);
    Result result;
    size_t underway = 0;
    // Each lane moves once at least.
    auto goesOn = [&] { return result.transfers + underway < depth || since() < us; };
    while (underway > 0 || goesOn()) {
      while (!ready.empty() && goesOn()) {
        ssize_t status = post(reads, bytes, ready.back());
        if (status == -FI_EAGAIN) break;
        check("fi_rma", status);
        ready.pop_back();
        ++underway;
      }
      fi_cq_data_entry entries[kMostDepth];
      ssize_t count = fi_cq_read(own_.queue, entries, kMostDepth);
      if (count == -FI_EAGAIN) {
        sched_yield();
        continue;
      }
      if (count < 0) fail("fi_cq_read", count);
      for (ssize_t i = 0; i < count; ++i)
        ready.push_back(
            static_cast<size_t>(static_cast<fi_context2*>(entries[i].op_context) - contexts_));
      underway -= static_cast<size_t>(count);
      result.transfers += static_cast<uint64_t>(count);
    }
    result.us = since();
    result.processorUs = processorUs() - before;
    return result;
  }

 private:
  /// Each lane has memory of its own, as far as there is room.
  ssize_t post(bool reads, size_t bytes, size_t lane) {
    size_t offset = lane % (kRegionBytes / bytes) * bytes;
    iovec local{own_.memory + offset, bytes};
    fi_rma_iov remote{base_ + offset, bytes, kKey};
    void* descriptor = fi_mr_desc(own_.registration);
    fi_msg_rma message{&local, &descriptor, 1, peer_, &remote, 1, &contexts_[lane], 0};
    if (reads) return fi_readmsg(own_.ep, &message, FI_COMPLETION);
    return fi_writemsg(own_.ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
  }

  Endpoint& own_;
  uint64_t base_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fi_context2 contexts_[kMostDepth]{};
};

}  // namespace

// libfabric finds these before libc's: the program is linked with -rdynamic.
extern "C" int connect(int fd, const sockaddr* peer, socklen_t length) {
  return static_cast<int>(syscall(SYS_connect, withControl(fd), peer, length));
}
extern "C" int accept(int fd, sockaddr* peer, socklen_t* length) {
  return withControl(static_cast<int>(syscall(SYS_accept, fd, peer, length)));
}

int main(int count, char** arguments) {
  if (count < 3) fail("usage: rma PROVIDER LIBRARY [CONGESTION_CONTROL]", -EINVAL);
  if (count > 3) congestionControl = arguments[3];
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int starts[2];
  int ends[2];
  if (shared == MAP_FAILED || pipe(starts) != 0 || pipe(ends) != 0) fail("pipe", -errno);
  // Before libfabric is loaded, which does not survive a fork.
  if (pid_t child = fork(); child < 0) {
    fail("fork", -errno);
  } else if (child == 0) {
    close(starts[1]);
    close(ends[0]);
    serve(*shared, arguments[1], arguments[2], starts[0], ends[1]);
  }
  close(starts[0]);
  close(ends[1]);
  char byte = 0;
  if (read(ends[0], &byte, 1) != 1) fail("the target has ended", -EPIPE);
  Endpoint own(arguments[1], arguments[2]);
  Initiator initiator(own, *shared);
  char operation[8];
  size_t bytes = 0;
  size_t depth = 0;
  int64_t ms = 0;
  while (std::scanf("%7s %zu %zu %ld", operation, &bytes, &depth, &ms) == 4) {
    if (bytes == 0 || bytes > kRegionBytes || depth == 0 || depth > kMostDepth)
      fail("input", -EINVAL);
    shared->stopped = false;
    if (write(starts[1], &byte, 1) != 1) fail("the target has ended", -EPIPE);
    Result result = initiator.move(std::strcmp(operation, "read") == 0, bytes, depth, ms * 1000);
    shared->stopped = true;
    if (read(ends[0], &byte, 1) != 1) fail("the target has ended", -EPIPE);
    std::printf("%llu %lld %lld\n", static_cast<unsigned long long>(result.transfers),
                static_cast<long long>(result.us),
                static_cast<long long>(result.processorUs + shared->targetUs));
    std::fflush(stdout);
  }
}
