// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "verbs/soft_iwarp.h"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace cinnabar::verbs {
namespace {

// enum ibv_wc_status, enum ibv_wc_opcode.
constexpr int kFlushed = 5;
constexpr int kRead = 2;
/// What libsiw returns when its write(2) to the kernel has failed, and for nothing else.
constexpr int kBellFailed = -1;
/// The kernel writes both completions without a pause, but perhaps just now.
constexpr auto kTwinWait = std::chrono::microseconds(20);

// All devices of libsiw have the same.
std::atomic<PollFunction*> originalPoll = nullptr;
std::atomic<PostFunction*> originalPost = nullptr;

/// Completions that were read too early, one of a queue at most.
struct Held {
  std::mutex mutex;
  std::unordered_map<CompletionQueue*, WorkCompletion> ofQueue;
  std::atomic<size_t> count = 0;
};

Held& held() {
  static auto* all = new Held;
  return *all;
}

bool take(CompletionQueue* queue, WorkCompletion* into) {
  Held& all = held();
  if (all.count.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(all.mutex);
  auto found = all.ofQueue.find(queue);
  if (found == all.ofQueue.end()) return false;
  *into = found->second;
  all.ofQueue.erase(found);
  all.count = all.ofQueue.size();
  return true;
}

void hold(CompletionQueue* queue, const WorkCompletion& completion) {
  Held& all = held();
  std::lock_guard lock(all.mutex);
  all.ofQueue[queue] = completion;
  all.count = all.ofQueue.size();
}

/// Reads the completion behind a flushed read, and drops it if it tells of the same one.
void dropTwin(CompletionQueue* queue, const WorkCompletion& first) {
  WorkCompletion next;
  auto until = std::chrono::steady_clock::now() + kTwinWait;
  while (originalPoll.load()(queue, 1, &next) <= 0) {
    if (std::chrono::steady_clock::now() >= until) return;
  }
  bool isTwin = next.id == first.id && next.queuePair == first.queuePair && next.status == kFlushed;
  if (!isTwin) hold(queue, next);
}

/// In the place of libsiw's poll_cq.
int poll(CompletionQueue* queue, int most, WorkCompletion* into) {
  int count = 0;
  while (count < most) {
    WorkCompletion& completion = into[count];
    int status = take(queue, &completion) ? 1 : originalPoll.load()(queue, 1, &completion);
    if (status < 0 && count == 0) return status;
    if (status <= 0) break;
    ++count;
    if (completion.status == kFlushed && completion.operation == kRead) dropTwin(queue, completion);
  }
  return count;
}

/// In the place of libsiw's post_send. libfabric posts one at a time.
int post(QueuePairHandle* pair, void* request, void** refused) {
  int status = originalPost.load()(pair, request, refused);
  return status == kBellFailed ? 0 : status;
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
      if (isOfSoftIwarp((*device)->operations.poll)) mendSoftIwarp((*device)->operations);
    }
    give(devices);
  }
  dlclose(library);
}

}  // namespace cinnabar::verbs
