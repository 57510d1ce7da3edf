// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <functional>

namespace cinnabar::base {

/// Opens the descriptor that the process holds for the moment when there is no other.
void reserveDescriptor();

/// Accepts what waits at a listener though no descriptor is left: in turn each connection gets the
/// one that was held, is given to `say`, which may tell it why, and is closed. One that stayed in
/// the queue would keep the listener readable, and its other side waiting. How many there were.
unsigned turnAway(int listener, const std::function<void(int socket)>& say);

/// Whether an error number says that there is no descriptor left.
bool lacksDescriptors(int code);
/// Whether there is none at this moment.
bool lacksDescriptors();

}  // namespace cinnabar::base
