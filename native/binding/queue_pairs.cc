// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/queue_pairs.h"

#include <array>
#include <cerrno>

#include "binding/instance.h"
#include "fabric/library.h"

namespace cinnabar::binding {
namespace {

using Info = Napi::CallbackInfo;
using verbs::QueuePairEvent;

constexpr size_t kEventWords = 5;
constexpr size_t kMostEventsTaken = 256;
constexpr size_t kEventBytes = kMostEventsTaken * kEventWords * sizeof(uint32_t);
constexpr uint64_t kMostOffsetOfMemory = uint64_t{1} << 32;

/// The listener that the first argument names; nullptr if it is not open.
QueuePairsHolder* listenerOf(const Info& info) {
  Instance* instance = Instance::of(info.Env());
  return instance == nullptr ? nullptr : instance->listeners.find(info.Env(), info[0]);
}

bool readNumber(const Info& info, size_t index, uint32_t* into) {
  uint64_t read = 0;
  if (!readInteger(info.Env(), info[index], UINT32_MAX, &read)) return false;
  *into = static_cast<uint32_t>(read);
  return true;
}

Napi::Value listenQueuePairs(const Info& info) {
  Napi::Env env = info.Env();
  Instance* instance = Instance::of(env);
  std::string host;
  uint64_t port = 0;
  uint32_t most = 0;
  uint8_t* events = nullptr;
  size_t eventBytes = 0;
  if (instance == nullptr || !readString(env, info[0], 256, &host) ||
      !readInteger(env, info[1], UINT16_MAX, &port) || !readNumber(info, 2, &most) ||
      !readBuffer(env, info[3], &events, &eventBytes) || eventBytes < kEventBytes ||
      reinterpret_cast<uintptr_t>(events) % alignof(uint32_t) != 0 || !info[4].IsFunction()) {
    return failureObject(env, {"listenQueuePairs", EINVAL, "EINVAL",
                               "a host, a port, a number, a buffer for events, and a function"});
  }
  const fabric::Library* library = fabric::library();
  if (library == nullptr)
    return failureObject(env, {"listenQueuePairs", 0, "ENOENT", "libfabric is not loaded"});
  auto opened = verbs::QueuePairs::listen(*library, host, static_cast<uint16_t>(port), most);
  if (!opened) return failureObject(env, opened.failure());

  auto holder = std::make_unique<QueuePairsHolder>();
  QueuePairsHolder* held = holder.get();
  holder->pairs = std::move(*opened);
  holder->events = Hold(env, info[3]);
  holder->eventWords = reinterpret_cast<uint32_t*>(events);
  holder->onEvents = Hold(env, info[4]);
  holder->wake = Wake::create(env, holder->pairs->fd(), [instance, held] {
    Napi::HandleScope scope(Napi::Env(instance->env()));
    instance->call(held->onEvents);
  });
  if (holder->wake == nullptr) {
    return failureObject(env, {"uv_poll_init", EINVAL, "EINVAL",
                               "the event loop refuses the listener's descriptor"});
  }
  holder->wake->setRef(true);
  holder->wake->start(false);
  fabric::HostPort address = holder->pairs->address();
  Napi::Object result = Napi::Object::New(env);
  result.Set("listener", instance->listeners.add(std::move(holder)));
  result.Set("host", address.host);
  result.Set("port", address.port);
  return result;
}

void closeQueuePairs(const Info& info) {
  Instance* instance = Instance::of(info.Env());
  if (instance != nullptr) instance->closeListener(info[0]);
}

Napi::Value registerForQueuePairs(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  uint8_t* bytes = nullptr;
  size_t length = 0;
  if (holder == nullptr || !readBuffer(info.Env(), info[1], &bytes, &length))
    return number(info, -EINVAL);
  int memory = holder->pairs->registerMemory(bytes, length);
  if (memory < 0) return number(info, memory);
  auto index = static_cast<uint32_t>(memory);
  holder->memories[index] = Hold(info.Env(), info[1]);
  if (auto pages = base::Allocation::of(bytes)) holder->pages[index] = std::move(pages);
  return number(info, memory);
}

void deregisterForQueuePairs(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  uint32_t memory = 0;
  if (holder == nullptr || !readNumber(info, 1, &memory)) return;
  holder->pairs->deregister(memory);
  holder->memories.erase(memory);
  holder->pages.erase(memory);
}

Napi::Value openQueuePair(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  uint32_t pair = 0, sends = 0, receives = 0;
  if (holder == nullptr || !readNumber(info, 1, &pair) || !readNumber(info, 2, &sends) ||
      !readNumber(info, 3, &receives))
    return number(info, -EINVAL);
  return number(info, holder->pairs->open(pair, sends, receives));
}

Napi::Value acceptQueuePair(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  uint32_t pair = 0;
  if (holder == nullptr || !readNumber(info, 1, &pair)) return number(info, -EINVAL);
  return number(info, holder->pairs->accept(pair));
}

void closeQueuePair(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  uint32_t pair = 0;
  if (holder != nullptr && readNumber(info, 1, &pair)) holder->pairs->close(pair);
}

Napi::Value postToQueuePair(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  uint32_t pair = 0;
  uint64_t work = 0;
  verbs::QueuePairs::Posted posted{};
  if (holder == nullptr || !readNumber(info, 1, &pair) ||
      !readInteger(info.Env(), info[2], static_cast<uint64_t>(verbs::Work::write), &work) ||
      !readNumber(info, 3, &posted.memory) ||
      !readInteger(info.Env(), info[4], kMostOffsetOfMemory, &posted.offset) ||
      !readInteger(info.Env(), info[5], kMostOffsetOfMemory, &posted.length) ||
      !readNumber(info, 6, &posted.token))
    return number(info, -EINVAL);
  posted.work = static_cast<verbs::Work>(work);
  bool isTransfer = posted.work == verbs::Work::read || posted.work == verbs::Work::write;
  if (isTransfer && (!readBigInt(info.Env(), info[7], &posted.address) ||
                     !readInteger(info.Env(), info[8], UINT32_MAX, &posted.key)))
    return number(info, -EINVAL);
  return number(info, holder->pairs->post(pair, posted));
}

Napi::Value takeQueuePairEvents(const Info& info) {
  QueuePairsHolder* holder = listenerOf(info);
  if (holder == nullptr) return number(info, 0);
  std::array<QueuePairEvent, kMostEventsTaken> events;
  size_t count = holder->pairs->take(events.data(), events.size());
  uint32_t* words = holder->eventWords;
  for (size_t i = 0; i < count; ++i) {
    const QueuePairEvent& event = events[i];
    *words++ = static_cast<uint32_t>(event.kind);
    *words++ = event.pair;
    *words++ = event.token;
    *words++ = event.status;
    *words++ = event.bytes;
  }
  return number(info, static_cast<int>(count));
}

}  // namespace

void addQueuePairFunctions(Napi::Object exports) {
  add<listenQueuePairs>(exports, "listenQueuePairs");
  add<closeQueuePairs>(exports, "closeQueuePairs");
  add<registerForQueuePairs>(exports, "registerForQueuePairs");
  add<deregisterForQueuePairs>(exports, "deregisterForQueuePairs");
  add<openQueuePair>(exports, "openQueuePair");
  add<acceptQueuePair>(exports, "acceptQueuePair");
  add<closeQueuePair>(exports, "closeQueuePair");
  add<postToQueuePair>(exports, "postToQueuePair");
  add<takeQueuePairEvents>(exports, "takeQueuePairEvents");
}

}  // namespace cinnabar::binding
