// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <netinet/in.h>

namespace cinnabar::tcp {

/// Removes congestion control that paces from a connection within this host. BBR, the default of
/// many systems, sends by a timer; on loopback that halves the speed and avoids no congestion. Reno
/// does not pace, and every kernel allows it to every user. Leaves connections with other hosts as
/// they are. errno stays as it is.
void unpaceIfLocal(int fd, const sockaddr_in6& peer);

}  // namespace cinnabar::tcp
