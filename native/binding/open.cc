// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/open.h"

#include <cerrno>
#include <cstring>

#include "binding/instance.h"
#include "binding/verbs.h"
#include "fabric/library.h"
#include "transport/shm/process_memory.h"

namespace cinnabar::binding {
namespace {

using Info = Napi::CallbackInfo;

/// JavaScript's request. Its values are read once, so that the checked values are the used ones,
/// whatever a getter does.
struct Asked {
  engine::PortRequest request;
  napi_value slab = nullptr;
  napi_value ring = nullptr;
  napi_value extents = nullptr;
  uint64_t* extentWords = nullptr;
  Napi::Value onWake;
  bool isSecured = false;
};

/// nullptr, or the fault of the request.
const char* read(Napi::Env env, Napi::Object object, Asked* asked) {
  auto get = [&](const char* name) -> napi_value { return object.Get(name); };
  engine::PortRequest& request = asked->request;
  std::string scheme;
  uint64_t service, slotBytes, sendSlots, receiveSlots, maxConnections, maxIdleConnectionMs;
  uint8_t* ring = nullptr;
  uint8_t* extents = nullptr;
  size_t slabLength = 0;
  size_t ringLength = 0;
  size_t extentsLength = 0;
  if (!readString(env, get("scheme"), 8, &scheme) || !fabric::schemeOf(scheme))
    return "the scheme is none that libfabric serves";
  request.scheme = *fabric::schemeOf(scheme);
  if (!readString(env, get("host"), 256, &request.host) ||
      !readString(env, get("name"), 256, &request.name) ||
      !readString(env, get("provider"), 64, &request.provider) ||
      !readInteger(env, get("service"), UINT32_MAX, &service)) {
    return "host, name and provider are strings, service is a number";
  }
  if (!readInteger(env, get("slotBytes"), UINT32_MAX, &slotBytes) ||
      !readInteger(env, get("sendSlots"), UINT32_MAX, &sendSlots) ||
      !readInteger(env, get("receiveSlots"), UINT32_MAX, &receiveSlots)) {
    return "slotBytes, sendSlots and receiveSlots are whole numbers";
  }
  if (!readInteger(env, get("maxConnections"), UINT32_MAX, &maxConnections) ||
      !readInteger(env, get("maxIdleConnectionMs"), UINT32_MAX, &maxIdleConnectionMs)) {
    return "maxConnections and maxIdleConnectionMs are whole numbers";
  }
  asked->slab = get("slab");
  asked->ring = get("ring");
  if (!readBuffer(env, asked->slab, &request.slab, &slabLength) ||
      !readBuffer(env, asked->ring, &ring, &ringLength)) {
    return "slab and ring are ArrayBuffers, not detached";
  }
  if (sendSlots + receiveSlots > slabLength || slotBytes > slabLength ||
      (sendSlots + receiveSlots) * slotBytes > slabLength) {
    return "the slab is smaller than its slots";
  }
  if (ringLength < engine::kRingBytes || reinterpret_cast<uintptr_t>(ring) % alignof(uint32_t) != 0)
    return "the ring is too small";
  asked->extents = get("extents");
  if (!readBuffer(env, asked->extents, &extents, &extentsLength) ||
      extentsLength < transport::kExtentsBytes ||
      reinterpret_cast<uintptr_t>(extents) % alignof(transport::Extent) != 0) {
    return "extents is an ArrayBuffer with room for 256 of them";
  }
  asked->extentWords = reinterpret_cast<uint64_t*>(extents);
  asked->isSecured = object.Get("secured").ToBoolean();
  asked->onWake = object.Get("onWake");
  if (!asked->onWake.IsFunction()) return "onWake is a function";

  request.service = static_cast<uint32_t>(service);
  request.slotBytes = static_cast<uint32_t>(slotBytes);
  request.sendSlots = static_cast<uint32_t>(sendSlots);
  request.receiveSlots = static_cast<uint32_t>(receiveSlots);
  request.maxConnections = static_cast<uint32_t>(maxConnections);
  request.maxIdleConnectionMs = static_cast<uint32_t>(maxIdleConnectionMs);
  request.ring = reinterpret_cast<uint32_t*>(ring);
  request.ring[0] = 0;
  request.ring[1] = 0;
  return nullptr;
}

void callBack(Instance* instance, PortHolder* holder) {
  Napi::Env env(instance->env());
  Napi::HandleScope scope(env);
  {
    auto lock = holder->guard->drive();
    holder->port->wake();
  }
  instance->call(holder->onWake);
}

/// Whether JavaScript need not be called: it is awake, or the port has handled the completions
/// itself.
bool needsNoCall(PortHolder* holder) {
  if (!holder->port->isAsleep()) return true;
  auto lock = holder->guard->drive();
  if (!holder->port->sleepsOn()) return false;
  holder->guard->sleeps();
  if (holder->port->wantsRetry()) holder->wake->retryLater();
  return true;
}

/// The properties of an open port for JavaScript.
Napi::Object openedObject(Napi::Env env, uint32_t number, fabric::Scheme scheme,
                          engine::Port& port) {
  const fabric::EndpointTraits& traits = port.traits();
  const transport::Transport& transport = port.transport();
  fabric::RawAddress address = transport.address();
  auto bound = fabric::decodeSocketAddress(address.data(), address.size());
  Napi::Object result = Napi::Object::New(env);
  result.Set("port", number);
  result.Set("provider", traits.provider);
  bool isLibfabrics = scheme != fabric::Scheme::shm;
  result.Set("version",
             isLibfabrics ? versionPair(env, fabric::library()->loadedVersion) : env.Null());
  result.Set("providerVersion", versionPair(env, traits.providerVersion));
  result.Set("address", bytesObject(env, address));
  result.Set("host", bound ? bound->host : "");
  result.Set("service", bound ? bound->port : 0);
  result.Set("name", transport.name());
  result.Set("injectBytes", static_cast<double>(traits.injectBytes));
  result.Set("maxTransferBytes", static_cast<double>(port.maxTransferBytes()));
  result.Set("immediateBytes", static_cast<double>(traits.immediateBytes));
  result.Set("virtualAddresses", (traits.mrMode & FI_MR_VIRT_ADDR) != 0);
  result.Set("granted",
             isLibfabrics ? Napi::Value(grantedObject(env, traits.granted)) : env.Null());
  result.Set("reportsDeath", transport.reportsDeath());
  result.Set("revokesKeys", transport.revokesKeys());
  result.Set("maxPeers", static_cast<double>(traits.maxPeers));
  result.Set("watchesSockets", transport.watchesSockets());
  result.Set("countsConnections", transport.countsConnections());
  result.Set("trustsStreams", transport.trustsStreams());
  result.Set("refusesSilently", transport.refusesSilently());
  return result;
}

Napi::Value open(const Info& info) {
  Napi::Env env = info.Env();
  Instance* instance = Instance::of(env);
  Asked asked;
  const char* wrong = instance == nullptr || !info[0].IsObject()
                          ? "no request"
                          : read(env, info[0].As<Napi::Object>(), &asked);
  if (wrong != nullptr) return failureObject(env, {"open", EINVAL, "EINVAL", wrong});

  if (asked.isSecured) shm::withholdProcessCopies();
  auto opened = engine::Port::open(asked.request);
  if (!opened) return failureObject(env, opened.failure());
  auto holder = std::make_unique<PortHolder>();
  holder->port = std::move(*opened);
  holder->slab = Hold(env, asked.slab);
  holder->ring = Hold(env, asked.ring);
  holder->extents = Hold(env, asked.extents);
  holder->extentWords = asked.extentWords;
  holder->onWake = Hold(env, asked.onWake);
  PortHolder* held = holder.get();
  holder->wake = Wake::create(
      env, held->port->waitFd(), [instance, held] { callBack(instance, held); },
      [held] { return needsNoCall(held); });
  if (holder->wake == nullptr) {
    return failureObject(
        env, {"uv_poll_init", EINVAL, "EINVAL", "the event loop refuses the port's descriptor"});
  }
  held->guard =
      std::make_unique<engine::Guard>(*held->port, [wake = held->wake] { wake->nudge(); });
  return openedObject(env, instance->ports.add(std::move(holder)), asked.request.scheme,
                      *held->port);
}

}  // namespace

void addOpenFunction(Napi::Object exports) { add<open>(exports, "open"); }

}  // namespace cinnabar::binding
