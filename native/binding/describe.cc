// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/describe.h"

#include "binding/arguments.h"
#include "fabric/domains.h"
#include "fabric/info.h"
#include "fabric/library.h"
#include "fabric/patches.h"

namespace cinnabar::binding {
namespace {

using Info = Napi::CallbackInfo;

Napi::Array stringsOf(Napi::Env env, const std::vector<std::string>& strings) {
  Napi::Array array = Napi::Array::New(env, strings.size());
  for (uint32_t i = 0; i < strings.size(); ++i) array.Set(i, strings[i]);
  return array;
}

Napi::Object providerObject(Napi::Env env, const fabric::Provider& provider) {
  Napi::Object entry = Napi::Object::New(env);
  entry.Set("scheme", fabric::schemeName(provider.scheme));
  entry.Set("provider", provider.name);
  return entry;
}

Napi::Value providers(const Info& info) {
  Napi::Env env = info.Env();
  Napi::Array result = Napi::Array::New(env);
  const fabric::Library* library = fabric::library();
  if (library == nullptr) return result;
  for (const fabric::Provider& provider : fabric::providerTable()) {
    std::string reason = fabric::reasonAgainst(*library, provider);
    Napi::Object entry = providerObject(env, provider);
    entry.Set("available", reason.empty());
    entry.Set("reason", reason);
    result.Set(result.Length(), entry);
  }
  return result;
}

Napi::Value domains(const Info& info) {
  Napi::Env env = info.Env();
  Napi::Array result = Napi::Array::New(env);
  const fabric::Library* library = fabric::library();
  if (library == nullptr) return result;
  for (const fabric::Provider& provider : fabric::providerTable()) {
    if (!fabric::suits(provider, library->loadedVersion)) continue;
    for (const fabric::DomainReport& report : fabric::domainsOf(*library, provider)) {
      Napi::Object entry = providerObject(env, provider);
      auto number = [&](const char* name, uint64_t value) {
        entry.Set(name, static_cast<double>(value));
      };
      entry.Set("domain", report.domain);
      entry.Set("fabric", report.fabric);
      entry.Set("address", report.address);
      entry.Set("capabilities", stringsOf(env, report.capabilities));
      entry.Set("registration", stringsOf(env, report.registration));
      number("injectBytes", report.injectBytes);
      number("maxMessageBytes", report.maxMessageBytes);
      number("extents", report.extents);
      number("sendQueueDepth", report.sendQueueDepth);
      number("receiveQueueDepth", report.receiveQueueDepth);
      number("mtuBytes", report.mtuBytes);
      number("bitsPerSecond", report.bitsPerSecond);
      entry.Set("linkState", report.linkState);
      entry.Set("network", report.network);
      entry.Set("firmware", report.firmware);
      result.Set(result.Length(), entry);
    }
  }
  return result;
}

const char* nameOf(fabric::PatchState state) {
  switch (state) {
    case fabric::PatchState::notNeeded:
      return "not needed";
    case fabric::PatchState::off:
      return "off";
    case fabric::PatchState::ready:
      return "ready";
    case fabric::PatchState::applied:
      return "applied";
  }
  return "";
}

Napi::Value patches(const Info& info) {
  Napi::Env env = info.Env();
  Napi::Array result = Napi::Array::New(env);
  for (const fabric::PatchEntry& patch : fabric::patchTable()) {
    Napi::Object entry = Napi::Object::New(env);
    std::string name = patch.name;
    entry.Set("name", name);
    entry.Set("library", patch.library);
    entry.Set("version", fabric::patchedVersion(patch.patch));
    entry.Set("what", patch.what);
    entry.Set("why", patch.why);
    entry.Set("state", nameOf(fabric::patchState(patch)));
    entry.Set("switchOff", "CINNABAR_NO_PATCHES=" + name);
    entry.Set("switchOn", patch.canBeForced ? "CINNABAR_PATCHES=" + name : "");
    result.Set(result.Length(), entry);
  }
  return result;
}

}  // namespace

void addDescribeFunctions(Napi::Object exports) {
  add<providers>(exports, "providers");
  add<patches>(exports, "patches");
  add<domains>(exports, "domains");
}

}  // namespace cinnabar::binding
