// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/needs.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "fabric/endpoint.h"
#include "fabric/signals.h"

namespace cinnabar::fabric {
namespace {

/// One thing that is asked of every provider, alone: who fails it lacks it.
struct Need {
  const char* name;
  void (*ask)(fi_info& hints);
};
constexpr std::array kNeeds = {
    Need{"reliable datagrams (FI_EP_RDM)", [](fi_info& hints) { hints.ep_attr->type = FI_EP_RDM; }},
    Need{"messages (FI_MSG)", [](fi_info& hints) { hints.caps = FI_MSG; }},
    Need{"reading and writing a peer's memory (FI_RMA)",
         [](fi_info& hints) { hints.caps = FI_RMA; }},
    Need{"messages in the order they were sent (FI_ORDER_SAS)",
         [](fi_info& hints) {
           hints.tx_attr->msg_order = FI_ORDER_SAS;
           hints.rx_attr->msg_order = FI_ORDER_SAS;
         }},
    Need{"memory registration without FI_MR_ENDPOINT, FI_MR_RAW, FI_MR_RMA_EVENT or "
         "FI_MR_MMU_NOTIFY",
         [](fi_info& hints) { hints.domain_attr->mr_mode = servedRegistration(); }},
};

/// Everything that fi_mr(3) knows: whatever the provider asks for, it is no reason against it.
constexpr int kAnyRegistration = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
                                 FI_MR_PROV_KEY | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT |
                                 FI_MR_ENDPOINT;

/// What a provider wants to find on a machine.
struct Hardware {
  Scheme scheme;
  const char* what;
};
constexpr std::array kHardware = {
    Hardware{Scheme::efa,
             "an Elastic Fabric Adapter (an AWS instance that has one enabled, with "
             "the kernel module efa and libibverbs)"},
    Hardware{Scheme::cxi, "a Slingshot adapter (/dev/cxi0, with HPE's driver and libcxi)"},
    Hardware{Scheme::opx, "an Omni-Path adapter (/dev/hfi1_0, with the kernel module hfi1)"},
    Hardware{Scheme::psm2, "an Omni-Path adapter (/dev/hfi1_0, with the kernel module hfi1)"},
    Hardware{Scheme::psm3, "a network interface that PSM3_HAL and PSM3_NIC allow it to use"},
    Hardware{Scheme::ucx, "a transport that UCX_TLS and UCX_NET_DEVICES allow it to use"},
};

std::string versionText(const Library& library) {
  uint32_t version = library.loadedVersion;
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

uint32_t apiOf(const Library& library) {
  return std::min<uint32_t>(library.loadedVersion, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
}

/// Whether fi_getinfo finds exactly this provider.
bool offers(const Library& library, const std::string& name, uint64_t flags, const fi_info* hints) {
  SignalKeeper keeper;
  fi_info* list = nullptr;
  if (library.getinfo(apiOf(library), nullptr, nullptr, flags, hints, &list) != 0) return false;
  InfoPtr all(list, InfoDeleter{&library});
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    if (name == info->fabric_attr->prov_name) return true;
  }
  return false;
}

InfoPtr openHints(const Library& library, const Provider& provider) {
  InfoPtr hints(library.dupinfo(nullptr), InfoDeleter{&library});
  if (!hints) return hints;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = kAnyRegistration;
  hints->fabric_attr->prov_name = strdup(provider.name);
  return hints;
}

}  // namespace

std::string fabricObstacle(const Library& library, const Provider& provider) {
  std::string name = provider.name;
  // One that is layered on another is not in that list.
  bool layered = name.find(';') != std::string::npos;
  if (!layered && !offers(library, name, FI_PROV_ATTR_ONLY, nullptr)) {
    return "libfabric " + versionText(library) + " here has no provider " + name +
           ": take one that was built with it (its vendor's, or configured with --enable-" + name +
           ") and point CINNABAR_LIBFABRIC at its libfabric.so.1";
  }
  InfoPtr hints = openHints(library, provider);
  if (!hints) return "no memory for fi_info";
  if (!offers(library, name, 0, hints.get())) {
    std::string reason = "provider " + name + " finds no device here";
    for (const Hardware& hardware : kHardware) {
      if (hardware.scheme == provider.scheme) reason += std::string(": it needs ") + hardware.what;
    }
    return reason + "; FI_LOG_LEVEL=info tells what it looked for";
  }
  std::string missing;
  for (const Need& need : kNeeds) {
    hints = openHints(library, provider);
    if (!hints) return "no memory for fi_info";
    need.ask(*hints);
    if (!offers(library, name, 0, hints.get()))
      missing += (missing.empty() ? "" : ", ") + std::string(need.name);
  }
  if (!missing.empty()) return "provider " + name + " lacks " + missing;
  auto info = getInfo(library, {.provider = &provider});
  if (!info) {
    return "provider " + name +
           " has each thing that Cinnabar needs, but no endpoint that has all (" +
           info.failure().name + ")";
  }
  return "";
}

}  // namespace cinnabar::fabric
