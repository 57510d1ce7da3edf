// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "transport/transport.h"

namespace cinnabar::shm {

/// Who is at the other end of a connected Unix socket, as the kernel noted it when that side
/// connected or listened: what the process was then, not what it has become since.
std::optional<transport::ProcessCredentials> credentialsOf(int socket);

/// Whether shared memory may be mapped with such a process: one of this user, or of root.
bool isTrusted(const transport::ProcessCredentials& process);

/// Whether users who are not in this user namespace may be shown as `uid`. The kernel shows all of
/// them as one, so such a uid proves nothing. `map` is the text of /proc/self/uid_map.
bool isAmbiguous(uid_t uid, const std::string& map);

}  // namespace cinnabar::shm
