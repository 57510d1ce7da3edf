// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include "transport/verbs/rdma_abi.h"

namespace cinnabar::verbs {

/// Linux's soft-iWARP and its library do not complete work requests as libfabric is entitled to
/// think: each once, and in the order in which a connection's requests were posted. libfabric takes
/// the first of its list for the one that it is told of, so its list soon holds what has been freed
/// and used again, and when the connection closes it forgets requests or ends others' twice.
///
/// - A write or a message is told of when it has left, a read when it is answered: a write that was
///   posted behind a read comes first.
/// - A read that waits to be sent is in the list of open reads already, and both are flushed
///   (siw_sq_flush).
/// - The reads behind one whose answer is wrong are never told of (siw_rdmap_complete takes it out
///   of the list, where siw_sq_flush stops).
/// - A request is in the queue when the kernel is told of it. If the kernel will not hear, the
///   poster learns of a failure, and yet the request is flushed in its turn (siw_post_send of
///   libsiw). Here it is posted, and so is heard of once.
///
/// Here each is told of once and in order. What the device never tells libfabric does, when it
/// closes the connection: all that it has not heard of was flushed.
///
/// To be called when libfabric has the device open, before anything is posted. Once for each device
/// and all of the process; does nothing for other devices.
void mendSoftIwarp();

/// The same for one device's table of functions.
void mendSoftIwarp(DeviceOperations& operations);

/// A connection's queue pair is gone; another may soon be at its place.
void forgetSoftIwarp(QueuePairHandle* pair);

}  // namespace cinnabar::verbs
