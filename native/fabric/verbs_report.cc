// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/verbs_report.h"

#include <linux/capability.h>
#include <rdma/fi_errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

namespace cinnabar::fabric {
namespace {

// What rxm allocates and locks as an endpoint is opened: 1024 buffers of 16 KiB and a header to
// send from, as many to receive into. Ours come on top.
constexpr uint64_t kLockedBytes = uint64_t{40} << 20;

std::vector<std::string> entriesOf(const char* folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.push_back(entry.path().filename());
  return names;
}

/// A device file of RDMA that is there and not ours to use; empty if there is none.
std::string forbiddenDeviceFile() {
  for (const std::string& name : entriesOf("/dev/infiniband")) {
    std::string path = "/dev/infiniband/" + name;
    bool needed = name.starts_with("uverbs") || name == "rdma_cm";
    if (needed && access(path.c_str(), R_OK | W_OK) != 0) return path;
  }
  return "";
}

bool mayLockAnything() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "CapEff:") continue;
    uint64_t capabilities = 0;
    status >> std::hex >> capabilities;
    return (capabilities >> CAP_IPC_LOCK) & 1;
  }
  return false;
}

/// Every address that a device here has for the provider, as "rxe0 10.77.1.1".
std::set<std::string> addressesOf(const Library& library, const Provider& provider) {
  std::set<std::string> found;
  auto list = getInfos(library, {&provider, {}, 0});
  if (!list) return found;
  for (const fi_info* info = list->get(); info != nullptr; info = info->next) {
    auto at = decodeSocketAddress(static_cast<const uint8_t*>(info->src_addr), info->src_addrlen);
    if (at) found.insert(std::string(info->domain_attr->name) + " " + at->host);
  }
  return found;
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::string lockedMemoryObstacle() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  if (limit.rlim_cur >= kLockedBytes || mayLockAnything()) return "";
  return "verbs needs " + std::to_string(kLockedBytes >> 20) +
         " MiB of locked memory for its queues alone, and this process may lock " +
         std::to_string(limit.rlim_cur >> 10) +
         " KiB (RLIMIT_MEMLOCK): raise it by `ulimit -l unlimited`, \"* - memlock unlimited\" in "
         "/etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, or --ulimit "
         "memlock=-1 of a container";
}

std::optional<Failure> verbsObstacle(const Library& library, const Provider& provider,
                                     const RawAddress& source) {
  auto because = [&](int code, std::string why) {
    return library.fail("verbs", code, std::move(why));
  };
  auto devices = entriesOf("/sys/class/infiniband");
  if (devices.empty()) {
    return because(FI_ENODEV,
                   "this machine has no RDMA device (nothing in /sys/class/infiniband); Soft-RoCE "
                   "makes one of any Ethernet interface: rdma link add rxe0 type rxe netdev eth0");
  }
  std::string forbidden = forbiddenDeviceFile();
  if (!forbidden.empty()) {
    return because(EACCES, "this user may not open " + forbidden +
                               ": let udev give /dev/infiniband/* to a group of its (rdma-core's "
                               "rules do), or pass the devices into the container");
  }
  std::string locked = lockedMemoryObstacle();
  if (!locked.empty()) return because(FI_ENOMEM, locked);
  auto addresses = addressesOf(library, provider);
  if (addresses.empty()) {
    return because(FI_ENODATA,
                   "there is " + devices.front() +
                       ", but libfabric finds no verbs device with an IP address: install the "
                       "user-space drivers (Debian, Ubuntu: apt-get install ibverbs-providers "
                       "librdmacm1; Fedora: dnf install rdma-core librdmacm), load rdma_ucm "
                       "(modprobe rdma_ucm), and give the device's network interface an address");
  }
  if (source.empty()) return std::nullopt;
  auto wanted = decodeSocketAddress(source.data(), source.size());
  if (!wanted) return std::nullopt;
  for (const std::string& address : addresses) {
    if (address.ends_with(" " + wanted->host)) return std::nullopt;
  }
  std::string there = ": name the address of one; there are " + joined(addresses);
  return because(FI_EADDRNOTAVAIL, "no RDMA device has the address " + wanted->host + there);
}

Failure explainVerbs(const Library& library, const Provider& provider, const RawAddress& source,
                     Failure failure) {
  auto obstacle = verbsObstacle(library, provider, source);
  if (obstacle) return *obstacle;
  auto wanted = decodeSocketAddress(source.data(), source.size());
  // fi_getinfo binds, and says of every failure that there is no such provider.
  if (failure.op == "fi_getinfo" && wanted && wanted->port != 0) {
    return library.fail("verbs", FI_EADDRINUSE,
                        "port " + std::to_string(wanted->port) + " of " + wanted->host +
                            " is in use: ports of RDMA are a space of their own for each address");
  }
  return failure;
}

}  // namespace cinnabar::fabric
