// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/refusals.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <utility>

#include "fabric/linkage.h"
#include "fabric/patches.h"

#if __has_include(<rdma/rdma_cma.h>)
#include <rdma/rdma_cma.h>
#endif

namespace cinnabar::verbs {
namespace {

// What is read here of librdmacm's structures. The library keeps this ABI (RDMACM_1.0) since 2008.
// A build does not need its headers, as a start does not need the library. Where they are, they are
// compared: our own machines and the builds of binaries have them.

/// The beginning of struct rdma_cm_id, of which only librdmacm makes any.
struct ConnectionHandle {
  void* others[4];
  sockaddr_storage local;
  sockaddr_storage remote;
};

/// The beginning of struct rdma_cm_event.
struct EventHandle {
  ConnectionHandle* id;
  ConnectionHandle* listener;
  int event;
  int status;
  const void* privateData;  // of a connection
  uint8_t privateBytes;
};

// enum rdma_cm_event_type
constexpr int kRejected = 8;

#if __has_include(<rdma/rdma_cma.h>)
static_assert(offsetof(ConnectionHandle, local) == offsetof(rdma_cm_id, route.addr.src_storage));
static_assert(offsetof(ConnectionHandle, remote) == offsetof(rdma_cm_id, route.addr.dst_storage));
static_assert(offsetof(EventHandle, id) == offsetof(rdma_cm_event, id));
static_assert(offsetof(EventHandle, event) == offsetof(rdma_cm_event, event));
static_assert(offsetof(EventHandle, status) == offsetof(rdma_cm_event, status));
static_assert(offsetof(EventHandle, privateBytes) ==
              offsetof(rdma_cm_event, param.conn.private_data_len));
static_assert(sizeof(rdma_cm_event::event) == sizeof(EventHandle::event));
static_assert(kRejected == RDMA_CM_EVENT_REJECTED);
#endif

// enum ib_cm_rej_reason: InfiniBand and RoCE have no listener there. A listener's own rejection has
// another number.
constexpr int kInvalidService = 8;

// A port takes them at its next turn. One that does not come back needs no more of them.
constexpr size_t kMostRefusals = 1024;

/// The functions that were there.
struct Original {
  int (*nextEvent)(void* channel, EventHandle** event) = nullptr;
  int (*connect)(ConnectionHandle* id, void* parameters) = nullptr;
};

struct Watches {
  std::mutex mutex;
  std::vector<RefusalWatch*> all;
  bool isPatched = false;  // calls go through functions of ours
};

/// Never destroyed: libfabric's threads may outlive every destructor.
Watches& watches() {
  static auto* one = new Watches();
  return *one;
}

Original original;
std::atomic<bool> awaitsRefusals{false};

fabric::RawAddress rawAddress(const sockaddr_storage& address) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&address);
  size_t length = address.ss_family == AF_INET6  ? sizeof(sockaddr_in6)
                  : address.ss_family == AF_INET ? sizeof(sockaddr_in)
                                                 : 0;
  return {bytes, bytes + length};
}

/// Whether the address has no listener. A listener that rejects sends data of its own (rxm).
bool isRefusal(const EventHandle& handle) {
  if (handle.event != kRejected || handle.id == nullptr) return false;
  return handle.status == kInvalidService ||
         (handle.status == -ECONNREFUSED && handle.privateBytes == 0);
}

void tellRefused(const ConnectionHandle& id, bool isInside) {
  tellRefusal({rawAddress(id.local), rawAddress(id.remote), isInside});
}

/// Replaces rdma_get_cm_event.
int nextEvent(void* channel, EventHandle** event) {
  int status = original.nextEvent(channel, event);
  if (status != 0) return status;
  if (awaitsRefusals.load(std::memory_order_relaxed) && isRefusal(**event))
    tellRefused(*(*event)->id, false);
  return status;
}

/// Replaces rdma_connect.
int connect(ConnectionHandle* id, void* parameters) {
  int status = original.connect(id, parameters);
  if (status == 0) return status;
  int code = errno;
  if (code == ECONNREFUSED && awaitsRefusals.load(std::memory_order_relaxed))
    tellRefused(*id, true);
  errno = code;
  return status;
}

template <typename F>
void* replacement(F* function) {
  return reinterpret_cast<void*>(function);
}

/// A function of a library that is there already; nullptr if it is not.
template <typename F>
void find(const char* library, const char* name, F** into) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return;
  *into = reinterpret_cast<F*>(dlsym(handle, name));
  dlclose(handle);
}

/// Has libfabric's calls pass by, within the lock of the watches, where they can be found.
void patch(Watches& known) {
  Original found;
  find("librdmacm.so.1", "rdma_get_cm_event", &found.nextEvent);
  find("librdmacm.so.1", "rdma_connect", &found.connect);
  if (found.nextEvent == nullptr || found.connect == nullptr) return;
  original = found;
  if (fabric::replaceInLibfabric("rdma_get_cm_event", replacement(nextEvent)) == 0) return;
  fabric::replaceInLibfabric("rdma_connect", replacement(connect));
  known.isPatched = true;
  fabric::notePatched(fabric::Patch::connectionRefusals);
}

}  // namespace

std::unique_ptr<RefusalWatch> RefusalWatch::open(const fabric::RawAddress& own) {
  auto decoded = fabric::decodeSocketAddress(own.data(), own.size());
  if (!decoded || !fabric::allowsPatch(fabric::Patch::connectionRefusals)) return nullptr;
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  if (!known.isPatched) patch(known);
  std::unique_ptr<RefusalWatch> watch(new RefusalWatch(decoded->host));
  known.all.push_back(watch.get());
  awaitsRefusals = true;
  return watch;
}

RefusalWatch::~RefusalWatch() {
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  std::erase(known.all, this);
  awaitsRefusals = !known.all.empty();
}

std::vector<Refusal> RefusalWatch::take() {
  std::lock_guard lock(watches().mutex);
  news_ = false;
  return std::exchange(refusals_, {});
}

void tellRefusal(const Refusal& refusal) {
  auto from = fabric::decodeSocketAddress(refusal.local.data(), refusal.local.size());
  if (!from) return;
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  for (RefusalWatch* watch : known.all) {
    if (watch->host_ != from->host || watch->refusals_.size() >= kMostRefusals) continue;
    watch->refusals_.push_back(refusal);
    watch->news_ = true;
  }
}

}  // namespace cinnabar::verbs
