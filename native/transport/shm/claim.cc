// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/claim.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "fabric/address.h"
#include "fabric/memory.h"

namespace cinnabar::shm {
namespace {

constexpr const char* kFolder = "/dev/shm/";
constexpr size_t kDigits = 16;
constexpr int kBacklog = 128;
constexpr int kLockAttempts = 100;
constexpr useconds_t kLockPauseUs = 500;
// A process binds its name, makes its region, and only then listens. On a busy machine that takes
// some hundred milliseconds.
constexpr auto kOpeningTime = std::chrono::seconds(2);

std::string pathOf(std::string_view fabricName) { return kFolder + std::string(fabricName); }

std::string ownPrefix() { return "cnbr~" + std::to_string(geteuid()) + "~"; }

std::string hex(uint64_t number) {
  char text[kDigits + 1];
  snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(number));
  return text;
}

/// The port's name inside a file name of our scheme and user, "" if it is none.
std::string_view nameInside(std::string_view file, std::string_view prefix) {
  if (!file.starts_with(prefix) || file.size() < prefix.size() + kDigits + 2) return "";
  file.remove_prefix(prefix.size());
  std::string_view digits = file.substr(file.size() - kDigits);
  if (file[file.size() - kDigits - 1] != '~' ||
      digits.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return "";
  }
  std::string_view name = file.substr(0, file.size() - kDigits - 1);
  return fabric::isShmName(name) ? name : "";
}

std::string socketName(std::string_view name) {
  return "cinnabar/" + std::to_string(geteuid()) + "/" + std::string(name);
}

/// Binds a port's name; an empty result leaves errno.
base::Fd bindName(std::string_view name) {
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  socklen_t length = socketAddress(name, &address);
  if (!socket || bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    int code = errno;
    socket.reset();
    errno = code;
  }
  return socket;
}

/// Who has bound a name.
struct Holder {
  /// A process that is opening does not listen yet, and a sweeper holds the name for a moment.
  bool listens = false;
  /// The kernel tells it of a socket that listens and takes the connection.
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

/// Removes a file if its owner is dead. The caller holds the name.
bool removeDead(std::string_view fabricName) {
  std::string path = pathOf(fabricName);
  base::Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return unlink(path.c_str()) == 0;
}

/// Visits every file of our scheme and user: visit(file name, port name).
template <typename F>
void eachFile(F&& visit) {
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return;
  std::string prefix = ownPrefix();
  while (dirent* entry = readdir(folder)) {
    std::string_view name = nameInside(entry->d_name, prefix);
    if (!name.empty()) visit(std::string(entry->d_name), std::string(name));
  }
  closedir(folder);
}

// process.exit() on Node's main thread runs no environment cleanup, so what is still open then is
// unlinked here. Only the files: other threads may still be inside the provider.
class ExitList {
 public:
  void add(const std::string& fabricName) {
    std::lock_guard lock(mutex_);
    if (names_.empty()) owner_ = getpid();
    names_.insert(fabricName);
    if (!armed_) armed_ = atexit([] { instance().unlinkAll(); }) == 0;
  }
  void drop(const std::string& fabricName) {
    std::lock_guard lock(mutex_);
    names_.erase(fabricName);
  }
  static ExitList& instance() {
    static ExitList* list = new ExitList;  // never destroyed: exit handlers run in no useful order
    return *list;
  }

 private:
  void unlinkAll() {
    std::lock_guard lock(mutex_);
    if (owner_ != getpid()) return;
    for (const std::string& name : names_) unlink(pathOf(name).c_str());
    names_.clear();
  }

