// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/ofi_shm/ofi_shm_transport.h"

#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "fabric/address.h"
#include "transport/open_endpoint.h"

namespace cinnabar::ofi_shm {
namespace {

/// Locks the file of a name, if it is there. False if somebody else has: the provider would take
/// the name from it.
bool lockFile(const std::string& name, base::Fd* into) {
  base::Fd file(::open(fabric::regionFileOf(name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file && flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  *into = std::move(file);
  return true;
}

/// The names of this process. The provider maps a region of its own process once for all who use
/// it, and unmaps it with its endpoint: a peer's next look crashes.
class OwnNames {
 public:
  static OwnNames& instance() {
    static OwnNames* names = new OwnNames;  // outlives every thread
    return *names;
  }
  void add(const std::string& name) {
    std::lock_guard lock(mutex_);
    names_.insert(name);
  }
  void remove(const std::string& name) {
    std::lock_guard lock(mutex_);
    names_.erase(name);
  }
  bool has(const std::string& name) {
    std::lock_guard lock(mutex_);
    return names_.contains(name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

fabric::Failure taken(const std::string& name) {
  return {"open", EADDRINUSE, "EADDRINUSE",
          "the name \"" + name + "\" is taken by another engine of this user"};
}

}  // namespace

fabric::Result<std::unique_ptr<transport::Transport>> OfiShmTransport::open(
    const transport::OpenRequest& request) {
  std::string name = request.name.empty() ? fabric::drawShmName() : request.name;
  if (!fabric::isShmName(name) || fabric::isShmPath(name)) {
    return fabric::Failure{"open", EINVAL, "EINVAL",
                           "a name is 1 to 64 of [A-Za-z0-9._-], not \"" + name + "\""};
  }
  base::Fd lock;
  if (!lockFile(name, &lock)) return taken(name);
  // What a dead process left. A new file tells its peers that another engine has the name.
  if (lock) unlink(fabric::regionFileOf(name).c_str());
  auto endpoint = transport::openEndpoint(request, fabric::encodeRegionAddress(name));
  if (!endpoint) return endpoint.failure();
  if (!lockFile(name, &lock) || !lock) return taken(name);
  return std::unique_ptr<transport::Transport>(
      std::make_unique<OfiShmTransport>(std::move(name), std::move(lock), std::move(*endpoint)));
}

OfiShmTransport::OfiShmTransport(std::string name, base::Fd lock,
                                 std::unique_ptr<fabric::Endpoint> endpoint)
    : FabricTransport(fabric::Scheme::ofiShm, std::move(endpoint)),
      name_(std::move(name)),
      lock_(std::move(lock)) {
  OwnNames::instance().add(name_);
}

OfiShmTransport::~OfiShmTransport() { OwnNames::instance().remove(name_); }

fabric::Result<fabric::RawAddress> OfiShmTransport::addressOf(const std::string& name,
                                                              uint32_t) const {
  return fabric::encodeRegionAddress(name);
}

int OfiShmTransport::admit(const uint8_t* bytes, size_t length, transport::Peer** into) {
  auto name = fabric::decodeRegionAddress(bytes, length);
  if (!name) return -FI_EINVAL;
  if (OwnNames::instance().has(*name)) return -FI_EOPNOTSUPP;
  // A name that nobody has would be asked for again and again.
  if (access(fabric::regionFileOf(*name).c_str(), F_OK) != 0) return -FI_ECONNREFUSED;
  return insertInto(bytes, into);
}

fi_addr_t OfiShmTransport::insert(const uint8_t* bytes) {
  removeGone();
  fi_addr_t address = FabricTransport::insert(bytes);
  if (address == FI_ADDR_NOTAVAIL) return address;
  const char* text = reinterpret_cast<const char*>(bytes);
  auto name = fabric::decodeRegionAddress(bytes, std::strlen(text) + 1);
  auto [found, isNew] = files_.try_emplace(address);
  File& file = found->second;
  ++file.uses;
  if (isNew && name) {
    struct stat now {};
    file.path = fabric::regionFileOf(*name);
    if (stat(file.path.c_str(), &now) == 0) file.number = now.st_ino;
  }
  // It was there, and has a use again.
  if (std::erase(left_, address) > 0) removeNow(address);
  return address;
}

void OfiShmTransport::remove(fi_addr_t address) {
  auto found = files_.find(address);
  if (found == files_.end() || found->second.uses > 1) return removeNow(address);
  left_.push_back(address);
  removeGone();
}

/// Whether the engine lives that had the file when its address was inserted.
bool OfiShmTransport::hasOwner(const File& file) {
  base::Fd opened(::open(file.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat now {};
  if (!opened || fstat(opened.get(), &now) != 0) return false;
  return now.st_ino == file.number && flock(opened.get(), LOCK_SH | LOCK_NB) != 0;
}

void OfiShmTransport::removeGone() {
  std::vector<fi_addr_t> left;
  left.swap(left_);
  for (fi_addr_t address : left) {
    if (hasOwner(files_.at(address)))
      left_.push_back(address);
    else
      removeNow(address);
  }
}

void OfiShmTransport::removeNow(fi_addr_t address) {
  FabricTransport::remove(address);
  auto found = files_.find(address);
  if (found != files_.end() && --found->second.uses == 0) files_.erase(found);
}

}  // namespace cinnabar::ofi_shm
