// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/library.h"

#include <dlfcn.h>
#include <link.h>
#include <rdma/fi_errno.h>
#include <sys/utsname.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>

#include "fabric/fork_safety.h"
#include "fabric/kernel_symbols.h"
#include "fabric/quirks.h"
#include "fabric/signals.h"

namespace cinnabar::fabric {
namespace {

// The symbol version that belongs to the headers compiled against (libfabric.map.in): struct
// fi_info grew in FABRIC_1.7, 1.8 and 1.9. A plain dlsym would fetch the newest entry point, which
// reads past the end of older structures. Later headers get the last one known: an older entry
// point leaves the fields that came after it alone.
constexpr uint32_t kOldest = FI_VERSION(1, 17);
constexpr uint32_t kHeaders = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
static_assert(kHeaders >= kOldest, "libfabric's headers must be of 1.17 or later");

constexpr const char* kInfoVersion = kHeaders < FI_VERSION(1, 20)  ? "FABRIC_1.3"
                                     : kHeaders < FI_VERSION(2, 0) ? "FABRIC_1.7"
                                     : kHeaders < FI_VERSION(2, 5) ? "FABRIC_1.8"
                                                                   : "FABRIC_1.9";
constexpr const char* kFabricVersion = "FABRIC_1.1";
constexpr const char* kBaseVersion = "FABRIC_1.0";

std::mutex mutex;
Library instance;
LoadReport success;
std::atomic<const Library*> published{nullptr};

template <typename F>
bool resolve(void* handle, const char* name, const char* version, F* into, std::string* reason) {
  dlerror();
  void* symbol = dlvsym(handle, name, version);
  if (symbol == nullptr) {
    const char* text = dlerror();
    *reason = text != nullptr ? text : std::string("no symbol ") + name + ", version " + version;
    return false;
  }
  *into = reinterpret_cast<F>(symbol);
  return true;
}

/// The file behind a handle, with links resolved; "" where the linker does not know it.
std::string fileOf(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  char real[PATH_MAX];
  return realpath(map->l_name, real) != nullptr ? real : map->l_name;
}

}  // namespace

void prepareEnvironment() {
  static std::once_flag done;
  std::call_once(done, [] {
    applySettings();
    utsname system{};
    if (uname(&system) == 0) keepForksSafe(system.release);
  });
}

Failure Library::fail(std::string op, int code, std::string message) const {
  if (code < 0) code = -code;
  return Failure{std::move(op), code, strerror(code), std::move(message)};
}

std::string openLibrary(const std::string& path, Library* into) {
  SignalKeeper keeper;
  // RTLD_LOCAL: what libfabric brings along must not take the place of Node's own symbols.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* text = dlerror();
    return text != nullptr ? text : "dlopen failed";
  }
  std::string reason;
  Library found;
  bool whole = resolve(handle, "fi_version", kBaseVersion, &found.version, &reason) &&
               resolve(handle, "fi_strerror", kBaseVersion, &found.strerror, &reason) &&
               resolve(handle, "fi_getinfo", kInfoVersion, &found.getinfo, &reason) &&
               resolve(handle, "fi_freeinfo", kInfoVersion, &found.freeinfo, &reason) &&
               resolve(handle, "fi_dupinfo", kInfoVersion, &found.dupinfo, &reason) &&
               resolve(handle, "fi_fabric", kFabricVersion, &found.fabric, &reason);
  if (!whole) {
    dlclose(handle);
    return reason;
  }
  found.loadedVersion = found.version();
  if (FI_VERSION_LT(found.loadedVersion, kOldest)) {
    reason = "libfabric " + std::to_string(FI_MAJOR(found.loadedVersion)) + "." +
             std::to_string(FI_MINOR(found.loadedVersion)) + " is older than 1.17";
    dlclose(handle);
    return reason;
  }
  found.file = fileOf(handle);
  *into = found;
  return "";
}

LoadReport loadLibrary(const std::vector<std::string>& candidates) {
  std::lock_guard lock(mutex);
  if (success.loaded) return success;
  LoadReport report;
  for (const std::string& path : candidates) {
    std::string reason = openLibrary(path, &instance);
    report.tried.push_back({path, reason});
    if (!reason.empty()) continue;
    report.loaded = true;
    report.path = instance.file.empty() ? path : instance.file;
    report.version = instance.loadedVersion;
    success = report;
    published.store(&instance, std::memory_order_release);
    hideKernelSymbols();
    break;
  }
  return report;
}

const Library* library() { return published.load(std::memory_order_acquire); }

}  // namespace cinnabar::fabric
