// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/verbs.h"

#include <cerrno>

#include "binding/instance.h"
#include "transport/verbs/connection_events.h"
#include "transport/verbs/kernel.h"

namespace cinnabar::binding {
namespace {

using Info = Napi::CallbackInfo;
using verbs::ConnectionEvent;
using verbs::ConnectionWatch;

void onReadable(Instance* instance) {
  Napi::HandleScope scope(Napi::Env(instance->env()));
  instance->call(instance->connections->onEvents);
}

/// "" or why connections cannot be watched here.
Napi::Value watchConnections(const Info& info) {
  Napi::Env env = info.Env();
  auto answer = [&](const std::string& reason) { return Napi::String::New(env, reason); };
  Instance* instance = Instance::of(env);
  if (instance == nullptr || !info[0].IsFunction()) return answer("no function to call");
  if (instance->connections) return answer("");
  std::string reason;
  auto holder = std::make_unique<WatchHolder>();
  holder->watch = ConnectionWatch::open(&reason);
  if (holder->watch == nullptr) return answer(reason);
  holder->wake = Wake::create(env, holder->watch->fd(), [instance] { onReadable(instance); });
  if (holder->wake == nullptr) return answer("the event loop refuses the watch's descriptor");
  holder->onEvents = Hold(env, info[0]);
  holder->wake->start(false);
  instance->connections = std::move(holder);
  return answer("");
}

Napi::Value addressObject(Napi::Env env, const fabric::RawAddress& raw) {
  auto at = fabric::decodeSocketAddress(raw.data(), raw.size());
  if (!at) return env.Null();
  Napi::Object object = Napi::Object::New(env);
  object.Set("host", at->host);
  object.Set("port", at->port);
  return object;
}

Napi::Value queuePairObject(Napi::Env env, const std::optional<verbs::QueuePair>& pair) {
  if (!pair) return env.Null();
  Napi::Object object = Napi::Object::New(env);
  object.Set("number", pair->number);
  object.Set("peerNumber", pair->peerNumber);
  object.Set("mtuBytes", pair->mtuBytes);
  object.Set("sendDepth", pair->sendDepth);
  object.Set("receiveDepth", pair->receiveDepth);
  object.Set("sharesReceives", pair->sharesReceives);
  object.Set("completionDepth", pair->completionDepth);
  object.Set("sendSegments", pair->sendSegments);
  object.Set("receiveSegments", pair->receiveSegments);
  object.Set("inlineBytes", pair->inlineBytes);
  return object;
}

Napi::Value takeConnectionEvents(const Info& info) {
  Napi::Env env = info.Env();
  Instance* instance = Instance::of(env);
  uint64_t lost = 0;
  std::vector<ConnectionEvent> taken;
  if (instance != nullptr && instance->connections)
    taken = instance->connections->watch->take(&lost);
  Napi::Array events = Napi::Array::New(env, taken.size());
  for (uint32_t i = 0; i < taken.size(); ++i) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("event", taken[i].event);
    object.Set("status", taken[i].status);
    object.Set("device", taken[i].device);
    object.Set("local", addressObject(env, taken[i].local));
    object.Set("remote", addressObject(env, taken[i].remote));
    object.Set("queuePair", queuePairObject(env, taken[i].queuePair));
    events.Set(i, object);
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("events", events);
  result.Set("lost", static_cast<double>(lost));
  return result;
}

/// The kernel's answer, or a negated error number.
Napi::Value askRdma(const Info& info) {
  uint64_t command = 0;
  uint64_t device = 0;
  bool ofOne = !info[1].IsUndefined();
  if (!readInteger(info.Env(), info[0], UINT8_MAX, &command) ||
      (ofOne && !readInteger(info.Env(), info[1], UINT32_MAX, &device))) {
    return Napi::Number::New(info.Env(), -EINVAL);
  }
  std::vector<uint8_t> answer;
  int status = verbs::askKernel(static_cast<uint16_t>(command),
                                ofOne ? static_cast<int64_t>(device) : -1, &answer);
  if (status < 0) return Napi::Number::New(info.Env(), status);
  return bytesObject(info.Env(), answer);
}

}  // namespace

Napi::Object grantedObject(Napi::Env env, const fabric::Granted& granted) {
  auto number = [](uint64_t value) { return static_cast<double>(value); };
  Napi::Object object = Napi::Object::New(env);
  object.Set("device", granted.device);
  object.Set("mtuBytes", number(granted.mtuBytes));
  object.Set("sendDepth", number(granted.sendDepth));
  object.Set("receiveDepth", number(granted.receiveDepth));
  object.Set("completionDepth", number(granted.completionDepth));
  object.Set("injectBytes", number(granted.injectBytes));
  object.Set("maxMessageBytes", number(granted.maxMessageBytes));
  object.Set("localExtents", number(granted.localExtents));
  object.Set("remoteExtents", number(granted.remoteExtents));
  return object;
}

void addVerbsFunctions(Napi::Env env, Napi::Object exports) {
  exports.Set("watchConnections", Napi::Function::New<watchConnections>(env, "watchConnections"));
  exports.Set("takeConnectionEvents",
              Napi::Function::New<takeConnectionEvents>(env, "takeConnectionEvents"));
  exports.Set("askRdma", Napi::Function::New<askRdma>(env, "askRdma"));
}

}  // namespace cinnabar::binding
