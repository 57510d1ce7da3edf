// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cinnabar::fabric {

/// What an RDMA device can do with memory that is registered but not in its place: it fetches the
/// pages when it meets them, and none is pinned (on-demand paging, ibv_query_device_ex(3)).
struct DevicePaging {
  std::string device;
  bool offered = false;    // for any transfer: libfabric asks for no more
  uint32_t transfers = 0;  // IBV_ODP_SUPPORT_… of reliable connections
  /// Whether it can for all that rxm does with registered memory: send, receive by a shared queue,
  /// write and read.
  bool servesAll() const;
};

/// The paging of each device that this process can open; empty without libibverbs.
std::vector<DevicePaging> pagingOfDevices();

/// Why verbs cannot be used while the user asks for on-demand paging (FI_VERBS_USE_ODP), with what
/// to do about it. Empty where the user does not ask for it, or where all devices serve it.
/// Soft-RoCE offers it and puts data in wrong places (docs/design/verbs.md). The kernel's files lie
/// below `root`.
std::string pagingObstacle(const std::vector<DevicePaging>& devices, const std::string& root);
std::string pagingObstacle();  // on this machine

}  // namespace cinnabar::fabric
