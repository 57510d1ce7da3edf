// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include "verbs/rdma_abi.h"

namespace cinnabar::verbs {

/// Linux's soft-iWARP and its library tell some work requests of a broken connection twice, which
/// libfabric takes for the completion of another one:
///
/// - A read that waits to be sent is in the list of open reads already, and both are flushed
///   (siw_sq_flush), one right behind the other. The second is dropped here.
/// - A request is in the queue when the kernel is told of it. If the kernel will not hear, the
///   poster learns of a failure, and yet the request is flushed in its turn (siw_post_send of
///   libsiw). Here it is posted, and so is heard of once: from the kernel, or from libfabric when
///   it closes the connection.
///
/// To be called when libfabric has the device open, before anything is posted. Once for each device
/// and all of the process; does nothing for other devices.
void mendSoftIwarp();

/// The same for one device's table of functions, whoever has made it.
void mendSoftIwarp(DeviceOperations& operations);

}  // namespace cinnabar::verbs
