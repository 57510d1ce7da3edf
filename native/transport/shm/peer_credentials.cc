// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/peer_credentials.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace cinnabar::shm {
namespace {

/// The kernel's uid for users without a number in the namespace, unless
/// /proc/sys/kernel/overflowuid has another.
constexpr uid_t kOverflowUid = 65534;

std::string readFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

uid_t overflowUid() {
  std::istringstream text(readFile("/proc/sys/kernel/overflowuid"));
  uid_t uid = kOverflowUid;
  return text >> uid ? uid : kOverflowUid;
}

}  // namespace

std::optional<transport::ProcessCredentials> credentialsOf(int socket) {
  ucred who{};
  socklen_t length = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return std::nullopt;
  return transport::ProcessCredentials{who.uid, who.gid, who.pid};
}

bool isAmbiguous(uid_t uid, const std::string& map) {
  if (uid != overflowUid()) return false;
  // One range of all uids: no user is outside. (The last number is not a uid.)
  std::istringstream text(map);
  uint64_t inside = 0, outside = 0, count = 0;
  return !(text >> inside >> outside >> count && inside == 0 && count == UINT32_MAX);
}

bool isTrusted(const transport::ProcessCredentials& process) {
  if (process.pid == getpid()) return true;
  if (process.uid != geteuid() && process.uid != 0) return false;
  return !isAmbiguous(process.uid, readFile("/proc/self/uid_map"));
}

}  // namespace cinnabar::shm
