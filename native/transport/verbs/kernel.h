// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <cstdint>
#include <vector>

namespace cinnabar::verbs {

/// Asks the kernel's RDMA subsystem for all objects of a kind (RDMA_NLDEV_CMD_…, rdma_netlink.h):
/// of one device, or of all if `device` is negative. 0, and the answer as it came, netlink messages
/// in a row; or a negated error number.
int askKernel(uint16_t command, int64_t device, std::vector<uint8_t>* answer);

}  // namespace cinnabar::verbs
