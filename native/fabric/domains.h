// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/library.h"
#include "fabric/providers.h"

namespace cinnabar::fabric {

/// One way in which a provider offers an endpoint here, as fi_getinfo(3) reports it: a device at an
/// address. Strings are empty and numbers 0 where it reports nothing.
struct DomainReport {
  std::string domain;
  std::string fabric;
  std::string address;  // numeric, without a port; "" for a form that no URL has
  std::vector<std::string> capabilities;
  std::vector<std::string> registration;  // the needs of memory registration (mr_mode)
  uint64_t injectBytes = 0;
  uint64_t maxMessageBytes = 0;
  uint64_t extents = 0;  // that one read or write takes
  uint64_t sendQueueDepth = 0;
  uint64_t receiveQueueDepth = 0;
  // Properties of the device's port (struct fid_nic).
  uint64_t mtuBytes = 0;
  uint64_t bitsPerSecond = 0;
  std::string linkState;
  std::string network;
  std::string firmware;
};

/// All domains of a provider, over IPv4 and IPv6 where it has such addresses. Empty where the
/// provider is unusable.
std::vector<DomainReport> domainsOf(const Library& library, const Provider& provider);

}  // namespace cinnabar::fabric
