// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/shm_room.h"

#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "fabric/linkage.h"
#include "fabric/patches.h"

namespace cinnabar::fabric {
namespace {

constexpr const char* kShmFolder = "/dev/shm";
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMebi = 1 << 20;
/// Longer than the names that stand at the end of a region, and than the head of a pool of buffers.
constexpr uint64_t kMargin = 2 * kPageBytes;

/// Where struct smr_region has what is asked for (prov/shm/src/smr_util.h), by its version.
struct RegionLayout {
  uint8_t version;
  size_t totalAt;
  size_t copiesAt;  // sar_pool_offset
  size_t peersAt;   // peer_data_offset
  size_t lastAt;    // sock_name_offset
};
constexpr RegionLayout kLayouts[] = {
    {4, 40, 88, 96, 112},   // libfabric 1.17
    {8, 72, 104, 112, 128}  // 2.1
};
constexpr size_t kHeadBytes = 256;

/// The parts of a region that are of interest here, as offsets in its file.
struct RegionParts {
  uint64_t copies = 0;  // buffers of the provider's copies
  uint64_t peers = 0;   // what is known of peers, which follows them
  uint64_t end = 0;     // of all
  uint64_t total = 0;
};

struct Making {
  int depth = 0;
  uint64_t wanted = 0;  // bytes that could not be had
};
thread_local Making t_making;

bool partsOf(int file, RegionParts* into) {
  uint8_t head[kHeadBytes];
  struct stat info;
  if (pread(file, head, sizeof head, 0) != sizeof head || fstat(file, &info) != 0) return false;
  for (const RegionLayout& layout : kLayouts) {
    if (head[0] != layout.version) continue;
    auto read = [&](size_t at) {
      uint64_t value;
      memcpy(&value, head + at, sizeof value);
      return value;
    };
    RegionParts parts{read(layout.copiesAt), read(layout.peersAt), read(layout.lastAt) + kMargin,
                      read(layout.totalAt)};
    if (parts.total != static_cast<uint64_t>(info.st_size) || parts.copies < kHeadBytes ||
        parts.peers < parts.copies || parts.end < parts.peers + kMargin || parts.total < parts.end)
      return false;
    *into = parts;
    return true;
  }
  return false;
}

uint64_t roundUp(uint64_t offset) { return (offset + kPageBytes - 1) / kPageBytes * kPageBytes; }
uint64_t roundDown(uint64_t offset) { return offset / kPageBytes * kPageBytes; }

/// Gives back the pages between two offsets that have nothing but zeros in them, so that nothing
/// is lost whatever stands there.
void punch(int file, const uint8_t* bytes, uint64_t from, uint64_t to) {
  static const uint8_t zeros[kPageBytes] = {};
  uint64_t first = from;
  auto give = [&](uint64_t until) {
    if (until > first)
      fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                static_cast<off_t>(until - first));
  };
  for (uint64_t page = from; page < to; page += kPageBytes) {
    if (memcmp(bytes + page, zeros, kPageBytes) == 0) continue;
    give(page);
    first = page + kPageBytes;
  }
  give(to);
}

extern "C" {

int cinnabarTruncate(int file, off_t length) {
  if (ftruncate(file, length) != 0) return -1;
  if (t_making.depth == 0 || length == 0) return 0;
  int code = posix_fallocate(file, 0, length);
  // Not on every file system.
  if (code == 0 || code == EOPNOTSUPP || code == EINVAL) return 0;
  if (code == ENOSPC) t_making.wanted = static_cast<uint64_t>(length);
  errno = code;
  return -1;
}

int cinnabarStatvfs(const char* path, struct statvfs* into) {
  int status = statvfs(path, into);
  if (status == 0 && t_making.depth > 0) into->f_bavail = into->f_bfree = ~0u;
  return status;
}
}

/// libfabric is loaded once in a process, and so its tables are changed once.
void replaceOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!allowsPatch(Patch::sharedRoom)) return;
    // The check would be gone without what stands in for it.
    if (replaceInLibfabric("ftruncate", reinterpret_cast<void*>(&cinnabarTruncate)) == 0) return;
    replaceInLibfabric("statvfs", reinterpret_cast<void*>(&cinnabarStatvfs));
    notePatched(Patch::sharedRoom);
  });
}

Failure noShm(int code, const char* name, const std::string& why) {
  return Failure{"open region", code, name,
                 why + "; shm:// needs a tmpfs there that this user can write to"};
}

}  // namespace

ShmRoom::ShmRoom() {
  replaceOnce();
  if (t_making.depth++ == 0) t_making.wanted = 0;
}

ShmRoom::~ShmRoom() { --t_making.depth; }

std::optional<Failure> ShmRoom::shortage() const {
  if (t_making.wanted == 0) return std::nullopt;
  struct statvfs memory {};
  statvfs(kShmFolder, &memory);
  uint64_t unit = memory.f_frsize;
  return Failure{"open region", ENOSPC, "ENOSPC",
                 "a port needs " + std::to_string(t_making.wanted / kMebi) +
                     " MiB of free space in /dev/shm while it opens, which has " +
                     std::to_string(memory.f_bavail * unit / kMebi) + " of " +
                     std::to_string(memory.f_blocks * unit / kMebi) +
                     " MiB; give a container more by --shm-size"};
}

std::optional<Failure> shmObstacle() {
  struct statvfs memory {};
  if (statvfs(kShmFolder, &memory) != 0)
    return noShm(FI_EOPBADSTATE, "FI_EOPBADSTATE",
                 std::string("/dev/shm is missing (") + strerror(errno) + ")");
  if ((memory.f_flag & ST_RDONLY) != 0)
    return noShm(EROFS, "EROFS", "/dev/shm is mounted read-only");
  if (access(kShmFolder, W_OK | X_OK) != 0)
    return noShm(EACCES, "EACCES",
                 std::string("/dev/shm cannot be written to (") + strerror(errno) + ")");
  return std::nullopt;
}

void trimRegion(int file) {
  RegionParts parts;
  if (!partsOf(file, &parts)) return;
  void* bytes = mmap(nullptr, parts.total, PROT_READ, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return;
  const auto* region = static_cast<const uint8_t*>(bytes);
  punch(file, region, roundUp(parts.copies + kMargin), roundDown(parts.peers));
  punch(file, region, roundUp(parts.end), roundDown(parts.total));
  munmap(bytes, parts.total);
}

int reserveCopies(int file) {
  RegionParts parts;
  if (!partsOf(file, &parts)) return 0;
  int code = posix_fallocate(file, static_cast<off_t>(parts.copies),
                             static_cast<off_t>(parts.peers - parts.copies));
  return code == EOPNOTSUPP || code == EINVAL ? 0 : code;
}

}  // namespace cinnabar::fabric
