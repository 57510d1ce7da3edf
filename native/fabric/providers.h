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

/// One way to serve a scheme. `since` and `before` bound the libfabric versions for which it is a
/// candidate.
struct Provider {
  Scheme scheme;
  const char* name;
  uint32_t since;
  uint32_t before;
};

/// The candidates of every scheme that libfabric serves, best first.
std::span<const Provider> providerTable();

/// The first candidate of a scheme; nullptr where libfabric does not serve it.
const Provider* providerOf(Scheme scheme);

/// Whether this libfabric is one the entry is meant for.
bool suits(const Provider& provider, uint32_t version);

/// The name of a scheme, as addresses carry it.
const char* schemeName(Scheme scheme);

/// The scheme of that name.
std::optional<Scheme> schemeOf(std::string_view name);

}  // namespace cinnabar::fabric
