// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/device_memory.h"

#include <dlfcn.h>

#include <array>

#include "fabric/info.h"

namespace cinnabar::fabric {
namespace {

/// What libfabric itself opens to reach devices of each kind (fi_mr(3), FI_HMEM_*).
struct DeviceKind {
  std::string_view kind;
  const char* name;
  const char* driver;
};
constexpr std::array kKinds = {
    DeviceKind{"cuda", "CUDA", "libcuda.so.1"},
    DeviceKind{"rocr", "ROCr", "libhsa-runtime64.so.1"},
    DeviceKind{"levelZero", "Level Zero", "libze_loader.so.1"},
};

}  // namespace

std::string reasonAgainstDeviceMemory(const Library& library, Scheme scheme,
                                      std::string_view kind) {
  const DeviceKind* device = nullptr;
  for (const DeviceKind& known : kKinds) {
    if (known.kind == kind) device = &known;
  }
  if (device == nullptr) return "no such kind of device memory: " + std::string(kind);

  // The first provider that works here is the one that ports are opened on.
  const Provider* chosen = nullptr;
  for (const Provider& provider : providerTable()) {
    if (chosen == nullptr && provider.scheme == scheme && reasonAgainst(library, provider).empty())
      chosen = &provider;
  }
  if (chosen == nullptr) return std::string("no provider serves ") + schemeName(scheme) + " here";

  uint32_t version = library.loadedVersion;
  std::string who = std::string("provider ") + chosen->name + " of libfabric " +
                    std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
  auto info = getInfo(library, {.provider = chosen, .deviceMemory = true});
  if (!info) return who + " offers no FI_HMEM";

  // Offered, but libfabric finds devices by their driver. It is closed again: whoever uses it has
  // it open.
  void* driver = dlopen(device->driver, RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr)
    return who + " offers FI_HMEM, but " + device->name + "'s " + device->driver + " was not found";
  dlclose(driver);
  return "";
}

}  // namespace cinnabar::fabric
