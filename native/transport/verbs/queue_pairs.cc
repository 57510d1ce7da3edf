// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/queue_pairs.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fabric/providers.h"
#include "fabric/signals.h"
#include "fabric/verbs_report.h"

namespace cinnabar::verbs {
namespace {

using fabric::Failure;
using fabric::InfoDeleter;
using fabric::InfoPtr;
using fabric::Library;
using fabric::Result;

constexpr const char* kDevices = "verbs";
// Keys of the epoll set for other descriptors than those of queue pairs, whose numbers have 32
// bits.
constexpr uint64_t kConnections = uint64_t{1} << 32, kBell = kConnections + 1;

/// Asks for connected endpoints that listen at an address.
Result<InfoPtr> infoFor(const Library& library, const std::string& provider,
                        const std::string& host, uint16_t port, int family) {
  InfoPtr hints(library.dupinfo(nullptr), InfoDeleter{&library});
  if (!hints) return library.fail("fi_allocinfo", FI_ENOMEM, "no memory for fi_info");
  hints->fabric_attr->prov_name = strdup(provider.c_str());
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = fabric::servedRegistration();
  hints->addr_format = family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  uint32_t api =
      std::min<uint32_t>(library.loadedVersion, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
  fabric::SignalKeeper keeper;
  fi_info* list = nullptr;
  int status = library.getinfo(api, host.c_str(), std::to_string(port).c_str(),
                               FI_SOURCE | FI_NUMERICHOST, hints.get(), &list);
  if (status != 0)
    return library.fail("fi_getinfo", status, "verbs offers no connected endpoint here");
  return InfoPtr(list, InfoDeleter{&library});
}

}  // namespace

Result<std::unique_ptr<QueuePairs>> QueuePairs::listen(const Library& library,
                                                       const std::string& host, uint16_t port,
                                                       uint32_t mostPairs,
                                                       const std::string& provider) {
  std::unique_ptr<QueuePairs> made(new QueuePairs(library, provider, mostPairs));
  auto started = made->start(host, port);
  if (started) return made;
  if (provider != kDevices) return started.failure();
  auto source = fabric::encodeSocketAddress(host, port);
  return fabric::explainVerbs(library,
                              *fabric::providerOf(fabric::Scheme::verbs, library.loadedVersion),
                              source.value_or(fabric::RawAddress()), started.failure());
}

Result<bool> QueuePairs::start(const std::string& host, uint16_t port) {
  auto source = fabric::encodeSocketAddress(host, port);
  if (host.empty() || !source)
    return library_.fail("listen", FI_EINVAL, "the host must be a numeric address");
  std::string obstacle = provider_ == kDevices ? fabric::lockedMemoryObstacle() : "";
  if (!obstacle.empty()) return library_.fail(provider_, FI_ENOMEM, obstacle);
  int family = fabric::familyOf(source->data(), source->size());
  auto found = infoFor(library_, provider_, host, port, family);
  if (!found) return found.failure();
  fi_info* info = found->get();
  auto fail = [&](const char* op, int status) {
    return library_.fail(op, status, std::string(op) + " of provider " + provider_ + " failed");
  };

  epoll_ = base::Fd(epoll_create1(EPOLL_CLOEXEC));
  bell_ = base::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !bell_) return library_.fail("epoll_create1", errno, strerror(errno));

  fid_fabric* fabric = nullptr;
  int status = library_.fabric(info->fabric_attr, &fabric, nullptr);
  if (status != 0) return fail("fi_fabric", status);
  fabric_.reset(fabric);

  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* connections = nullptr;
  status = fi_eq_open(fabric, &attributes, &connections, nullptr);
  if (status != 0) return fail("fi_eq_open", status);
  connections_.reset(connections);
  int fd = -1;
  status = fi_control(&connections->fid, FI_GETWAIT, &fd);
  if (status != 0) return fail("FI_GETWAIT", status);

  fid_domain* domain = nullptr;
  status = fi_domain(fabric, info, &domain, nullptr);
  if (status != 0) return fail("fi_domain", status);
  domain_.reset(domain);

  fid_pep* listener = nullptr;
  status = fi_passive_ep(fabric, info, &listener, nullptr);
  if (status != 0) return fail("fi_passive_ep", status);
  listener_.reset(listener);
  status = fi_pep_bind(listener, &connections->fid, 0);
  if (status != 0) return fail("fi_pep_bind", status);
  status = fi_listen(listener);
  if (status != 0) return fail("fi_listen", status);

  fabric::RawAddress name(256);
  size_t length = name.size();
  status = fi_getname(&listener->fid, name.data(), &length);
  auto bound = status == 0 ? fabric::decodeSocketAddress(name.data(), std::min(length, name.size()))
                           : std::nullopt;
  if (!bound) return fail("fi_getname", status);
  address_ = *bound;

