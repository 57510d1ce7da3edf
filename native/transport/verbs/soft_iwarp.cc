// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "transport/verbs/soft_iwarp.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "fabric/linkage.h"
#include "fabric/patches.h"
#include "transport/verbs/completion_order.h"

namespace cinnabar::verbs {
namespace {

/// What libsiw returns only when its write(2) to the kernel has failed.
constexpr int kDoorbellFailed = -1;

// All devices of libsiw have the same.
std::atomic<PollFunction*> originalPoll = nullptr;
std::atomic<PostFunction*> originalPost = nullptr;
void (*originalDestroy)(ConnectionHandle* id) = nullptr;

/// Never destroyed: libfabric's threads may outlive every destructor.
CompletionOrder& order() {
  static auto* one = new CompletionOrder;
  return *one;
}

/// Replaces libsiw's poll_cq.
int poll(CompletionQueue* queue, int most, WorkCompletion* into) {
  int count = 0;
  while (count < most) {
    if (order().take(queue, &into[count])) {
      ++count;
      continue;
    }
    WorkCompletion completion;
    int status = originalPoll.load()(queue, 1, &completion);
    if (status < 0 && count == 0) return status;
    if (status <= 0) break;
    if (CompletionOrder::isNumber(completion.id)) {
      order().add(queue, completion);
    } else {
      into[count++] = completion;
    }
  }
  return count;
}

/// Replaces libsiw's post_send. libfabric posts one request at a time.
int post(QueuePairHandle* pair, WorkRequest* request, WorkRequest** refused) {
  uint64_t id = request->id;
  uint64_t number = order().begin(pair, id);
  request->id = number;
  int status = originalPost.load()(pair, request, refused);
  request->id = id;
  if (status == kDoorbellFailed) return 0;
  if (status != 0) order().refuse(number);
  return status;
}

/// Replaces rdma_destroy_ep.
void destroy(ConnectionHandle* id) {
  QueuePairHandle* pair = id->queuePair;
  originalDestroy(id);
  if (pair != nullptr) order().forget(pair);
}

/// So that the end of connections is seen: true, or else nothing can be put into order.
bool watchConnections(void* connections) {
  originalDestroy =
      reinterpret_cast<void (*)(ConnectionHandle*)>(dlsym(connections, "rdma_destroy_ep"));
  return originalDestroy != nullptr &&
         fabric::replaceInLibfabric("rdma_destroy_ep", reinterpret_cast<void*>(&destroy)) > 0;
}

bool isOfSoftIwarp(PollFunction* function) {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(function), &where) == 0 || where.dli_fname == nullptr)
    return false;
  return std::string_view(where.dli_fname).find("libsiw") != std::string_view::npos;
}

}  // namespace

void mendSoftIwarp(DeviceOperations& operations) {
  if (operations.poll == &poll) return;
  originalPoll = operations.poll;
  originalPost = operations.postSend;
  // Other threads may use the device already.
  __atomic_store_n(&operations.postSend, &post, __ATOMIC_RELEASE);
  __atomic_store_n(&operations.poll, &poll, __ATOMIC_RELEASE);
}

void forgetSoftIwarp(QueuePairHandle* pair) { order().forget(pair); }

void mendSoftIwarp() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  void* library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return;
  auto list = reinterpret_cast<DeviceContext** (*)(int*)>(dlsym(library, "rdma_get_devices"));
  auto give = reinterpret_cast<void (*)(DeviceContext**)>(dlsym(library, "rdma_free_devices"));
  DeviceContext** devices = list != nullptr && give != nullptr ? list(nullptr) : nullptr;
  if (devices != nullptr) {
    // librdmacm opens each device once, and libfabric takes them from it.
    for (DeviceContext** device = devices; *device != nullptr; ++device) {
      DeviceOperations& operations = (*device)->operations;
      if (!isOfSoftIwarp(operations.poll)) continue;
      if (originalDestroy == nullptr && !watchConnections(library)) order().giveUpOrder();
      mendSoftIwarp(operations);
      fabric::notePatched(fabric::Patch::softIwarp);
    }
    give(devices);
  }
  dlclose(library);
}

}  // namespace cinnabar::verbs
