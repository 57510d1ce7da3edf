// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cinnabar::fabric {

using RawAddress = std::vector<uint8_t>;

/// A socket address for a numeric IPv4 or IPv6 host ("" is the IPv4 wildcard). IPv6 may carry a
/// scope ("fe80::1%eth0").
std::optional<RawAddress> encodeSocketAddress(const std::string& host, uint32_t port);

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

/// The numeric host and port of a raw socket address, if it is a well-formed one.
std::optional<HostPort> decodeSocketAddress(const uint8_t* bytes, size_t length);

/// AF_INET or AF_INET6 of a well-formed raw socket address, 0 for other bytes.
int familyOf(const uint8_t* bytes, size_t length);

/// Whether an IPv6 address means every interface, and so every IPv4 address.
bool isEveryAddress(const uint8_t* bytes, size_t length);

/// An IPv4 socket address in the form of a socket for both versions: ::ffff:1.2.3.4.
RawAddress mapToSix(const uint8_t* bytes, size_t length);

/// Whether a name may be an endpoint's name: 1 to 64 of [A-Za-z0-9._-], or an absolute path of as
/// many, with slashes.
bool isShmName(std::string_view name);

/// Whether the name of an endpoint is the path of a socket.
bool isShmPath(std::string_view name);

/// A random name for an endpoint without one.
std::string drawShmName();

/// The address of a named shared-memory endpoint: `fi_shm://` and the name, ended by a zero byte as
/// fi_getname(3) gives it.
RawAddress encodeShmAddress(std::string_view name);

/// The endpoint's name in such an address, with or without its zero byte.
std::optional<std::string> decodeShmAddress(const uint8_t* bytes, size_t length);

}  // namespace cinnabar::fabric
