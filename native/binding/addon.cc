// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors

// The functions of src/fabric/addon.ts on an open port. They only read arguments, call the engine,
// and shape results.

#include <napi.h>

#include <cerrno>
#include <cstring>

#include "binding/crypto.h"
#include "binding/describe.h"
#include "binding/files.h"
#include "binding/instance.h"
#include "binding/mapped_file.h"
#include "binding/memory.h"
#include "binding/open.h"
#include "binding/queue_pairs.h"
#include "binding/verbs.h"
#include "fabric/library.h"

namespace cinnabar::binding {
namespace {

using transport::Operation;
using Info = Napi::CallbackInfo;

constexpr uint64_t kMostOffset = uint64_t{1} << 53;
constexpr size_t kMostPath = 4096;
constexpr uint64_t kNsPerMs = 1'000'000;

/// The port of the first argument, with its guard's lock for as long as this lives. False if there
/// is no such port.
class Used {
 public:
  enum class As { use, drive };  // see guard.h

  explicit Used(const Info& info, As as = As::use) {
    Instance* instance = Instance::of(info.Env());
    if (instance != nullptr) holder_ = instance->ports.find(info.Env(), info[0]);
    if (holder_ == nullptr) return;
    lock_ = as == As::drive ? holder_->guard->drive() : holder_->guard->use();
  }
  explicit operator bool() const { return holder_ != nullptr; }
  PortHolder* operator->() const { return holder_; }

 private:
  PortHolder* holder_ = nullptr;
  engine::Guard::Lock lock_;
};

bool integer(const Info& info, size_t index, uint64_t most, uint64_t* into) {
  return readInteger(info.Env(), info[index], most, into);
}

Napi::Value load(const Info& info) {
  Napi::Env env = info.Env();
  std::vector<std::string> candidates;
  if (info[0].IsArray()) {
    Napi::Array array = info[0].As<Napi::Array>();
    for (uint32_t i = 0; i < array.Length() && i < 64; ++i) {
      std::string path;
      if (readString(env, array.Get(i), kMostPath, &path)) candidates.push_back(std::move(path));
    }
  }
  fabric::LoadReport report = fabric::loadLibrary(candidates);
  Napi::Array tried = Napi::Array::New(env, report.tried.size());
  for (uint32_t i = 0; i < report.tried.size(); ++i) {
    Napi::Object attempt = Napi::Object::New(env);
    attempt.Set("path", report.tried[i].path);
    attempt.Set("reason", report.tried[i].reason);
    tried.Set(i, attempt);
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("loaded", report.loaded);
  result.Set("path", report.path);
  result.Set("version", versionPair(env, report.version));
  result.Set("tried", tried);
  return result;
}

void close(const Info& info) {
  if (Instance* instance = Instance::of(info.Env())) instance->closePort(info[0]);
}

Napi::Value admit(const Info& info) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  const uint8_t* bytes;
  size_t length;
  if (!readBytes(info.Env(), info[1], &bytes, &length)) return number(info, -EINVAL);
  return number(info, holder->port->admit(bytes, length));
}

Napi::Value addressOf(const Info& info) {
  Used holder(info);
  if (!holder) {
    return failureObject(info.Env(), {"address", EBADF, "EBADF", "the port is not open"});
  }
  std::string text;
  uint64_t service;
  if (!readString(info.Env(), info[1], 256, &text) || !integer(info, 2, UINT32_MAX, &service)) {
    return failureObject(info.Env(),
                         {"address", EINVAL, "EINVAL", "a host or name, and a port number"});
  }
  auto address = holder->port->addressOf(text, static_cast<uint32_t>(service));
  if (!address) return failureObject(info.Env(), address.failure());
  return bytesObject(info.Env(), *address);
}

void forget(const Info& info) {
  Used holder(info);
  uint64_t address;
  if (!holder || !integer(info, 1, UINT32_MAX, &address)) return;
  holder->port->forget(static_cast<uint32_t>(address));
  holder->guard->update();
}

Napi::Value processOf(const Info& info) {
  Napi::Env env = info.Env();
  Used holder(info);
  uint64_t address;
  if (!holder || !integer(info, 1, UINT32_MAX, &address)) return env.Null();
  const auto* process = holder->port->processOf(static_cast<uint32_t>(address));
  if (process == nullptr) return env.Null();
  Napi::Object result = Napi::Object::New(env);
  result.Set("uid", number(info, process->uid));
  result.Set("gid", number(info, process->gid));
  result.Set("pid", number(info, process->pid));
  return result;
}

Napi::Value vouch(const Info& info) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  uint64_t address, everyMs, forMs;
  const uint8_t *mark, *message;
  size_t markBytes, messageBytes;
  if (!integer(info, 1, UINT32_MAX, &address) ||
      !readBytes(info.Env(), info[2], &mark, &markBytes) || markBytes != engine::kMarkBytes ||
      !readBytes(info.Env(), info[3], &message, &messageBytes) ||
      !integer(info, 4, UINT32_MAX, &everyMs) || !integer(info, 5, UINT32_MAX, &forMs)) {
    return number(info, -EINVAL);
  }
  engine::Vouch vouch;
  memcpy(&vouch.mark, mark, markBytes);
  vouch.message.assign(message, message + messageBytes);
  vouch.everyNs = everyMs * kNsPerMs;
  vouch.forNs = forMs * kNsPerMs;
  if (info.Length() > 6 && !info[6].IsUndefined()) {
    vouch.seal = Instance::of(info.Env())->aeads.take(info.Env(), info[6]);
    if (vouch.seal == nullptr || vouch.seal->direction() != crypto::Aead::Direction::seal)
      return number(info, -EINVAL);
  }
  int status = holder->port->vouch(static_cast<uint32_t>(address), std::move(vouch));
  holder->guard->update();
  return number(info, status);
}

void unvouch(const Info& info) {
  Used holder(info);
  uint64_t address;
  if (!holder || !integer(info, 1, UINT32_MAX, &address)) return;
  holder->port->unvouch(static_cast<uint32_t>(address));
  holder->guard->update();
}

Napi::Value absences(const Info& info) {
  Used holder(info);
  engine::Absences all = holder ? holder->guard->absences() : engine::Absences{};
  auto ms = [&](uint64_t ns) {
    return Napi::Number::New(info.Env(), static_cast<double>(ns) / kNsPerMs);
  };
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("count", number(info, all.count));
  result.Set("totalMs", ms(all.totalNs));
  result.Set("longestMs", ms(all.longestNs));
  return result;
}

Napi::Value send(const Info& info) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  uint64_t address, offset, bytes;
  if (!integer(info, 1, UINT32_MAX, &address) || !integer(info, 2, UINT32_MAX, &offset) ||
      !integer(info, 3, UINT32_MAX, &bytes)) {
    return number(info, -EINVAL);
  }
  return number(info, holder->port->send(static_cast<uint32_t>(address), offset, bytes));
}

