// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/providers.h"

#include <rdma/fabric.h>

#include <array>

namespace cinnabar::fabric {
namespace {

constexpr uint32_t kAny = 0;
constexpr uint32_t kEver = UINT32_MAX;

// Native RDM over sockets was born as `net` in 1.17 and took over the name `tcp` in 1.18. `tcp`
// of 1.17 knows only connected endpoints and wants ofi_rxm on top; from 1.18 on rxm over tcp is
// left out on purpose: hostile bytes crash it.
constexpr std::array kTable = {
    Provider{Scheme::tcp, "tcp", FI_VERSION(1, 19), kEver},
    Provider{Scheme::tcp, "tcp", FI_VERSION(1, 18), FI_VERSION(1, 19), true},
    Provider{Scheme::tcp, "net", FI_VERSION(1, 17), FI_VERSION(1, 18), true},
    Provider{Scheme::tcp, "tcp;ofi_rxm", kAny, FI_VERSION(1, 18)},
    Provider{Scheme::shm, "shm", kAny, kEver},
};

}  // namespace

std::span<const Provider> providerTable() { return kTable; }

bool suits(const Provider& provider, uint32_t version) {
  return version >= provider.since && version < provider.before;
}

const char* schemeName(Scheme scheme) { return scheme == Scheme::tcp ? "tcp" : "shm"; }

}  // namespace cinnabar::fabric
