// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "transport/transport.h"

namespace cinnabar::shm {

/// The process at the other end of a connected Unix socket, as the kernel noted it at that side's
/// connect or listen. Later changes of the process do not show.
std::optional<transport::ProcessCredentials> credentialsOf(int socket);

/// Whether shared memory may be mapped with such a process: it belongs to this user, or to root.
bool isTrusted(const transport::ProcessCredentials& process);

/// Whether `uid` may show users outside of this user namespace. The kernel shows all of them as one
/// uid, so such a uid proves nothing. `map` is the text of /proc/self/uid_map.
bool isAmbiguous(uid_t uid, const std::string& map);

}  // namespace cinnabar::shm
