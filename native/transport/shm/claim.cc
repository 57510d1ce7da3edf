// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "fabric/address.h"
#include "fabric/memory.h"

namespace cinnabar::shm {
namespace {

constexpr int kBacklog = 128;
constexpr useconds_t kOpeningPauseUs = 500;
// A process binds its name and listens a little later. On a busy machine that takes some hundred
// milliseconds.
constexpr auto kOpeningTime = std::chrono::seconds(2);

std::string socketName(std::string_view name) {
  return "cinnabar/" + std::to_string(geteuid()) + "/" + std::string(name);
}

/// Binds a port's name; an empty result leaves errno.
base::Fd bindName(std::string_view name) {
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length = socketAddress(name, &address);
  // The mode of a socket in the file system. Peers of other users are refused in any case.
  if (socket) fchmod(socket.get(), S_IRUSR | S_IWUSR);
  if (!socket || bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    int code = errno;
    socket.reset();
    errno = code;
  }
  return socket;
}

/// The process that has bound a name.
struct Holder {
  /// A process that is opening does not listen yet.
  bool listens = false;
  /// The kernel gives it for a socket that listens and takes the connection.
  std::optional<uid_t> user;
};

Holder holderOf(std::string_view name) {
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length = socketAddress(name, &address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return {.listens = errno != ECONNREFUSED, .user = {}};
  ucred credentials;
  socklen_t size = sizeof credentials;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return {.listens = true, .user = {}};
  return {.listens = true, .user = credentials.uid};
}

std::string nameTaken(const std::string& name, const Holder& holder) {
  if (!holder.listens) {
    return "shm name \"" + name +
           "\" is in use by a socket that does not listen; the kernel does not tell whose it is";
  }
  if (!holder.user || *holder.user == geteuid())
    return "shm name \"" + name +
           "\" is already in use by a live process. Cluster workers and threads cannot share a "
           "name: give each its own, or use openLanes";
  return "shm name \"" + name + "\" is taken by a process of the user with id " +
         std::to_string(*holder.user) + "; this process has the user id " +
         std::to_string(geteuid());
}

fabric::Failure cannotBind(const std::string& name, int code) {
  return {"bind doorbell", code, strerror(code),
          "cannot bind the doorbell socket of \"" + name + "\": " + strerror(code)};
}

fabric::Failure taken(const std::string& name, const Holder& holder) {
  return {"bind doorbell", EADDRINUSE, "EADDRINUSE", nameTaken(name, holder)};
}

/// Takes the lock of a path. A dead owner's socket is removed.
fabric::Result<base::Fd> lockPath(const std::string& path) {
  std::string file = path + ".lock";
  // Without O_NONBLOCK a process with a lease of the file would keep open(2) waiting.
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  base::Fd lock(open(file.c_str(), kFlags, S_IRUSR | S_IWUSR));
  if (!lock)
    return errno == EWOULDBLOCK ? taken(path, {.listens = true, .user = {}})
                                : cannotBind(path, errno);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK ? taken(path, {.listens = true, .user = {}})
                                : cannotBind(path, errno);
  struct stat found;
  // Other files there are not ours to remove: bind fails.
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode) && !holderOf(path).listens)
    unlink(path.c_str());
  return lock;
}

}  // namespace

socklen_t socketAddress(std::string_view name, sockaddr_un* into) {
  *into = {};
  into->sun_family = AF_UNIX;
  if (fabric::isShmPath(name)) {
    memcpy(into->sun_path, name.data(), name.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  }
  std::string text = socketName(name);
  memcpy(into->sun_path + 1, text.data(), text.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

fabric::Result<std::unique_ptr<ShmClaim>> ShmClaim::take(std::string name) {
  if (name.empty()) name = fabric::drawShmName();
  if (!fabric::isShmName(name)) {
    return fabric::Failure{
        "bind doorbell", EINVAL, "EINVAL",
        "an shm name is 1 to 64 of [A-Za-z0-9._-], or an absolute path, not \"" + name + "\""};
  }
  bool isPath = fabric::isShmPath(name);
  base::Fd lock;
  if (isPath) {
    auto locked = lockPath(name);
    if (!locked) return locked.failure();
    lock = std::move(*locked);
  }
  base::Fd socket = bindName(name);
  Holder holder;
  auto giveUpAt = std::chrono::steady_clock::now() + kOpeningTime;
  while (!socket && errno == EADDRINUSE && !isPath) {
    holder = holderOf(name);
    if (holder.listens || std::chrono::steady_clock::now() > giveUpAt) {
      errno = EADDRINUSE;
      break;
    }
    usleep(kOpeningPauseUs);
    socket = bindName(name);
  }
  if (!socket) {
    int code = errno;
    if (code == EADDRINUSE && !isPath) return taken(name, holder);
    return cannotBind(name, code);
  }
  return std::unique_ptr<ShmClaim>(
      new ShmClaim(std::move(name), std::move(lock), std::move(socket)));
}

/// The lock is held until the socket is removed.
ShmClaim::~ShmClaim() {
  if (fabric::isShmPath(name_)) unlink(name_.c_str());
}

int ShmClaim::publish() { return listen(socket_.get(), kBacklog) == 0 ? 0 : errno; }

}  // namespace cinnabar::shm