  status = watch(fd, kConnections);
  if (status == 0) status = watch(bell_.get(), kBell);
  if (status != 0) return library_.fail("epoll_ctl", status, strerror(-status));
  return true;
}

QueuePairs::~QueuePairs() {
  std::vector<uint32_t> all;
  for (const auto& [number, pair] : pairs_) all.push_back(number);
  for (uint32_t number : all) close(number);
}

int QueuePairs::registerMemory(uint8_t* bytes, size_t length) {
  fid_mr* mr = nullptr;
  uint32_t number = ++lastMemory_ & INT32_MAX;
  // Some providers want the key from the caller: the number is the key.
  int status = fi_mr_reg(domain_.get(), bytes, length, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0,
                         number, 0, &mr, nullptr);
  if (status != 0) return status;
  memories_.insert_or_assign(number, Memory{fabric::Fid<fid_mr>(mr), bytes, length});
  return static_cast<int>(number);
}

void QueuePairs::deregister(uint32_t memory) { memories_.erase(memory); }

int QueuePairs::open(uint32_t number, uint32_t sends, uint32_t receives) {
  auto found = pairs_.find(number);
  if (found == pairs_.end() || found->second.endpoint || !found->second.info) return -FI_EINVAL;
  Pair& pair = found->second;
  fi_info* info = pair.info.get();
  info->tx_attr->size = sends;
  info->rx_attr->size = receives;

  fi_cq_attr attributes{};
  attributes.size = size_t{sends} + receives;
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* completions = nullptr;
  int status = fi_cq_open(domain_.get(), &attributes, &completions, nullptr);
  if (status != 0) return status;
  pair.completions.reset(completions);
  status = fi_control(&completions->fid, FI_GETWAIT, &pair.fd);
  if (status == 0) status = watch(pair.fd, number);
  if (status != 0) {
    pair.fd = -1;
    return status;
  }

  fid_ep* endpoint = nullptr;
  status = fi_endpoint(domain_.get(), info, &endpoint, nullptr);
  if (status != 0) return status;
  pair.endpoint.reset(endpoint);
  status = fi_ep_bind(endpoint, &connections_->fid, 0);
  if (status != 0) return status;
  status = fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV);
  if (status != 0) return status;
  status = fi_enable(endpoint);
  if (status != 0) return status;
  // The descriptor reports completions once the queue has been read to its end.
  pair.isReady = true;
  ready_.push_back(number);
  ring();
  return 0;
}

int QueuePairs::accept(uint32_t number) {
  auto found = pairs_.find(number);
  if (found == pairs_.end() || !found->second.endpoint || !found->second.info) return -FI_EINVAL;
  int status = fi_accept(found->second.endpoint.get(), nullptr, 0);
  if (status == 0) found->second.info.reset();
  return status;
}

void QueuePairs::close(uint32_t number) {
  if (!pairs_.contains(number)) return;
  // Events of the endpoint must not lie in the provider's list when it goes: from 1.19 on one that
  // stays there is taken for a pointer (quirks.cc, crashesOnDisconnect). The table of pairs may
  // grow by it.
  readConnections();
  auto found = pairs_.find(number);
  Pair& pair = found->second;
  if (pair.info) refuse(pair);
  if (pair.fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pair.fd, nullptr);
  std::erase(ready_, number);
  pair.endpoint.reset();
  pairs_.erase(found);
  std::erase_if(events_, [number](const QueuePairEvent& event) { return event.pair == number; });
  if (!events_.empty()) ring();
}

int QueuePairs::post(uint32_t number, const Posted& posted) {
  auto found = pairs_.find(number);
  auto memory = memories_.find(posted.memory);
  if (found == pairs_.end() || !found->second.endpoint) return -FI_EINVAL;
  if (memory == memories_.end() || posted.length == 0 || posted.offset > memory->second.length ||
      posted.length > memory->second.length - posted.offset)
    return -FI_EINVAL;
  fid_ep* endpoint = found->second.endpoint.get();
  uint8_t* bytes = memory->second.bytes + posted.offset;
  void* descriptor = fi_mr_desc(memory->second.mr.get());
  void* context = reinterpret_cast<void*>(uintptr_t{posted.token});
  size_t length = posted.length;
  ssize_t status = -FI_EINVAL;
  switch (posted.work) {
    case Work::receive:
      status = fi_recv(endpoint, bytes, length, descriptor, 0, context);
      break;
    case Work::send:
      status = fi_send(endpoint, bytes, length, descriptor, 0, context);
      break;
    case Work::read:
      status = fi_read(endpoint, bytes, length, descriptor, 0, posted.address, posted.key, context);
      break;
    case Work::write:
      status =
          fi_write(endpoint, bytes, length, descriptor, 0, posted.address, posted.key, context);
      break;
  }
  return static_cast<int>(status);
}

size_t QueuePairs::take(QueuePairEvent* into, size_t most) {
  learnReady();
  // Pairs that are read move behind those that wait, so that a pair with many completions is not
  // first again.
  std::vector<uint32_t> read;
  for (uint32_t number : std::exchange(ready_, {})) {
    Pair& pair = pairs_.at(number);
    bool isRead = !pair.isOver && events_.size() < most;
    if (isRead) readCompletions(number, pair, most);
    if (!pair.isOver && pair.isReady) (isRead ? read : ready_).push_back(number);
  }
  ready_.insert(ready_.end(), read.begin(), read.end());
  if (hasConnectionEvents_) readConnections();
  size_t count = std::min(most, events_.size());
  std::copy_n(events_.begin(), count, into);
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count));
  if (!events_.empty() || !ready_.empty()) ring();
  return count;
}

