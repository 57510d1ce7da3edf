// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <netinet/in.h>

namespace cinnabar::tcp {

/// Takes congestion control that paces off a connection that never leaves this host. BBR, which
/// many systems have as their default, sends by a timer; on loopback that halves the speed and
/// there is nothing to avoid. Reno does not pace, and every kernel allows it to everybody. Does
/// nothing to a connection with another host. errno stays as it is.
void unpaceIfLocal(int fd, const sockaddr_in6& peer);

}  // namespace cinnabar::tcp
