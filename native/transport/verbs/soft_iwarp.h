// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include "transport/verbs/rdma_abi.h"

namespace cinnabar::verbs {

/// libfabric expects one completion for each work request of a connection, in the order of posting.
/// Linux's soft-iWARP and its library break both rules. libfabric takes each completion for the
/// first request of its list. So the list soon holds requests that were freed and used again, and
/// when the connection closes, requests are forgotten or completed twice.
///
/// - A write or a message completes when it has left, a read when it is answered. A write that was
///   posted behind a read completes first.
/// - A read that waits to be sent is in the list of open reads already, and both are flushed
///   (siw_sq_flush).
/// - The reads behind one with a wrong answer never complete: siw_rdmap_complete takes it out of
///   the list, where siw_sq_flush stops.
/// - A request is in the queue before the kernel is called. If that call fails, the poster sees a
///   failure, but the request is flushed in its turn (siw_post_send of libsiw). Here such a request
///   counts as posted, and completes once.
///
/// With the repair, each request completes once and in order. When a connection closes, libfabric
/// completes the requests that the device never completed: all of them were flushed.
///
/// Call it when libfabric has the device open, before anything is posted, once for each device. It
/// serves the whole process, and does nothing for other devices.
void mendSoftIwarp();

/// The same for one device's table of functions.
void mendSoftIwarp(DeviceOperations& operations);

/// A connection's queue pair was destroyed; another may soon have its address.
void forgetSoftIwarp(QueuePairHandle* pair);

}  // namespace cinnabar::verbs
