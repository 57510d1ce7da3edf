// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/providers.h"

#include <rdma/fabric.h>

#include <array>

#include "fabric/quirks.h"

namespace cinnabar::fabric {
namespace {

constexpr std::array kSchemeNames = {"tcp", "shm", "verbs"};

// Native RDM over sockets was born as `net` in 1.17 and took over the name `tcp` in 1.18. `tcp`
// of 1.17 knows only connected endpoints and wants ofi_rxm on top; from 1.18 on rxm over tcp is
// left out on purpose: hostile bytes crash it.
constexpr std::array kTable = {
    Provider{Scheme::tcp, "tcp", FI_VERSION(1, 18), kEver},
    Provider{Scheme::tcp, "net", FI_VERSION(1, 17), FI_VERSION(1, 18)},
    Provider{Scheme::tcp, "tcp;ofi_rxm", kAnyVersion, FI_VERSION(1, 18)},
    Provider{Scheme::shm, "shm", kAnyVersion, kEver},
    Provider{Scheme::verbs, "verbs;ofi_rxm", kAnyVersion, kEver},
};

}  // namespace

std::span<const Provider> providerTable() { return kTable; }

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
