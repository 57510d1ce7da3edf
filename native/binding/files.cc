// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/files.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "binding/arguments.h"

namespace cinnabar::binding {
namespace {

using Info = Napi::CallbackInfo;

constexpr uint64_t kMostFileEnd = uint64_t{1} << 53;
constexpr uint64_t kMostBorders = 65536;

/// A range of a file, with a descriptor of its own: the caller may close its one at any time.
struct FileRange {
  base::Fd file;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// 0 or an error number: EINVAL for wrong arguments, otherwise what the descriptor's copy failed
/// by.
int readFileRange(const Info& info, FileRange* into) {
  uint64_t file = 0;
  if (!readInteger(info.Env(), info[0], INT32_MAX, &file) ||
      !readInteger(info.Env(), info[1], kMostFileEnd, &into->offset) ||
      !readInteger(info.Env(), info[2], kMostFileEnd, &into->bytes)) {
    return EINVAL;
  }
  into->file = base::Fd(fcntl(static_cast<int>(file), F_DUPFD_CLOEXEC, 0));
  return into->file ? 0 : errno;
}

class Zeroing : public Napi::AsyncWorker {
 public:
  Zeroing(Napi::Env env, FileRange range, bool frees)
      : AsyncWorker(env, "cinnabar.zeroFile"),
        range_(std::move(range)),
        mode_(FALLOC_FL_KEEP_SIZE | (frees ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE)),
        promise_(env) {}
  Napi::Promise promise() const { return promise_.Promise(); }

 protected:
  void Execute() override {
    int result;
    do {
      result = fallocate(range_.file.get(), mode_, static_cast<off_t>(range_.offset),
                         static_cast<off_t>(range_.bytes));
    } while (result != 0 && errno == EINTR);
    code_ = result == 0 ? 0 : errno;
  }
  void OnOK() override { promise_.Resolve(Napi::Number::New(Env(), code_)); }

 private:
  FileRange range_;
  int mode_;
  int code_ = 0;
  Napi::Promise::Deferred promise_;
};

/// Looks for data on a thread of the pool. The position of the descriptor changes. The device reads
/// and writes at offsets of its own.
class DataSearch : public Napi::AsyncWorker {
 public:
  DataSearch(Napi::Env env, FileRange range, size_t most)
      : AsyncWorker(env, "cinnabar.findData"),
        range_(std::move(range)),
        most_(most),
        promise_(env) {}
  Napi::Promise promise() const { return promise_.Promise(); }

 protected:
  void Execute() override {
    auto at = static_cast<off_t>(range_.offset);
    off_t end = at + static_cast<off_t>(range_.bytes);
    while (at < end && borders_.size() + 2 <= most_) {
      off_t data = lseek(range_.file.get(), at, SEEK_DATA);
      if (data < 0 && errno == ENXIO) return;  // holes to the end of the file
      if (data >= end) return;
      off_t hole = data < 0 ? data : lseek(range_.file.get(), data, SEEK_HOLE);
      if (hole < 0) {
        code_ = errno;
        return;
      }
      borders_.push_back(data);
      borders_.push_back(std::min(hole, end));
      at = hole;
    }
  }
  void OnOK() override {
    if (code_ != 0) return promise_.Resolve(Napi::Number::New(Env(), code_));
    Napi::Array all = Napi::Array::New(Env(), borders_.size());
    for (uint32_t i = 0; i < borders_.size(); ++i) {
      all.Set(i, Napi::Number::New(Env(), static_cast<double>(borders_[i])));
    }
    promise_.Resolve(all);
  }

 private:
  FileRange range_;
  size_t most_;
  std::vector<off_t> borders_;
  int code_ = 0;
  Napi::Promise::Deferred promise_;
};

Napi::Value zeroFile(const Info& info) {
  FileRange range;
  bool frees = false;
  if (napi_get_value_bool(info.Env(), info[3], &frees) != napi_ok) return number(info, EINVAL);
  if (int code = readFileRange(info, &range); code != 0) return number(info, code);
  auto* zeroing = new Zeroing(info.Env(), std::move(range), frees);
  zeroing->Queue();
  return zeroing->promise();
}

Napi::Value findData(const Info& info) {
  FileRange range;
  uint64_t most = 0;
  if (!readInteger(info.Env(), info[3], kMostBorders, &most)) return number(info, EINVAL);
  if (int code = readFileRange(info, &range); code != 0) return number(info, code);
  auto* search = new DataSearch(info.Env(), std::move(range), most);
  search->Queue();
  return search->promise();
}

Napi::Value lockFile(const Info& info) {
  uint64_t file = 0;
  bool shares = false;
  if (!readInteger(info.Env(), info[0], INT32_MAX, &file) ||
      napi_get_value_bool(info.Env(), info[1], &shares) != napi_ok) {
    return number(info, EINVAL);
  }
  struct flock all = {};
  all.l_type = shares ? F_RDLCK : F_WRLCK;
  all.l_whence = SEEK_SET;
  int result = fcntl(static_cast<int>(file), F_OFD_SETLK, &all);
  return number(info, result == 0 ? 0 : errno);
}

Napi::Value deviceBytes(const Info& info) {
  uint64_t file = 0, bytes = 0;
  if (!readInteger(info.Env(), info[0], INT32_MAX, &file)) return number(info, -EINVAL);
  int result = ioctl(static_cast<int>(file), BLKGETSIZE64, &bytes);
  return number(info, result == 0 ? static_cast<int64_t>(bytes) : -errno);
}

}  // namespace

void addFileFunctions(Napi::Object exports) {
  add<zeroFile>(exports, "zeroFile");
  add<findData>(exports, "findData");
  add<lockFile>(exports, "lockFile");
  add<deviceBytes>(exports, "deviceBytes");
}

}  // namespace cinnabar::binding
