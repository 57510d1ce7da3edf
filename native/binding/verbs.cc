// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/verbs.h"

#include <cerrno>

#include "binding/instance.h"
#include "transport/verbs/kernel.h"

namespace cinnabar::binding {
namespace {

using Info = Napi::CallbackInfo;

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
  exports.Set("askRdma", Napi::Function::New<askRdma>(env, "askRdma"));
}

}  // namespace cinnabar::binding
