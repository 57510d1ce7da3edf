// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/mapped_file.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/mapped_file.h"
#include "binding/instance.h"
#include "binding/memory.h"

namespace cinnabar::binding {
namespace {

using base::MappedFile;
using Info = Napi::CallbackInfo;

constexpr uint64_t kMostFileOffset = uint64_t{1} << 53;

/// The file that the buffer maps.
std::shared_ptr<MappedFile> fileOf(napi_env env, napi_value buffer) {
  uint8_t* bytes;
  size_t length;
  return readBuffer(env, buffer, &bytes, &length) ? MappedFile::of(bytes) : nullptr;
}

/// Returns "", or the reason why lost pages cannot be reported.
Napi::Value watchLostPages(const Info& info) {
  Napi::Env env = info.Env();
  auto answer = [&](const char* reason) { return Napi::String::New(env, reason); };
  Instance* instance = Instance::of(env);
  if (instance == nullptr || !info[0].IsFunction()) return answer("no function to call");
  if (instance->lostPages) return answer("");
  auto holder = std::make_unique<AlarmHolder>();
  holder->alarm = std::make_shared<base::Fd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*holder->alarm) return answer("the process has no file descriptor left");
  holder->wake = Wake::create(env, holder->alarm->get(), [instance] {
    uint64_t times;
    if (::read(instance->lostPages->alarm->get(), &times, sizeof times) < 0) return;
    Napi::HandleScope scope(Napi::Env(instance->env()));
    instance->call(instance->lostPages->onLostPages);
  });
  if (holder->wake == nullptr) return answer("the event loop refuses the descriptor of an event");
  holder->onLostPages = Hold(env, info[0]);
  holder->wake->start(false);
  instance->lostPages = std::move(holder);
  return answer("");
}

Napi::Value cagedFailure(Napi::Env env) {
  return failureObject(env, {"napi_create_external_arraybuffer", ENOTSUP, "ENOTSUP",
                             "this JavaScript engine shows no memory but its own"});
}

/// Maps on a thread of libuv's pool, because allocating space may take long.
class Mapping : public Napi::AsyncWorker {
 public:
  Mapping(Napi::Env env, MappedFile::Request request)
      : AsyncWorker(env, "cinnabar.mapFile"), request_(std::move(request)), promise_(env) {}
  Napi::Promise promise() const { return promise_.Promise(); }

 protected:
  void Execute() override {
    bytes_ = request_.bytes;
    file_ = MappedFile::open(std::move(request_), &failure_);
  }
  void OnOK() override { promise_.Resolve(file_ == nullptr ? failure() : windows()); }

 private:
  Napi::Value failure() {
    return failureObject(Env(), {failure_.call, failure_.code, "", strerror(failure_.code)});
  }
  Napi::Value windows() {
    Napi::Array all = Napi::Array::New(Env());
    for (uint64_t from = 0; from < bytes_; from += kMostBufferBytes) {
      napi_value buffer;
      uint64_t length = std::min(bytes_ - from, kMostBufferBytes);
      if (showInBuffer(Env(), file_, from, length, &buffer) != napi_ok) return cagedFailure(Env());
      all.Set(all.Length(), buffer);
    }
    return all;
  }

  MappedFile::Request request_;
  MappedFile::Failure failure_{"", 0};
  uint64_t bytes_ = 0;
  std::shared_ptr<MappedFile> file_;
  Napi::Promise::Deferred promise_;
};

class Flush : public Napi::AsyncWorker {
 public:
  Flush(Napi::Env env, std::shared_ptr<MappedFile> file, uint64_t offset, uint64_t length)
      : AsyncWorker(env, "cinnabar.flush"),
        file_(std::move(file)),
        offset_(offset),
        length_(length),
        promise_(env) {}
  Napi::Promise promise() const { return promise_.Promise(); }

 protected:
  void Execute() override { code_ = file_->flush(offset_, length_); }
  void OnOK() override { promise_.Resolve(Napi::Number::New(Env(), code_)); }

 private:
  std::shared_ptr<MappedFile> file_;
  uint64_t offset_;
  uint64_t length_;
  int code_ = 0;
  Napi::Promise::Deferred promise_;
};

Napi::Value mapFile(const Info& info) {
  Napi::Env env = info.Env();
  Instance* instance = Instance::of(env);
  uint64_t file = 0;
  MappedFile::Request request;
  if (instance == nullptr || !readInteger(env, info[0], INT32_MAX, &file) ||
      !readInteger(env, info[1], kMostFileOffset, &request.bytes) ||
      napi_get_value_bool(env, info[2], &request.writable) != napi_ok ||
      napi_get_value_bool(env, info[3], &request.allocates) != napi_ok) {
    return failureObject(env, {"mapFile", EINVAL, "EINVAL", "a descriptor, a length, two flags"});
  }
  // Now, because the descriptor's owner may close it as soon as this returns.
  request.file = base::Fd(fcntl(static_cast<int>(file), F_DUPFD_CLOEXEC, 0));
  if (instance->lostPages) request.alarm = instance->lostPages->alarm;
  auto* mapping = new Mapping(env, std::move(request));
  mapping->Queue();
  return mapping->promise();
}

/// Another window of a mapped file, from an offset in the memory of one of its buffers.
Napi::Value showMapped(const Info& info) {
  Napi::Env env = info.Env();
  auto file = fileOf(env, info[0]);
  uint64_t offset = 0, length = 0;
  if (file == nullptr || !readInteger(env, info[1], kMostFileOffset, &offset) ||
      !readInteger(env, info[2], kMostBufferBytes, &length) || offset > file->length() ||
      length > file->length() - offset) {
    return failureObject(env, {"showMapped", EINVAL, "EINVAL", "a buffer of a file, and a range"});
  }
  napi_value buffer;
  if (showInBuffer(env, file, offset, length, &buffer) != napi_ok) return cagedFailure(env);
  return Napi::Value(env, buffer);
}

Napi::Value isDamaged(const Info& info) {
  auto file = fileOf(info.Env(), info[0]);
  return Napi::Boolean::New(info.Env(), file != nullptr && file->isDamaged());
}

Napi::Value flushMapped(const Info& info) {
  Napi::Env env = info.Env();
  auto file = fileOf(env, info[0]);
  uint64_t offset = 0, length = 0;
  if (file == nullptr || !readInteger(env, info[1], kMostFileOffset, &offset) ||
      !readInteger(env, info[2], kMostFileOffset, &length)) {
    return number(info, EINVAL);
  }
  auto* flush = new Flush(env, std::move(file), offset, length);
  flush->Queue();
  return flush->promise();
}

}  // namespace

void addMappedFileFunctions(Napi::Object exports) {
  add<watchLostPages>(exports, "watchLostPages");
  add<mapFile>(exports, "mapFile");
  add<showMapped>(exports, "showMapped");
  add<isDamaged>(exports, "isDamaged");
  add<flushMapped>(exports, "flushMapped");
}

}  // namespace cinnabar::binding
