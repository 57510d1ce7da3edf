// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <functional>

namespace cinnabar::base {

/// Opens the descriptor that the process holds in reserve.
void reserveDescriptor();

/// Accepts the connections that wait at a listener when no descriptor is left. Each connection gets
/// the reserved descriptor in turn. `say` may send it the reason, then it is closed. A connection
/// left in the queue would keep the listener readable and its peer waiting. Returns the number of
/// connections.
unsigned turnAway(int listener, const std::function<void(int socket)>& say);

/// Whether an error number says that there is no descriptor left.
bool lacksDescriptors(int code);
/// Whether no descriptor is left at this moment.
bool lacksDescriptors();

}  // namespace cinnabar::base
