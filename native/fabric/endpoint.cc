// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "fabric/quirks.h"

namespace cinnabar::fabric {
namespace {

// Sized on purpose: rxm's default would take tens of megabytes. A queue that overflows grows by
// single entries.
constexpr size_t kQueueEntries = 1024;
constexpr size_t kExpectedAddresses = 64;
// The addresses of ucx have about a hundred bytes, all others 32 or fewer.
constexpr size_t kLongestName = 1024;
constexpr size_t kMostDrainTurns = 1024;
// Twice what rxm lets pass between two looks at its connections, and some.
constexpr auto kRest = std::chrono::milliseconds(25);

// What soft-iWARP sends instead of a longer header (MAX_HDR_INLINE of its siw_qp_tx.c).
constexpr size_t kTornBytes = 32;

/// The value of libfabric's variable; 0 if it is not a number.
size_t numberIn(const char* variable) {
  const char* value = getenv(variable);
  return value == nullptr ? 0 : strtoul(value, nullptr, 0);
}

template <typename T>
void adopt(Fid<T>& holder, T* object) {
  holder.reset(object);
}

/// The member of a queue's epoll set that watches the provider's sockets, an epoll set itself.
/// Completions of our own calls do not show there, but those are read after fi_trywait anyway. -1
/// without such a member.
int socketWaitFd(int queueFd) {
  // One "tfd:" line a member (proc(5), /proc/pid/fdinfo).
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(queueFd));
  for (std::string word; info >> word;) {
    int member = -1;
    if (word != "tfd:" || !(info >> member)) continue;
    std::string path = "/proc/self/fd/" + std::to_string(member);
    char target[64];
    ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length > 0 &&
        std::string_view(target, static_cast<size_t>(length)) == "anon_inode:[eventpoll]") {
      return member;
    }
  }
  return -1;
}

