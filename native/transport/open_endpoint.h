// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include "transport/fabric_transport.h"

namespace cinnabar::transport {

/// An endpoint of the first provider of the table that is available for the request, bound to
/// `source` (fabric::InfoRequest::source).
fabric::Result<std::unique_ptr<fabric::Endpoint>> openEndpoint(const OpenRequest& request,
                                                               fabric::RawAddress source);

/// The transport for an endpoint of a network provider.
std::unique_ptr<Transport> transportFor(fabric::Scheme scheme,
                                        std::unique_ptr<fabric::Endpoint> endpoint);

}  // namespace cinnabar::transport