  std::mutex mutex_;
  std::set<std::string> names_;
  pid_t owner_ = 0;
  bool armed_ = false;
};

}  // namespace

socklen_t socketAddress(std::string_view name, sockaddr_un* into) {
  std::string text = socketName(name);
  *into = {};
  into->sun_family = AF_UNIX;
  memcpy(into->sun_path + 1, text.data(), text.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
}

int sweepShmFiles() {
  std::set<std::pair<std::string, std::string>> found;
  eachFile(
      [&](std::string file, std::string name) { found.emplace(std::move(file), std::move(name)); });
  int removed = 0;
  for (const auto& [file, name] : found) {
    // A port holds its name before the provider makes the file. A name that can be bound now
    // belongs to a dead port's file. The file's own lock covers owners in other network namespaces.
    base::Fd held = bindName(name);
    if (held && removeDead(file)) ++removed;
  }
  return removed;
}

base::Fd holdRegionFile(std::string_view name, std::string_view fabricName) {
  if (nameInside(fabricName, ownPrefix()) != name) return base::Fd();
  std::string path = pathOf(fabricName);
  base::Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat info;
  if (!file || fstat(file.get(), &info) != 0 || info.st_uid != geteuid()) return base::Fd();
  // The owner takes the lock exclusively only to remove the file.
  if (flock(file.get(), LOCK_SH | LOCK_NB) != 0) return base::Fd();
  struct stat now;
  if (stat(path.c_str(), &now) != 0 || now.st_ino != info.st_ino) return base::Fd();
  return file;
}

fabric::Result<std::unique_ptr<ShmClaim>> ShmClaim::take(std::string name) {
  if (name.empty()) name = "p" + std::to_string(getpid()) + "." + hex(fabric::randomNumber());
  if (!fabric::isShmName(name)) {
    return fabric::Failure{"bind doorbell", EINVAL, "EINVAL",
                           "an shm name is 1 to 64 of [A-Za-z0-9._-], not \"" + name + "\""};
  }
  base::Fd socket = bindName(name);
  Holder holder;
  auto giveUpAt = std::chrono::steady_clock::now() + kOpeningTime;
  while (!socket && errno == EADDRINUSE) {
    holder = holderOf(name);
    if (holder.listens || std::chrono::steady_clock::now() > giveUpAt) {
      errno = EADDRINUSE;
      break;
    }
    usleep(kLockPauseUs);
    socket = bindName(name);
  }
  if (!socket) {
    int code = errno;
    bool used = code == EADDRINUSE;
    return fabric::Failure{
        "bind doorbell", code, used ? "EADDRINUSE" : strerror(code),
        used ? nameTaken(name, holder)
             : "cannot bind the doorbell socket of \"" + name + "\": " + strerror(code)};
  }
  sweepShmFiles();
  // The name is ours now, so what carries it is a dead owner's.
  eachFile([&](const std::string& file, const std::string& owner) {
    if (owner == name) removeDead(file);
  });
  return std::unique_ptr<ShmClaim>(new ShmClaim(std::move(name), std::move(socket)));
}

ShmClaim::ShmClaim(std::string name, base::Fd socket)
    : name_(std::move(name)), socket_(std::move(socket)) {
  fabricName_ = ownPrefix() + name_ + "~" + hex(fabric::randomNumber());
  ExitList::instance().add(fabricName_);
}

ShmClaim::~ShmClaim() { release(); }

int ShmClaim::publish() {
  lock_ = base::Fd(open(pathOf(fabricName_).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!lock_ || flock(lock_.get(), LOCK_SH) != 0) return errno;
  // Only now can peers connect, so a connected peer finds a whole region.
  return listen(socket_.get(), kBacklog) == 0 ? 0 : errno;
}

void ShmClaim::release() {
  if (!socket_) return;
  // Waits for peers that are mapping the file right now, a matter of microseconds; not for ever,
  // since any process of this user could hold the lock.
  for (int attempt = 0; lock_ && attempt < kLockAttempts; ++attempt) {
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) break;
    usleep(kLockPauseUs);
  }
  unlink(pathOf(fabricName_).c_str());
  ExitList::instance().drop(fabricName_);
  lock_.reset();
  socket_.reset();
}

}  // namespace cinnabar::shm
