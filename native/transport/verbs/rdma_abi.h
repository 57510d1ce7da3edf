// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

// The beginnings of librdmacm's and libibverbs' structures, as far as the code here reads them.
// Both libraries keep this ABI (RDMACM_1.0, IBVERBS_1.1) since 2008. A build does not need their
// headers, and a start does not need the libraries. If the headers exist, the compiler compares the
// structures: in a checkout with the tests, and in the builds of binaries.
#if __has_include(<rdma/rdma_cma.h>)
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#endif

namespace cinnabar::verbs {

struct Device;
struct CompletionQueue;
struct QueuePairHandle;

/// struct ibv_wc.
struct WorkCompletion {
  uint64_t id;
  int status;
  int operation;
  uint32_t vendorError;
  uint32_t bytes;
  uint32_t immediate;
  uint32_t queuePair;
  uint32_t sender;
  uint32_t flags;
  uint16_t partition;
  uint16_t sourceLid;
  uint8_t serviceLevel;
  uint8_t destinationBits;
};

/// The beginning of struct ibv_send_wr.
struct WorkRequest {
  uint64_t id;
  WorkRequest* next;
};

using PollFunction = int(CompletionQueue* queue, int most, WorkCompletion* into);
/// Posts a list. Returns an error, and the request that was refused.
using PostFunction = int(QueuePairHandle* pair, WorkRequest* request, WorkRequest** refused);

/// The beginning of struct ibv_context_ops.
struct DeviceOperations {
  void* others[11];
  PollFunction* poll;
  void* more[13];
  PostFunction* postSend;
};

struct DeviceContext {
  Device* device;
  DeviceOperations operations;
};

struct CompletionQueue {
  DeviceContext* context;
};

struct QueuePairHandle {
  DeviceContext* context;
};

struct EventHandle;

/// struct rdma_cm_id; only librdmacm makes it.
struct ConnectionHandle {
  DeviceContext* verbs;
  void* channel;
  void* userContext;
  QueuePairHandle* queuePair;
  sockaddr_storage local;
  sockaddr_storage remote;
  uint8_t infinibandAddress[36];
  void* paths;
  int pathCount;
  int portSpace;
  uint8_t port;
  EventHandle* event;
};

/// The beginning of struct rdma_cm_event.
struct EventHandle {
  ConnectionHandle* id;
  ConnectionHandle* listener;
  int event;
  int status;
  const void* privateData;  // of a connection
  uint8_t privateBytes;
};

#if __has_include(<rdma/rdma_cma.h>)
static_assert(offsetof(WorkCompletion, id) == offsetof(ibv_wc, wr_id));
static_assert(offsetof(WorkCompletion, status) == offsetof(ibv_wc, status));
static_assert(sizeof(WorkCompletion) == sizeof(ibv_wc));
static_assert(offsetof(WorkRequest, id) == offsetof(ibv_send_wr, wr_id));
static_assert(offsetof(WorkRequest, next) == offsetof(ibv_send_wr, next));
static_assert(offsetof(DeviceContext, operations.poll) == offsetof(ibv_context, ops.poll_cq));
static_assert(offsetof(DeviceContext, operations.postSend) == offsetof(ibv_context, ops.post_send));
static_assert(offsetof(CompletionQueue, context) == offsetof(ibv_cq, context));
static_assert(offsetof(QueuePairHandle, context) == offsetof(ibv_qp, context));
static_assert(offsetof(ConnectionHandle, verbs) == offsetof(rdma_cm_id, verbs));
static_assert(offsetof(ConnectionHandle, queuePair) == offsetof(rdma_cm_id, qp));
static_assert(offsetof(ConnectionHandle, local) == offsetof(rdma_cm_id, route.addr.src_storage));
static_assert(offsetof(ConnectionHandle, remote) == offsetof(rdma_cm_id, route.addr.dst_storage));
static_assert(offsetof(ConnectionHandle, event) == offsetof(rdma_cm_id, event));
static_assert(offsetof(EventHandle, id) == offsetof(rdma_cm_event, id));
static_assert(offsetof(EventHandle, event) == offsetof(rdma_cm_event, event));
static_assert(sizeof(EventHandle::event) == sizeof(rdma_cm_event::event));
static_assert(offsetof(EventHandle, status) == offsetof(rdma_cm_event, status));
static_assert(offsetof(EventHandle, privateBytes) ==
              offsetof(rdma_cm_event, param.conn.private_data_len));
#endif

}  // namespace cinnabar::verbs