int QueuePairs::watch(int fd, uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = what;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

void QueuePairs::learnReady() {
  std::array<epoll_event, 64> told;
  int count = epoll_wait(epoll_.get(), told.data(), static_cast<int>(told.size()), 0);
  for (int i = 0; i < count; ++i) {
    uint64_t what = told[static_cast<size_t>(i)].data.u64;
    if (what == kConnections) hasConnectionEvents_ = true;
    if (what == kBell) {
      eventfd_t rings;
      eventfd_read(bell_.get(), &rings);
    }
    auto found = what < kConnections ? pairs_.find(static_cast<uint32_t>(what)) : pairs_.end();
    if (found == pairs_.end() || found->second.isReady || found->second.isOver) continue;
    found->second.isReady = true;
    ready_.push_back(found->first);
  }
}

void QueuePairs::readCompletions(uint32_t number, Pair& pair, size_t most) {
  std::array<fi_cq_msg_entry, 16> entries;
  while (events_.size() < most) {
    size_t room = std::min(entries.size(), most - events_.size());
    ssize_t count = fi_cq_read(pair.completions.get(), entries.data(), room);
    if (count == -FI_EAGAIN || count == 0) {
      fid* queue = &pair.completions->fid;
      int status = fi_trywait(fabric_.get(), &queue, 1);
      if (status == -FI_EAGAIN) return;  // the bell calls again
      if (status != 0) return end(number, pair, -status);
      pair.isReady = false;
      return;
    }
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(pair.completions.get(), &error, 0);
      // The provider may have noted the end of the connection as it read this.
      hasConnectionEvents_ = true;
      return end(number, pair, error.err == 0 ? FI_EIO : error.err);
    }
    if (count < 0) return end(number, pair, static_cast<int>(-count));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      auto token = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(entries[i].op_context));
      events_.push_back({QueuePairEvent::Kind::completed, number, token, 0,
                         static_cast<uint32_t>(entries[i].len)});
    }
  }
}

void QueuePairs::readConnections() {
  hasConnectionEvents_ = false;
  for (;;) {
    // With room for the private data of a request.
    alignas(fi_eq_cm_entry) std::array<uint8_t, sizeof(fi_eq_cm_entry) + 512> buffer;
    uint32_t event = 0;
    ssize_t got = fi_eq_read(connections_.get(), &event, buffer.data(), buffer.size(), 0);
    if (got == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(connections_.get(), &error, 0);
      endOf(error.fid, error.err == 0 ? FI_EIO : error.err);
      continue;
    }
    if (got < 0) return;
    fi_eq_cm_entry entry;
    std::memcpy(&entry, buffer.data(), sizeof entry);
    if (event == FI_CONNREQ) request(entry.info);
    if (event == FI_SHUTDOWN) endOf(entry.fid, 0);
  }
}

void QueuePairs::request(fi_info* asked) {
  Pair pair;
  pair.info = InfoPtr(asked, InfoDeleter{&library_});
  if (pairs_.size() >= mostPairs_) return refuse(pair);
  uint32_t number = ++lastPair_;
  pairs_[number] = std::move(pair);
  events_.push_back({QueuePairEvent::Kind::requested, number, 0, 0, 0});
}

/// verbs up to 1.18 leaks the device's connection of a rejected request (vrb_msg_ep_reject): a peer
/// with enough requests would take all. So an endpoint gets the request and frees the connection as
/// it closes; the peer is refused then. The rejection only frees the rest of the request.
void QueuePairs::refuse(Pair& pair) {
  bool isDevice = provider_ == kDevices;
  fid_ep* endpoint = nullptr;
  if (isDevice && !pair.endpoint &&
      fi_endpoint(domain_.get(), pair.info.get(), &endpoint, nullptr) == 0)
    pair.endpoint.reset(endpoint);
  if (isDevice || !pair.endpoint) fi_reject(listener_.get(), pair.info->handle, nullptr, 0);
}

void QueuePairs::end(uint32_t number, Pair& pair, int status) {
  pair.isReady = false;
  if (pair.isOver) return;
  pair.isOver = true;
  if (pair.fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pair.fd, nullptr);
  events_.push_back(
      {QueuePairEvent::Kind::ended, number, 0, static_cast<uint32_t>(std::abs(status)), 0});
}

/// An event may be of an endpoint that was closed meanwhile: its address is compared, and not read.
void QueuePairs::endOf(const fid* endpoint, int status) {
  for (auto& [number, pair] : pairs_) {
    if (pair.endpoint && &pair.endpoint->fid == endpoint) return end(number, pair, status);
  }
}

void QueuePairs::ring() { eventfd_write(bell_.get(), 1); }

}  // namespace cinnabar::verbs
