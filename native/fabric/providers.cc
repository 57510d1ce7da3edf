// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/providers.h"

#include <rdma/fabric.h>

#include <array>

#include "fabric/quirks.h"

namespace cinnabar::fabric {
namespace {

constexpr std::array kSchemeNames = {"tcp", "shm",  "verbs", "efa", "cxi",
                                     "opx", "psm2", "psm3",  "ucx"};

// Native RDM over sockets was born as `net` in 1.17 and took over the name `tcp` in 1.18. rxm over
// `tcp` is left out on purpose: hostile bytes crash it.
constexpr std::array kTable = {
    Provider{Scheme::tcp, "tcp", FI_VERSION(1, 18), kEver},
    Provider{Scheme::tcp, "net", kAnyVersion, FI_VERSION(1, 18)},
    Provider{Scheme::verbs, "verbs;ofi_rxm", kAnyVersion, kEver},
    Provider{Scheme::efa, "efa", kAnyVersion, kEver},
    Provider{Scheme::cxi, "cxi", kAnyVersion, kEver},
    Provider{Scheme::opx, "opx", kAnyVersion, kEver},
    Provider{Scheme::psm2, "psm2", kAnyVersion, kEver},
    Provider{Scheme::psm3, "psm3", kAnyVersion, kEver},
    Provider{Scheme::ucx, "ucx", kAnyVersion, kEver},
};

}  // namespace

Addressing addressingOf(Scheme scheme) {
  switch (scheme) {
    case Scheme::tcp:
    case Scheme::verbs:
      return Addressing::socket;
    case Scheme::shm:
      return Addressing::name;
    default:
      return Addressing::resolved;
  }
}

std::span<const Provider> providerTable() { return kTable; }

const Provider* providerOf(Scheme scheme, uint32_t version) {
  for (const Provider& provider : kTable) {
    if (provider.scheme == scheme && suits(provider, version)) return &provider;
  }
  return nullptr;
}

bool suits(const Provider& provider, uint32_t version) {
  return version >= provider.since && version < provider.before;
}

const char* schemeName(Scheme scheme) { return kSchemeNames[static_cast<size_t>(scheme)]; }

std::optional<Scheme> schemeOf(std::string_view name) {
  for (size_t i = 0; i < kSchemeNames.size(); ++i) {
    if (name == kSchemeNames[i]) return static_cast<Scheme>(i);
  }
  return std::nullopt;
}

}  // namespace cinnabar::fabric
