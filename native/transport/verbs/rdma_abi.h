// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

// The beginnings of librdmacm's and libibverbs' structures, as far as they are read here. Both
// libraries keep this ABI (RDMACM_1.0, IBVERBS_1.1) since 2008; their headers are not needed for a
// build, as the libraries are not for a start.

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

/// struct rdma_cm_id, of which only librdmacm makes any.
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

static_assert(offsetof(WorkCompletion, queuePair) == 28);
static_assert(sizeof(WorkCompletion) == 48);
static_assert(offsetof(DeviceContext, operations.poll) == 8 + 11 * 8);
static_assert(offsetof(DeviceContext, operations.postSend) == 8 + 25 * 8);
static_assert(offsetof(ConnectionHandle, local) == 32);
static_assert(offsetof(ConnectionHandle, remote) == 160);
static_assert(offsetof(ConnectionHandle, event) == 352);
static_assert(offsetof(EventHandle, privateBytes) == 32);

}  // namespace cinnabar::verbs
