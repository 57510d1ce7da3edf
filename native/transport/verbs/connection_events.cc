// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/connection_events.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "fabric/linkage.h"
#include "fabric/patches.h"
#include "transport/verbs/rdma_abi.h"

namespace cinnabar::verbs {
namespace {

// enum rdma_cm_event_type
constexpr int kRejected = 8, kEstablished = 9;
// enum ib_cm_rej_reason: InfiniBand and RoCE know nobody who listens. What a listener says of
// itself has another number.
constexpr int kInvalidService = 8;
// enum ibv_qp_attr_mask
constexpr int kPathMtu = 1 << 8, kCapacity = 1 << 19, kPeerNumber = 1 << 20;

// A peer can make as many events as it likes; who does not take them hears how many were lost.
constexpr size_t kMostEvents = 1024;

/// The functions that were there.
struct Original {
  int (*nextEvent)(void* channel, EventHandle** event) = nullptr;
  int (*resolveAddress)(ConnectionHandle* id, sockaddr* from, sockaddr* to,
                        int timeoutMs) = nullptr;
  int (*connect)(ConnectionHandle* id, void* parameters) = nullptr;
  const char* (*deviceName)(Device* device) = nullptr;
  int (*queryQueuePair)(QueuePairHandle* pair, QueuePairState* state, int mask,
                        QueuePairRequest* request) = nullptr;
  int (*querySharedReceives)(SharedReceiveQueue* queue, SharedReceiveState* state) = nullptr;
};

struct Watches {
  std::mutex mutex;
  std::vector<ConnectionWatch*> all;
  std::vector<RefusalWatch*> ofRefusals;
  // Which calls go through functions of ours.
  bool readsEvents = false;
  bool resolves = false;
  bool connects = false;
};

/// Never destroyed: libfabric's threads may outlive every destructor.
Watches& watches() {
  static auto* one = new Watches();
  return *one;
}

Original original;
std::atomic<bool> isWatched{false};
std::atomic<bool> awaitsRefusals{false};

fabric::RawAddress rawAddress(const sockaddr_storage& address) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&address);
  size_t length = address.ss_family == AF_INET6  ? sizeof(sockaddr_in6)
                  : address.ss_family == AF_INET ? sizeof(sockaddr_in)
                                                 : 0;
  return {bytes, bytes + length};
}

std::optional<QueuePair> granted(QueuePairHandle* handle) {
  if (handle == nullptr || original.queryQueuePair == nullptr) return std::nullopt;
  QueuePairState state{};
  QueuePairRequest request{};
  int mask = kPathMtu | kCapacity | kPeerNumber;
  if (original.queryQueuePair(handle, &state, mask, &request) != 0) return std::nullopt;
  QueuePair pair;
  pair.number = handle->number;
  pair.peerNumber = state.peerNumber;
  // enum ibv_mtu: 1 is 256 bytes, and each further one twice as much.
  if (state.pathMtu >= 1 && state.pathMtu <= 5) pair.mtuBytes = 128u << state.pathMtu;
  pair.sendDepth = state.capacity.sendDepth;
  pair.receiveDepth = state.capacity.receiveDepth;
  pair.sendSegments = state.capacity.sendSegments;
  pair.receiveSegments = state.capacity.receiveSegments;
  pair.inlineBytes = state.capacity.inlineBytes;
  if (handle->sendCompletions != nullptr)
    pair.completionDepth = static_cast<uint32_t>(handle->sendCompletions->depth);
  SharedReceiveState shared{};
  pair.sharesReceives = handle->shared != nullptr;
  if (pair.sharesReceives && original.querySharedReceives != nullptr &&
      original.querySharedReceives(handle->shared, &shared) == 0) {
    pair.receiveDepth = shared.depth;
    pair.receiveSegments = shared.segments;
  }
  return pair;
}

void tell(const EventHandle& handle) {
  ConnectionEvent event;
  event.event = handle.event;
  event.status = handle.status;
  if (const ConnectionHandle* id = handle.id) {
    event.local = rawAddress(id->local);
    event.remote = rawAddress(id->remote);
    if (id->verbs != nullptr && original.deviceName != nullptr)
      event.device = original.deviceName(id->verbs->device);
    if (handle.event == kEstablished) event.queuePair = granted(id->queuePair);
  }
  tellWatches(event);
}

/// Whether nobody listens. A listener that rejects says so with data of its own (rxm).
bool isRefusal(const EventHandle& handle) {
  if (handle.event != kRejected || handle.id == nullptr) return false;
  return handle.status == kInvalidService ||
         (handle.status == -ECONNREFUSED && handle.privateBytes == 0);
}

void tellRefused(const ConnectionHandle& id, bool isInside) {
  tellRefusal({rawAddress(id.local), rawAddress(id.remote), isInside});
}

/// In the place of rdma_get_cm_event.
int nextEvent(void* channel, EventHandle** event) {
  int status = original.nextEvent(channel, event);
  if (status != 0) return status;
  if (isWatched.load(std::memory_order_relaxed)) tell(**event);
  if (awaitsRefusals.load(std::memory_order_relaxed) && isRefusal(**event))
    tellRefused(*(*event)->id, false);
  return status;
}

