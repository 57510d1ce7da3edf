// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/open_endpoint.h"

#include <rdma/fi_errno.h>

#include <cerrno>
#include <optional>

#include "fabric/needs.h"
#include "fabric/patches.h"
#include "fabric/verbs_report.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/socket_calls.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace cinnabar::transport {
namespace {

/// An endpoint of a fabric with addresses that libfabric resolves. Tests use another provider
/// (`request.provider`), since the hardware is rare.
fabric::Result<std::unique_ptr<fabric::Endpoint>> openResolved(const OpenRequest& request) {
  const fabric::Library* library = fabric::library();
  if (library == nullptr) return fabric::Failure{"open", 0, "ENOENT", "libfabric is not loaded"};
  fabric::Provider provider = *fabric::providerOf(request.scheme, library->loadedVersion);
  if (!request.provider.empty()) provider.name = request.provider.c_str();
  fabric::InfoRequest wanted{
      .provider = &provider,
      .node = request.host,
      .service = request.service == 0 ? "" : std::to_string(request.service)};
  auto opened = fabric::Endpoint::open(*library, wanted);
  if (opened) return opened;
  std::string reason = fabric::fabricObstacle(*library, provider);
  if (!reason.empty()) return library->fail("fi_getinfo", FI_ENODATA, reason);
  return opened.failure();
}

/// An endpoint bound to a numeric host and a port.
fabric::Result<std::unique_ptr<fabric::Endpoint>> openSocket(const OpenRequest& request) {
  auto source = fabric::encodeSocketAddress(request.host, request.service);
  if (!source) {
    return fabric::Failure{"open", EINVAL, "EINVAL",
                           "not a numeric host and a port: \"" + request.host + "\", " +
                               std::to_string(request.service)};
  }
  return openEndpoint(request, *source);
}

}  // namespace

fabric::Result<std::unique_ptr<fabric::Endpoint>> openEndpoint(const OpenRequest& request,
                                                               fabric::RawAddress source) {
  const fabric::Library* library = fabric::library();
  if (library == nullptr) {
    return fabric::Failure{"open", 0, "ENOENT", "libfabric is not loaded"};
  }
  const fabric::Provider* provider = fabric::providerOf(request.scheme, library->loadedVersion);
  if (provider == nullptr || (!request.provider.empty() && request.provider != provider->name)) {
    return fabric::Failure{"fi_getinfo", FI_ENODATA, "ENODATA",
                           std::string("no provider ") + request.provider + " for " +
                               fabric::schemeName(request.scheme) + " with this libfabric"};
  }
  bool isVerbs = request.scheme == fabric::Scheme::verbs;
  if (isVerbs) {
    std::string obstacle = fabric::lockedMemoryObstacle();
    if (!obstacle.empty()) return library->fail("verbs", FI_ENOMEM, obstacle);
    obstacle = fabric::pagingObstacle("");
    if (!obstacle.empty()) return library->fail("verbs", FI_EOPNOTSUPP, obstacle);
  }
  auto opened = fabric::Endpoint::open(*library, {.provider = provider, .source = source});
  if (!opened && isVerbs)
    return fabric::explainVerbs(*library, *provider, source, opened.failure());
  return opened;
}

std::unique_ptr<Transport> transportFor(fabric::Scheme scheme,
                                        std::unique_ptr<fabric::Endpoint> endpoint) {
  const fabric::EndpointTraits& traits = endpoint->traits();
  if (traits.endsConnections || traits.provesWrites)
    return std::make_unique<verbs::VerbsTransport>(scheme, std::move(endpoint));
  return std::make_unique<FabricTransport>(scheme, std::move(endpoint));
}

namespace {

/// A tcp endpoint, with a watch over its sockets where that is possible.
fabric::Result<std::unique_ptr<Transport>> openTcp(const OpenRequest& request) {
  bool isWatched = fabric::library() != nullptr && tcp::watchSockets();
  auto watch = isWatched ? std::make_unique<tcp::SocketWatch>() : nullptr;
  std::optional<tcp::SocketWatch::Opening> opening;
  if (isWatched) opening.emplace(*watch);
  auto endpoint = openSocket(request);
  if (!endpoint) return endpoint.failure();
  if (!isWatched) return transportFor(request.scheme, std::move(*endpoint));
  watch->filter();
  // One message of each connection may be there in part. Half of the receives are for whole ones.
  watch->bound({.connections = request.maxConnections,
                .idleMs = request.maxIdleConnectionMs,
                .holding = std::max(1u, request.receiveSlots / 2)});
  return std::unique_ptr<Transport>(
      std::make_unique<tcp::TcpTransport>(std::move(*endpoint), std::move(watch)));
}

}  // namespace

fabric::Result<std::unique_ptr<Transport>> Transport::open(const OpenRequest& request) {
  if (request.scheme == fabric::Scheme::shm) return shm::ShmTransport::open(request);
  if (request.scheme == fabric::Scheme::tcp) return openTcp(request);
  bool resolves = fabric::addressingOf(request.scheme) == fabric::Addressing::resolved;
  auto endpoint = resolves ? openResolved(request) : openSocket(request);
  if (!endpoint) return endpoint.failure();
  return transportFor(request.scheme, std::move(*endpoint));
}

}  // namespace cinnabar::transport
