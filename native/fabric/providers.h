// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cinnabar::fabric {

/// `shm` is a transport of our own.
enum class Scheme { tcp, shm, verbs, efa, cxi, opx, psm2, psm3, ucx };

/// How the endpoints of a scheme are named.
enum class Addressing {
  socket,    // an IP address and a port
  name,      // a name on this host (encodeShmAddress)
  resolved,  // whatever fi_getinfo(3) makes of a node and a service; raw addresses are opaque
};
Addressing addressingOf(Scheme scheme);

/// The provider of a scheme. `since` and `before` bound the libfabric versions that have it.
struct Provider {
  Scheme scheme;
  const char* name;
  uint32_t since;
  uint32_t before;
};

/// The providers of every scheme that libfabric serves, one for each range of versions.
std::span<const Provider> providerTable();

/// The provider of a scheme in that version; nullptr if libfabric has none.
const Provider* providerOf(Scheme scheme, uint32_t version);

/// Whether the entry is meant for this libfabric.
bool suits(const Provider& provider, uint32_t version);

/// The name of a scheme, as addresses carry it.
const char* schemeName(Scheme scheme);

/// The scheme of that name.
std::optional<Scheme> schemeOf(std::string_view name);

}  // namespace cinnabar::fabric
