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
    return number(info, -EINVAL);
  }
  std::vector<uint8_t> answer;
  int status = verbs::askKernel(static_cast<uint16_t>(command),
                                ofOne ? static_cast<int64_t>(device) : -1, &answer);
  if (status < 0) return number(info, status);
  return bytesObject(info.Env(), answer);
}

}  // namespace

Napi::Object grantedObject(Napi::Env env, const fabric::Granted& granted) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("device", granted.device);
  object.Set("mtuBytes", static_cast<double>(granted.mtuBytes));
  object.Set("sendDepth", static_cast<double>(granted.sendDepth));
  object.Set("receiveDepth", static_cast<double>(granted.receiveDepth));
  object.Set("completionDepth", static_cast<double>(granted.completionDepth));
  object.Set("injectBytes", static_cast<double>(granted.injectBytes));
  object.Set("maxMessageBytes", static_cast<double>(granted.maxMessageBytes));
  object.Set("localExtents", static_cast<double>(granted.localExtents));
  object.Set("remoteExtents", static_cast<double>(granted.remoteExtents));
  return object;
}

void addVerbsFunctions(Napi::Object exports) { add<askRdma>(exports, "askRdma"); }

}  // namespace cinnabar::binding