Napi::Value registerRegion(const Info& info) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  uint8_t* bytes;
  size_t size;
  uint64_t offset, length, access, peer = engine::kAnybody;
  if (!readBuffer(info.Env(), info[1], &bytes, &size) || !integer(info, 2, kMostOffset, &offset) ||
      !integer(info, 3, kMostOffset, &length) || !integer(info, 4, fabric::kSource, &access) ||
      (info.Length() > 5 && !integer(info, 5, UINT32_MAX, &peer)) || offset > size ||
      length > size - offset) {
    return number(info, -EINVAL);
  }
  int region = holder->port->registerRegion(bytes + offset, length, static_cast<uint32_t>(access),
                                            static_cast<uint32_t>(peer));
  if (region < 0) return number(info, region);
  auto index = static_cast<uint32_t>(region);
  holder->regions[index] = Hold(info.Env(), info[1]);
  if (auto pages = base::Allocation::of(bytes)) holder->pages[index] = std::move(pages);
  holder->guard->update();
  holder->extentWords[0] = holder->port->region(index)->key();
  holder->extentWords[1] = holder->port->region(index)->base();
  return number(info, region);
}

Napi::Value deregister(const Info& info) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  uint64_t region;
  if (!integer(info, 1, UINT32_MAX, &region)) return number(info, -EINVAL);
  int status = holder->port->deregisterRegion(static_cast<uint32_t>(region));
  if (status == 0) {
    holder->regions.erase(static_cast<uint32_t>(region));
    holder->pages.erase(static_cast<uint32_t>(region));
    holder->guard->update();
  }
  return number(info, status);
}

