// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/domains.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fabric/info.h"

namespace cinnabar::fabric {
namespace {

using Bit = std::pair<uint64_t, const char*>;

constexpr std::array kCapabilities = {
    Bit{FI_MSG, "FI_MSG"},
    Bit{FI_RMA, "FI_RMA"},
    Bit{FI_TAGGED, "FI_TAGGED"},
    Bit{FI_ATOMIC, "FI_ATOMIC"},
    Bit{FI_MULTI_RECV, "FI_MULTI_RECV"},
    Bit{FI_SOURCE, "FI_SOURCE"},
    Bit{FI_SOURCE_ERR, "FI_SOURCE_ERR"},
    Bit{FI_RMA_EVENT, "FI_RMA_EVENT"},
    Bit{FI_DIRECTED_RECV, "FI_DIRECTED_RECV"},
    Bit{FI_HMEM, "FI_HMEM"},
    Bit{FI_LOCAL_COMM, "FI_LOCAL_COMM"},
    Bit{FI_REMOTE_COMM, "FI_REMOTE_COMM"},
};

constexpr std::array kRegistration = {
    Bit{FI_MR_LOCAL, "FI_MR_LOCAL"},         Bit{FI_MR_RAW, "FI_MR_RAW"},
    Bit{FI_MR_VIRT_ADDR, "FI_MR_VIRT_ADDR"}, Bit{FI_MR_ALLOCATED, "FI_MR_ALLOCATED"},
    Bit{FI_MR_PROV_KEY, "FI_MR_PROV_KEY"},   Bit{FI_MR_MMU_NOTIFY, "FI_MR_MMU_NOTIFY"},
    Bit{FI_MR_RMA_EVENT, "FI_MR_RMA_EVENT"}, Bit{FI_MR_ENDPOINT, "FI_MR_ENDPOINT"},
    Bit{FI_MR_HMEM, "FI_MR_HMEM"},
};

template <size_t N>
std::vector<std::string> namesOf(uint64_t bits, const std::array<Bit, N>& table) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : table) {
    if (bits & bit) names.push_back(name);
  }
  return names;
}

std::string textOf(const char* text) { return text != nullptr ? text : ""; }

const char* nameOf(fi_link_state state) {
  switch (state) {
    case FI_LINK_UP:
      return "up";
    case FI_LINK_DOWN:
      return "down";
    default:
      return "";
  }
}

DomainReport reportOf(const fi_info& info) {
  DomainReport report;
  report.domain = textOf(info.domain_attr->name);
  report.fabric = textOf(info.fabric_attr->name);
  const auto* address = static_cast<const uint8_t*>(info.src_addr);
  if (address != nullptr) {
    auto at = decodeSocketAddress(address, info.src_addrlen);
    if (at) report.address = at->host;
  }
  report.capabilities = namesOf(info.caps, kCapabilities);
  report.registration = namesOf(static_cast<uint64_t>(info.domain_attr->mr_mode), kRegistration);
  report.injectBytes = info.tx_attr->inject_size;
  report.maxMessageBytes = info.ep_attr->max_msg_size;
  report.extents = std::min(info.tx_attr->iov_limit, info.tx_attr->rma_iov_limit);
  report.sendQueueDepth = info.tx_attr->size;
  report.receiveQueueDepth = info.rx_attr->size;
  if (info.nic == nullptr) return report;
  if (const fi_link_attr* link = info.nic->link_attr) {
    report.mtuBytes = link->mtu;
    report.bitsPerSecond = link->speed;
    report.linkState = nameOf(link->state);
    report.network = textOf(link->network_type);
  }
  if (const fi_device_attr* device = info.nic->device_attr)
    report.firmware = textOf(device->firmware);
  return report;
}

bool isSame(const DomainReport& a, const DomainReport& b) {
  return a.domain == b.domain && a.fabric == b.fabric && a.address == b.address;
}

}  // namespace

std::vector<DomainReport> domainsOf(const Library& library, const Provider& provider) {
  std::vector<DomainReport> reports;
  for (int family : {AF_INET, AF_INET6}) {
    auto list = getInfos(library, {.provider = &provider, .family = family});
    if (!list) continue;
    for (const fi_info* info = list->get(); info != nullptr; info = info->next) {
      // A name is matched loosely, see getInfo.
      if (std::string_view(info->fabric_attr->prov_name) != provider.name) continue;
      DomainReport report = reportOf(*info);
      auto same = [&](const DomainReport& known) { return isSame(known, report); };
      if (std::none_of(reports.begin(), reports.end(), same)) reports.push_back(std::move(report));
    }
  }
  return reports;
}

}  // namespace cinnabar::fabric
