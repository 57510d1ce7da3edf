// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/shm/process_memory.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "fabric/patches.h"

namespace cinnabar::shm {
namespace {

using Copy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

void skip(iovec& run, size_t bytes) {
  run.iov_base = static_cast<uint8_t*>(run.iov_base) + bytes;
  run.iov_len -= bytes;
}

int copyAll(Copy copy, pid_t pid, iovec* local, iovec* remote, size_t count, uint64_t* done) {
  *done = 0;
  while (count > 0) {
    ssize_t moved = copy(pid, local, count, remote, count, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return moved == 0 ? EFAULT : errno;
    *done += static_cast<uint64_t>(moved);
    // The kernel stops in front of memory that it cannot touch. It reports the reason only for a
    // call that begins there.
    for (auto left = static_cast<size_t>(moved); left > 0;) {
      size_t here = left < local->iov_len ? left : local->iov_len;
      skip(*local, here);
      skip(*remote, here);
      left -= here;
      if (local->iov_len > 0) break;
      ++local;
      ++remote;
      --count;
    }
  }
  return 0;
}

struct Permission {
  std::mutex mutex;
  bool isDecided = false;
  bool isWithheld = false;
  bool isGiven = false;  // by default, not by the user's choice
};

Permission& permission() {
  static auto* one = new Permission();
  return *one;
}

std::string controlGroup(const std::string& process) {
  std::ifstream file(process + "/cgroup");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

bool isAlone(const std::string& proc) {
  std::string own = controlGroup(proc + "/self");
  std::unique_ptr<DIR, int (*)(DIR*)> all(opendir(proc.c_str()), closedir);
  if (own.empty() || !all) return false;
  while (const dirent* entry = readdir(all.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    std::string process = proc + "/" + entry->d_name;
    struct stat info;
    // A process that has ended meanwhile has no group.
    if (stat(process.c_str(), &info) != 0 || info.st_uid != geteuid()) continue;
    std::string group = controlGroup(process);
    if (!group.empty() && group != own) return false;
  }
  return true;
}

unsigned long permittedTracer(std::string_view choice, pid_t parent) {
  if (choice == "parent") return static_cast<unsigned long>(parent);
  unsigned long pid = 0;
  auto read = std::from_chars(choice.data(), choice.data() + choice.size(), pid);
  bool isPid = read.ec == std::errc() && read.ptr == choice.data() + choice.size() && pid > 0;
  return isPid ? pid : PR_SET_PTRACER_ANY;
}

void permitProcessCopies() {
  Permission& mine = permission();
  std::lock_guard lock(mine.mutex);
  if (std::exchange(mine.isDecided, true)) return;
  if (!fabric::allowsPatch(fabric::Patch::processCopies)) return;
  const char* variable = getenv("CINNABAR_PTRACER");
  std::string choice = variable == nullptr ? "" : variable;
  if (choice.empty() && (mine.isWithheld || !isAlone())) return;
  // Fails harmlessly where Yama is absent.
  if (prctl(PR_SET_PTRACER, permittedTracer(choice, getppid()), 0, 0, 0) != 0) return;
  mine.isGiven = choice.empty();
  fabric::notePatched(fabric::Patch::processCopies);
}

void withholdProcessCopies() {
  Permission& mine = permission();
  std::lock_guard lock(mine.mutex);
  mine.isWithheld = true;
  if (std::exchange(mine.isGiven, false)) prctl(PR_SET_PTRACER, 0, 0, 0, 0);
}

bool canCopy(pid_t pid, uint64_t at, uint64_t proof) {
  uint64_t seen = 0;
  auto all = [&](Copy copy) {
    iovec here{&seen, sizeof seen};
    iovec there{reinterpret_cast<void*>(at), sizeof seen};
    uint64_t done;
    return copyAll(copy, pid, &here, &there, 1, &done) == 0;
  };
  if (!all(process_vm_readv) || seen != proof) return false;
  // Writing the same number back proves that writing is allowed, too, and changes nothing.
  return all(process_vm_writev);
}

int copyFrom(pid_t pid, iovec* local, iovec* remote, size_t count, uint64_t* done) {
  return copyAll(process_vm_readv, pid, local, remote, count, done);
}

int copyTo(pid_t pid, iovec* local, iovec* remote, size_t count, uint64_t* done) {
  return copyAll(process_vm_writev, pid, local, remote, count, done);
}

}  // namespace cinnabar::shm