Napi::Value transfer(const Info& info, Operation::Type type) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  uint64_t address, count, token;
  if (!integer(info, 1, UINT32_MAX, &address) ||
      !integer(info, 2, transport::kMostExtents, &count) || !integer(info, 3, UINT32_MAX, &token)) {
    return number(info, -EINVAL);
  }
  uint64_t notification = 0;
  bool notifies = info.Length() > 4 && !info[4].IsUndefined();
  if (notifies && !readBigInt(info.Env(), info[4], &notification)) return number(info, -EINVAL);
  auto* extents = reinterpret_cast<const transport::Extent*>(holder->extentWords);
  return number(info, holder->port->transfer(type, static_cast<uint32_t>(address), extents, count,
                                             static_cast<uint32_t>(token),
                                             notifies ? &notification : nullptr));
}

Napi::Value read(const Info& info) { return transfer(info, Operation::Type::read); }
Napi::Value write(const Info& info) { return transfer(info, Operation::Type::write); }

Napi::Value progress(const Info& info) {
  Used holder(info, Used::As::drive);
  if (!holder) return number(info, -EBADF);
  uint64_t spinUs;
  if (!integer(info, 1, 1'000'000, &spinUs)) return number(info, -EINVAL);
  return number(info, holder->port->progress(static_cast<uint32_t>(spinUs)));
}

Napi::Value arm(const Info& info) {
  Used holder(info, Used::As::drive);
  if (!holder) return number(info, -EBADF);
  int status = holder->port->arm();
  if (status > 0 && !holder->wake->start(holder->port->wantsRetry())) {
    holder->port->wake();
    return number(info, -EIO);
  }
  if (status > 0) holder->guard->sleeps();
  return number(info, status);
}

void disarm(const Info& info) {
  Used holder(info, Used::As::drive);
  bool watches = false;
  if (!holder || napi_get_value_bool(info.Env(), info[1], &watches) != napi_ok) return;
  holder->wake->stop(watches);
  holder->port->wake();
}

void setRef(const Info& info) {
  Used holder(info);
  bool keeps = false;
  if (!holder || napi_get_value_bool(info.Env(), info[1], &keeps) != napi_ok) return;
  holder->wake->setRef(keeps);
}

Napi::Value gauge(const Info& info) {
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  uint64_t which;
  if (!integer(info, 1, engine::kLastGauge, &which)) return number(info, -EINVAL);
  auto level = holder->port->gauge(static_cast<engine::Gauge>(which));
  return number(info, static_cast<int64_t>(level));
}

Napi::Value connections(const Info& info) {
  Napi::Env env = info.Env();
  Used holder(info);
  if (!holder) return number(info, -EBADF);
  const transport::Transport& transport = holder->port->transport();
  // In this order: a connection made in between is in the list and not in the number.
  auto made = static_cast<double>(transport.connectionsMade());
  std::vector<transport::Connection> all = transport.connections();
  Napi::Array open = Napi::Array::New(env, all.size());
  for (uint32_t i = 0; i < all.size(); ++i) {
    Napi::Object entry = Napi::Object::New(env);
    entry.Set("number", static_cast<double>(all[i].number));
    entry.Set("peer", bytesObject(env, all[i].peer));
    entry.Set("inbound", all[i].isInbound);
    entry.Set("up", all[i].isUp);
    open.Set(i, entry);
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("open", open);
  result.Set("made", made);
  return result;
}

Napi::Object initialize(Napi::Env env, Napi::Object exports) {
  fabric::prepareEnvironment();
  if (!Instance::attach(env)) return exports;
  add<load>(exports, "load");
  add<close>(exports, "close");
  add<admit>(exports, "admit");
  add<addressOf>(exports, "addressOf");
  add<forget>(exports, "forget");
  add<processOf>(exports, "processOf");
  add<vouch>(exports, "vouch");
  add<unvouch>(exports, "unvouch");
  add<absences>(exports, "absences");
  add<send>(exports, "send");
  add<registerRegion>(exports, "register");
  add<deregister>(exports, "deregister");
  add<read>(exports, "read");
  add<write>(exports, "write");
  add<progress>(exports, "progress");
  add<arm>(exports, "arm");
  add<disarm>(exports, "disarm");
  add<setRef>(exports, "setRef");
  add<gauge>(exports, "gauge");
  add<connections>(exports, "connections");
  addOpenFunction(exports);
  addCryptoFunctions(exports);
  addDescribeFunctions(exports);
  addFileFunctions(exports);
  addMappedFileFunctions(exports);
  addMemoryFunctions(exports);
  addQueuePairFunctions(exports);
  addVerbsFunctions(exports);
  return exports;
}

}  // namespace

NODE_API_MODULE(cinnabar, initialize)

}  // namespace cinnabar::binding
