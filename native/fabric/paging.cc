// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/paging.h"

#include <dlfcn.h>
#include <strings.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace cinnabar::fabric {
namespace {

// The parts of libibverbs' structures that are read here, an ABI that stands since 2014
// (IBVERBS_1.1): its headers are not needed for a build.

struct Device;

struct Context {
  Device* device;
  uint8_t rest[312];
  void* form;
};
static_assert(offsetof(Context, form) == 320);

/// What lies before a context whose `form` says so; it grows at its beginning.
struct Extension {
  int (*queryDevice)(Context* context, const uint32_t* want, void* into, size_t bytes);
  void* others[11];
  size_t bytes;  // of all of it, the context included
};
static_assert(offsetof(Extension, bytes) == 96);

/// struct ibv_device_attr_ex, up to what is read.
struct Attributes {
  uint8_t plain[232];
  uint32_t has;
  uint64_t paging;
  uint32_t connected;
  uint32_t unreliable;
  uint32_t datagrams;
};
static_assert(offsetof(Attributes, paging) == 240);

// enum ibv_odp_general_caps, enum ibv_odp_transport_cap_bits
constexpr uint64_t kOffered = 1;
constexpr uint32_t kSend = 1 << 0, kWrite = 1 << 2, kRead = 1 << 3, kSharedReceive = 1 << 5;
constexpr uint32_t kAll = kSend | kWrite | kRead | kSharedReceive;

struct Verbs {
  Device** (*list)(int* count);
  void (*freeList)(Device** list);
  const char* (*name)(Device* device);
  Context* (*open)(Device* device);
  int (*close)(Context* context);
};

template <typename F>
bool find(void* handle, const char* name, F* into) {
  *into = reinterpret_cast<F>(dlsym(handle, name));
  return *into != nullptr;
}

const Extension* extensionOf(const Context* context) {
  if (context->form != reinterpret_cast<void*>(UINTPTR_MAX)) return nullptr;
  const auto* extension = reinterpret_cast<const Extension*>(
      reinterpret_cast<const uint8_t*>(context) - sizeof(Extension));
  bool reaches = extension->bytes >= sizeof(Extension) + sizeof(Context);
  return reaches && extension->queryDevice != nullptr ? extension : nullptr;
}

void query(Context* context, DevicePaging* into) {
  const Extension* extension = extensionOf(context);
  if (extension == nullptr) return;
  uint32_t want = 0;
  Attributes attributes{};
  if (extension->queryDevice(context, &want, &attributes, sizeof attributes) != 0) return;
  into->offered = (attributes.paging & kOffered) != 0;
  into->transfers = attributes.connected;
}

/// As libfabric reads its variables.
bool isWishedFor() {
  const char* value = getenv("FI_VERBS_USE_ODP");
  if (value == nullptr) return false;
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (strcasecmp(value, yes) == 0) return true;
  }
  return false;
}

}  // namespace

bool DevicePaging::servesAll() const { return offered && (transfers & kAll) == kAll; }

std::vector<DevicePaging> pagingOfDevices() {
  std::vector<DevicePaging> found;
  // It stays loaded: libfabric has it, or will.
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  Verbs verbs{};
  if (handle == nullptr || !find(handle, "ibv_get_device_list", &verbs.list) ||
      !find(handle, "ibv_free_device_list", &verbs.freeList) ||
      !find(handle, "ibv_get_device_name", &verbs.name) ||
      !find(handle, "ibv_open_device", &verbs.open) ||
      !find(handle, "ibv_close_device", &verbs.close))
    return found;
  Device** list = verbs.list(nullptr);
  for (Device** device = list; device != nullptr && *device != nullptr; ++device) {
    Context* context = verbs.open(*device);
    if (context == nullptr) continue;
    found.push_back({verbs.name(*device)});
    query(context, &found.back());
    verbs.close(context);
  }
  if (list != nullptr) verbs.freeList(list);
  return found;
}

std::string pagingObstacle(const std::vector<DevicePaging>& devices, const std::string& root) {
  for (const DevicePaging& device : devices) {
    // Only Soft-RoCE names the interface that it is made on so.
    std::string parent = root + "/sys/class/infiniband/" + device.device + "/parent";
    if (!isWishedFor() || !device.offered || access(parent.c_str(), F_OK) != 0) continue;
    return "FI_VERBS_USE_ODP is set, and on-demand paging of Soft-RoCE (" + device.device +
           ") puts data in wrong places: unset it";
  }
  return "";
}

std::string pagingObstacle() { return isWishedFor() ? pagingObstacle(pagingOfDevices(), "") : ""; }

}  // namespace cinnabar::fabric
