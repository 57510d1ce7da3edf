// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/verbs_report.h"

#include <dlfcn.h>
#include <linux/capability.h>
#include <rdma/fi_errno.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

namespace cinnabar::fabric {
namespace {

// What rxm allocates and locks as an endpoint is opened: 1024 buffers of 16 KiB and a header to
// send from, as many to receive into. Ours come on top.
constexpr uint64_t kLockedBytes = uint64_t{40} << 20;

std::vector<std::string> entriesOf(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    names.push_back(entry.path().filename());
  return names;
}

bool isThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// Whether the loader finds a library. It stays loaded: libfabric has it, or will.
bool canLoad(const char* library) { return dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr; }

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

/// Why libfabric finds no address though the kernel's side is in order.
std::string addressObstacle() {
  auto devices = entriesOf("/sys/class/infiniband");
  // It may have gone since it was seen.
  std::string device = devices.empty() ? "an RDMA device" : devices.front();
  for (const char* library : {"libibverbs.so.1", "librdmacm.so.1"}) {
    if (!canLoad(library))
      return "there is " + device + ", but " + library +
             " was not found: install it (Debian, Ubuntu: apt-get install libibverbs1 librdmacm1; "
             "Fedora: dnf install libibverbs librdmacm)";
  }
  std::string drivers = driverObstacle("");
  if (!drivers.empty()) return "there is " + device + ", but " + drivers;
  return "there is " + device +
         ", but libfabric finds no verbs device with an IP address: give the device's network "
         "interface one (ip address add 10.0.0.7/24 dev eth0; for InfiniBand load ib_ipoib), and "
         "see that the interface is up and this libfabric has the provider verbs (fi_info -p "
         "verbs)";
}

/// As libfabric reads its variables.
bool wishesForPaging() {
  const char* value = getenv("FI_VERBS_USE_ODP");
  if (value == nullptr) return false;
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (strcasecmp(value, yes) == 0) return true;
  }
  return false;
}

}  // namespace

std::string pagingObstacle(const std::string& root) {
  if (!wishesForPaging()) return "";
  std::string folder = root + "/sys/class/infiniband";
  for (const std::string& device : entriesOf(folder)) {
    // Only Soft-RoCE names the interface that it is made on so.
    if (!isThere(folder + "/" + device + "/parent")) continue;
    return "FI_VERBS_USE_ODP is set, and on-demand paging of Soft-RoCE (" + device +
           ") puts data in wrong places: unset it";
  }
  return "";
}

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

std::string deviceObstacle(const std::string& root) {
  auto devices = entriesOf(root + "/sys/class/infiniband");
  if (devices.empty()) {
    return "this machine has no RDMA device (nothing in /sys/class/infiniband): load its "
           "adapter's driver; Soft-RoCE makes a device of any Ethernet interface: rdma link add "
           "rxe0 type rxe netdev eth0";
  }
  std::string folder = root + "/dev/infiniband";
  bool opened = false;
  for (const std::string& name : entriesOf(folder)) opened |= name.starts_with("uverbs");
  if (!opened) {
    return "there is " + devices.front() +
           ", but no /dev/infiniband/uverbs0 to use it by: load ib_uverbs (modprobe ib_uverbs), or "
           "pass /dev/infiniband into the container";
  }
  if (!isThere(folder + "/rdma_cm")) {
    return "there is " + devices.front() +
           ", but no /dev/infiniband/rdma_cm to connect by: load rdma_ucm (modprobe rdma_ucm), or "
           "pass the file into the container";
  }
  for (const std::string& name : entriesOf(folder)) {
    bool needed = name.starts_with("uverbs") || name == "rdma_cm";
    if (!needed || access((folder + "/" + name).c_str(), R_OK | W_OK) == 0) continue;
    return "this user may not open /dev/infiniband/" + name +
           ": let udev give /dev/infiniband/* to a group of its (rdma-core's rules do), or pass "
           "the devices into the container";
  }
  return "";
}

std::string driverObstacle(const std::string& root) {
  // Where rdma-core is installed in a place of its own, this says nothing.
  for (const std::string& name : entriesOf(root + "/etc/libibverbs.d")) {
    if (name.ends_with(".driver")) return "";
  }
  return "no ibverbs provider library is installed (nothing in /etc/libibverbs.d): install the "
         "user-space drivers (Debian, Ubuntu: apt-get install ibverbs-providers; Fedora: dnf "
         "install rdma-core)";
}

std::optional<Failure> verbsObstacle(const Library& library, const Provider& provider,
                                     const RawAddress& source) {
  auto because = [&](int code, std::string why) {
    return library.fail("verbs", code, std::move(why));
  };
  std::string device = deviceObstacle("");
  if (!device.empty()) return because(device.starts_with("this user") ? EACCES : FI_ENODEV, device);
  std::string locked = lockedMemoryObstacle();
  if (!locked.empty()) return because(FI_ENOMEM, locked);
  std::string paging = pagingObstacle("");
  if (!paging.empty()) return because(FI_EOPNOTSUPP, paging);
  auto addresses = addressesOf(library, provider);
  if (addresses.empty()) return because(FI_ENODATA, addressObstacle());
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
