// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "fabric/address.h"
#include "fabric/library.h"
#include "fabric/providers.h"

namespace cinnabar::fabric {

struct InfoDeleter {
  const Library* library = nullptr;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

struct InfoRequest {
  const Provider* provider = nullptr;
  RawAddress source;     // a sockaddr; may be empty
  int family = AF_INET;  // of the requested addresses, if the source is empty
  /// Where addresses are resolved: what to resolve, "" for nothing, and whether it is our side.
  std::string node;
  std::string service;
  bool isOurs = true;
};

/// All offers of one provider for a request (fi_getinfo(3)).
Result<InfoPtr> getInfos(const Library& library, const InfoRequest& request);

/// Asks one provider for an RDM endpoint with messages and RMA (fi_getinfo(3)).
Result<InfoPtr> getInfo(const Library& library, const InfoRequest& request);

/// The bits of mr_mode that registration here can serve (memory.h).
int servedRegistration();

/// Why a provider is unusable here, with the remedy; empty if it is usable.
std::string reasonAgainst(const Library& library, const Provider& provider);

}  // namespace cinnabar::fabric