/// In the place of rdma_connect.
int connect(ConnectionHandle* id, void* parameters) {
  int status = original.connect(id, parameters);
  if (status == 0) return status;
  int code = errno;
  if (code == ECONNREFUSED && awaitsRefusals.load(std::memory_order_relaxed))
    tellRefused(*id, true);
  errno = code;
  return status;
}

/// In the place of rdma_resolve_addr. Without a channel of its own an identifier waits for the
/// event inside, and keeps it (libfabric up to 1.17 does so); with one it comes as the others.
int resolveAddress(ConnectionHandle* id, sockaddr* from, sockaddr* to, int timeoutMs) {
  int status = original.resolveAddress(id, from, to, timeoutMs);
  int code = errno;
  if (id->event != nullptr && isWatched.load(std::memory_order_relaxed)) tell(*id->event);
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

/// Has libfabric's events pass by; within the lock of the watches. "" or why not.
std::string readEvents(Watches& known) {
  if (known.readsEvents) return "";
  Original found;
  find("librdmacm.so.1", "rdma_get_cm_event", &found.nextEvent);
  find("librdmacm.so.1", "rdma_resolve_addr", &found.resolveAddress);
  find("librdmacm.so.1", "rdma_connect", &found.connect);
  find("libibverbs.so.1", "ibv_get_device_name", &found.deviceName);
  find("libibverbs.so.1", "ibv_query_qp", &found.queryQueuePair);
  find("libibverbs.so.1", "ibv_query_srq", &found.querySharedReceives);
  if (found.nextEvent == nullptr || found.resolveAddress == nullptr || found.connect == nullptr)
    return "librdmacm.so.1 is not loaded";
  original = found;
  if (fabric::replaceInLibfabric("rdma_get_cm_event", replacement(nextEvent)) == 0)
    return "this libfabric does not call rdma_get_cm_event by its linkage table";
  known.readsEvents = true;
  return "";
}

}  // namespace

std::unique_ptr<ConnectionWatch> ConnectionWatch::open(std::string* reason) {
  base::Fd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd) {
    *reason = std::string("eventfd: ") + strerror(errno);
    return nullptr;
  }
  if (!fabric::allowsPatch(fabric::Patch::connectionEvents)) {
    *reason = "off; CINNABAR_PATCHES=connection-events switches it on";
    return nullptr;
  }
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  if (!known.resolves) {
    *reason = readEvents(known);
    if (!reason->empty()) return nullptr;
    fabric::replaceInLibfabric("rdma_resolve_addr", replacement(resolveAddress));
    known.resolves = true;
    fabric::notePatched(fabric::Patch::connectionEvents);
  }
  std::unique_ptr<ConnectionWatch> watch(new ConnectionWatch(std::move(fd)));
  known.all.push_back(watch.get());
  isWatched = true;
  return watch;
}

ConnectionWatch::~ConnectionWatch() {
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  std::erase(known.all, this);
  isWatched = !known.all.empty();
}

void tellWatches(const ConnectionEvent& event) {
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  for (ConnectionWatch* watch : known.all) watch->note(event);
}

void ConnectionWatch::note(const ConnectionEvent& event) {
  if (events_.size() < kMostEvents) {
    events_.push_back(event);
  } else {
    ++lost_;
  }
  eventfd_write(fd_.get(), 1);
}

std::vector<ConnectionEvent> ConnectionWatch::take(uint64_t* lost) {
  std::lock_guard lock(watches().mutex);
  eventfd_t rings;
  eventfd_read(fd_.get(), &rings);
  std::vector<ConnectionEvent> taken(std::make_move_iterator(events_.begin()),
                                     std::make_move_iterator(events_.end()));
  events_.clear();
  *lost = lost_;
  lost_ = 0;
  return taken;
}

std::unique_ptr<RefusalWatch> RefusalWatch::open(const fabric::RawAddress& own) {
  auto decoded = fabric::decodeSocketAddress(own.data(), own.size());
  if (!decoded || !fabric::allowsPatch(fabric::Patch::connectionRefusals)) return nullptr;
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  if (!known.connects && readEvents(known).empty()) {
    fabric::replaceInLibfabric("rdma_connect", replacement(connect));
    known.connects = true;
    fabric::notePatched(fabric::Patch::connectionRefusals);
  }
  std::unique_ptr<RefusalWatch> watch(new RefusalWatch(decoded->host));
  known.ofRefusals.push_back(watch.get());
  awaitsRefusals = true;
  return watch;
}

RefusalWatch::~RefusalWatch() {
  Watches& known = watches();
  std::lock_guard lock(known.mutex);
  std::erase(known.ofRefusals, this);
  awaitsRefusals = !known.ofRefusals.empty();
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
  for (RefusalWatch* watch : known.ofRefusals) {
    // A port takes them at its next turn. One that does not come back needs no more of them.
    if (watch->host_ != from->host || watch->refusals_.size() >= kMostEvents) continue;
    watch->refusals_.push_back(refusal);
    watch->news_ = true;
  }
}

}  // namespace cinnabar::verbs
