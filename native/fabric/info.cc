// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/info.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "fabric/needs.h"
#include "fabric/signals.h"
#include "fabric/verbs_report.h"

namespace cinnabar::fabric {
namespace {

/// Fields that fi_freeinfo releases with free(). False if there is no memory.
template <typename T>
bool copyInto(T** field, const void* bytes, size_t length) {
  *field = static_cast<T*>(malloc(length));
  if (*field == nullptr) return false;
  std::memcpy(*field, bytes, length);
  return true;
}

const char* textOrNull(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

InfoPtr hintsFor(const Library& library, const InfoRequest& request) {
  InfoPtr hints(library.dupinfo(nullptr), InfoDeleter{&library});
  if (!hints) return hints;
  const Provider& provider = *request.provider;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  // The provider keeps those that it wants (fi_mr(3)).
  hints->domain_attr->mr_mode = servedRegistration();
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  if (!copyInto(&hints->fabric_attr->prov_name, provider.name, strlen(provider.name) + 1))
    return {};
  const auto& source = request.source;
  if (!source.empty()) {
    if (!copyInto(&hints->src_addr, source.data(), source.size())) return {};
    hints->src_addrlen = source.size();
  }
  if (addressingOf(provider.scheme) == Addressing::socket) {
    int family = request.source.empty() ? request.family
                                        : familyOf(request.source.data(), request.source.size());
    hints->addr_format = family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  }
  return hints;
}

/// The native tcp provider (`net`, `tcp`) answers 0.0.0.0 and :: without the port that was asked
/// for, and shm answers with a name of its own. The endpoint binds to what `fi_info` has. False if
/// there is no memory.
bool bindTo(fi_info& info, const InfoRequest& request) {
  const auto& source = request.source;
  if (source.empty()) return true;
  free(info.src_addr);
  info.src_addrlen = source.size();
  return copyInto(reinterpret_cast<uint8_t**>(&info.src_addr), source.data(), source.size());
}

}  // namespace

int servedRegistration() {
  return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
}

Result<InfoPtr> getInfos(const Library& library, const InfoRequest& request) {
  InfoPtr hints = hintsFor(library, request);
  if (!hints) return library.fail("fi_allocinfo", FI_ENOMEM, "no memory for fi_info");
  uint32_t api =
      std::min<uint32_t>(library.loadedVersion, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
  fi_info* list = nullptr;
  // The first call loads the providers, and what they bring along.
  SignalKeeper keeper;
  const char* node = textOrNull(request.node);
  const char* service = textOrNull(request.service);
  bool named = node != nullptr || service != nullptr;
  uint64_t flags = named && request.isOurs ? FI_SOURCE : 0;
  int status = library.getinfo(api, node, service, flags, hints.get(), &list);
  std::string name = request.provider->name;
  if (status != 0) {
    return library.fail("fi_getinfo", status,
                        "provider " + name + " offers no reliable datagram endpoint here");
  }
  return InfoPtr(list, InfoDeleter{&library});
}

Result<InfoPtr> getInfo(const Library& library, const InfoRequest& request) {
  auto all = getInfos(library, request);
  if (!all) return all.failure();
  std::string name = request.provider->name;
  // A name is matched loosely: "tcp" also finds tcp beneath a utility provider.
  for (fi_info* info = all->get(); info != nullptr; info = info->next) {
    if (name != info->fabric_attr->prov_name) continue;
    InfoPtr chosen(library.dupinfo(info), InfoDeleter{&library});
    if (!chosen || !bindTo(*chosen, request))
      return library.fail("fi_dupinfo", FI_ENOMEM, "no memory for fi_info");
    return chosen;
  }
  return library.fail("fi_getinfo", FI_ENODATA,
                      "asked for provider " + name + ", offered " + (*all)->fabric_attr->prov_name);
}

std::string reasonAgainst(const Library& library, const Provider& provider) {
  if (!suits(provider, library.loadedVersion)) {
    uint32_t version = library.loadedVersion;
    return "not the choice for libfabric " + std::to_string(FI_MAJOR(version)) + "." +
           std::to_string(FI_MINOR(version));
  }
  if (provider.scheme == Scheme::verbs) {
    auto obstacle = verbsObstacle(library, provider, {});
    if (obstacle) return obstacle->message;
  }
  if (addressingOf(provider.scheme) == Addressing::resolved)
    return fabricObstacle(library, provider);
  auto info = getInfo(library, {.provider = &provider});
  if (info) return "";
  return info.failure().op + ": " + info.failure().name + " (" + info.failure().message + ")";
}

}  // namespace cinnabar::fabric