Granted grantedBy(const fi_info& info) {
  Granted granted;
  if (info.domain_attr->name != nullptr) granted.device = info.domain_attr->name;
  if (info.nic != nullptr && info.nic->link_attr != nullptr)
    granted.mtuBytes = info.nic->link_attr->mtu;
  granted.sendDepth = info.tx_attr->size;
  granted.receiveDepth = info.rx_attr->size;
  granted.completionDepth = kQueueEntries;
  granted.injectBytes = info.tx_attr->inject_size;
  granted.maxMessageBytes = info.ep_attr->max_msg_size;
  granted.localExtents = info.tx_attr->iov_limit;
  granted.remoteExtents = info.tx_attr->rma_iov_limit;
  return granted;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::open(const Library& library,
                                                 const InfoRequest& request) {
  Result<InfoPtr> found = getInfo(library, request);
  if (!found) return found.failure();
  Parts parts;
  parts.info = std::move(*found);
  fi_info* info = parts.info.get();
  EndpointTraits traits;
  traits.provider = info->fabric_attr->prov_name;
  traits.providerVersion = info->fabric_attr->prov_version;
  traits.injectBytes = traits.sayBytes = info->tx_attr->inject_size;
  traits.maxMessageBytes = info->ep_attr->max_msg_size;
  traits.extents = std::min(info->tx_attr->iov_limit, info->tx_attr->rma_iov_limit);
  traits.extents = std::clamp<size_t>(traits.extents, 1, kMostExtentsAtOnce);
  traits.mrMode = info->domain_attr->mr_mode;
  traits.granted = grantedBy(*info);
  auto has = [&](Quirk quirk) {
    return hasQuirk(quirk, traits.provider, library.loadedVersion, info->fabric_attr->name);
  };
  traits.drainBeforeClose = has(Quirk::drainBeforeClose);
  if (has(Quirk::losesInjected)) traits.injectBytes = 0;
  if (has(Quirk::sizedForPeers)) traits.maxPeers = numberIn("FI_UNIVERSE_SIZE");
  traits.provesWrites = has(Quirk::completesOnDeparture);
  // Unless the user wants a cache of registrations, see quirks.cc.
  bool isCached = numberIn("FI_MR_CACHE_MAX_COUNT") > 0;
  traits.revokesKeys =
      request.provider->scheme == Scheme::verbs && !traits.provesWrites && !isCached;
  traits.endsConnections = has(Quirk::endsConnections);
  if (has(Quirk::tearsShortExtents)) traits.tornBytes = kTornBytes;
  if (has(Quirk::crashesOnDisconnect)) traits.rest = kRest;
  traits.hidesRefusals = has(Quirk::hidesRefusals);
  traits.trustsStreams = has(Quirk::trustsStreams);
  if (has(Quirk::copiesMessages)) traits.messageRights = FI_WRITE;
  // Whether a write can carry data to its target. The target's completion then also has the number
  // of bytes.
  if (!has(Quirk::hidesWrites) && info->domain_attr->cq_data_size >= sizeof(uint64_t))
    traits.immediateBytes = sizeof(uint64_t);
  auto fail = [&](const char* op, int status) {
    return library.fail(op, status,
                        std::string(op) + " of provider " + traits.provider + " failed");
  };

  fid_fabric* fabric = nullptr;
  int status = library.fabric(info->fabric_attr, &fabric, nullptr);
  if (status != 0) return fail("fi_fabric", status);
  adopt(parts.fabric, fabric);

  fid_domain* domain = nullptr;
  status = fi_domain(fabric, info, &domain, nullptr);
  if (status != 0) return fail("fi_domain", status);
  adopt(parts.domain, domain);

  fi_av_attr avAttr{};
  avAttr.type = FI_AV_UNSPEC;
  avAttr.count = kExpectedAddresses;
  fid_av* av = nullptr;
  status = fi_av_open(domain, &avAttr, &av, nullptr);
  if (status != 0) return fail("fi_av_open", status);
  adopt(parts.av, av);

  fi_cq_attr cqAttr{};
  cqAttr.size = kQueueEntries;
  cqAttr.format = FI_CQ_FORMAT_DATA;
  cqAttr.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  status = fi_cq_open(domain, &cqAttr, &cq, nullptr);
  bool isPolled = status == -FI_ENOSYS || status == -FI_EOPNOTSUPP || status == -FI_EINVAL;
  if (isPolled) {
    cqAttr.wait_obj = FI_WAIT_NONE;
    status = fi_cq_open(domain, &cqAttr, &cq, nullptr);
  }
  if (status != 0) return fail("fi_cq_open", status);
  adopt(parts.cq, cq);
  if (!isPolled) {
    status = fi_control(&cq->fid, FI_GETWAIT, &traits.waitFd);
    if (status != 0) return fail("FI_GETWAIT", status);
  }
  int inner = has(Quirk::innerWaitFd) ? socketWaitFd(traits.waitFd) : -1;
  if (inner >= 0) traits.waitFd = inner;
  // Both are the provider whose descriptor is the epoll set of its sockets; rxm loses wake-ups.
  traits.tellsReliably = traits.provider == "net" || traits.provider == "tcp";

  fid_ep* ep = nullptr;
  status = fi_endpoint(domain, info, &ep, nullptr);
  if (status != 0) return fail("fi_endpoint", status);
  adopt(parts.ep, ep);
  status = fi_ep_bind(ep, &av->fid, 0);
  if (status != 0) return fail("fi_ep_bind", status);
  status = fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV);
  if (status != 0) return fail("fi_ep_bind", status);
  status = fi_enable(ep);
  if (status != 0) return fail("fi_enable", status);
  return std::make_unique<Endpoint>(std::move(parts), std::move(traits));
}

RawAddress Endpoint::name() const {
  RawAddress raw(kLongestName);
  size_t length = raw.size();
  if (fi_getname(&parts_.ep->fid, raw.data(), &length) != 0 || length > raw.size()) return {};
  raw.resize(length);
  return raw;
}

void Endpoint::shut() {
  if (traits_.drainBeforeClose && parts_.cq) drain();
  parts_.ep.reset();
  parts_.cq.reset();
  parts_.av.reset();
}

/// Reads what is in the queue and forgets it, for so long as a peer that floods us may hold us up.
void Endpoint::drain() {
  fi_cq_data_entry entries[64];
  for (size_t turn = 0; turn < kMostDrainTurns; ++turn) {
    ssize_t count = read(entries, std::size(entries));
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      count = readError(&error);
    }
    if (count <= 0) return;
  }
}

int Endpoint::tryWait() const {
  if (traits_.waitFd < 0) return 0;
  fid* queue = &parts_.cq->fid;
  return fi_trywait(parts_.fabric.get(), &queue, 1);
}

fi_addr_t Endpoint::insert(const uint8_t* address) {
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  int inserted = fi_av_insert(parts_.av.get(), address, 1, &index, 0, nullptr);
  if (inserted != 1) return FI_ADDR_NOTAVAIL;
  ++uses_[index];
  return index;
}

void Endpoint::remove(fi_addr_t address) {
  auto found = uses_.find(address);
  if (found == uses_.end() || --found->second > 0) return;
  uses_.erase(found);
  fi_av_remove(parts_.av.get(), &address, 1, 0);
}

}  // namespace cinnabar::fabric
