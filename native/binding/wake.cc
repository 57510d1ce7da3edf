// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/wake.h"

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "binding/uv_abi.h"

namespace cinnabar::binding {
namespace {

// How long a sleeper waits before it tries again an operation that a provider did not accept. The
// change may cause no event: a tcp peer comes back, or a peer dies that was to ring after it
// drained a shared queue.
constexpr unsigned long long kRetryMs = 10;

// The pause between looks at a polled port: a fraction of the time without news, in these bounds.
constexpr unsigned long long kShortestLookMs = 1;
constexpr unsigned long long kLongestLookMs = 10;
constexpr unsigned long long kLookPart = 32;
constexpr uint64_t kNsInMs = 1'000'000;

Wake* owner(uv_handle_s* handle) { return static_cast<Wake*>(uv_handle_get_data(handle)); }

uv_handle_s* allocate(int type, Wake* wake) {
  auto* handle = static_cast<uv_handle_s*>(calloc(1, uv_handle_size(type)));
  if (handle != nullptr) uv_handle_set_data(handle, wake);
  return handle;
}

}  // namespace

Wake* Wake::create(napi_env env, int fd, std::function<void()> onWake,
                   std::function<bool()> waitsOn) {
  uv_loop_s* loop = nullptr;
  if (napi_get_uv_event_loop(env, &loop) != napi_ok) return nullptr;
  Wake* wake = new Wake(std::move(onWake), std::move(waitsOn));
  uv_handle_s* timer = allocate(kUvTimer, wake);
  if (timer == nullptr) {
    delete wake;
    return nullptr;
  }
  uv_timer_init(loop, timer);
  uv_unref(timer);
  wake->timer_ = timer;
  wake->open_ = 1;
  uv_handle_s* async = allocate(kUvAsync, wake);
  if (async == nullptr ||
      uv_async_init(loop, async, [](uv_handle_s* handle) { owner(handle)->fire(); }) != 0) {
    free(async);
    wake->destroy({});
    return nullptr;
  }
  uv_handle_set_data(async, wake);
  uv_unref(async);
  wake->async_ = async;
  wake->open_ = 2;
  if (fd < 0) return wake;
  uv_handle_s* poll = allocate(kUvPoll, wake);
  if (poll == nullptr || uv_poll_init(loop, poll, fd) != 0) {
    free(poll);
    wake->destroy({});
    return nullptr;
  }
  uv_handle_set_data(poll, wake);
  uv_unref(poll);
  wake->poll_ = poll;
  wake->open_ = 3;
  return wake;
}

bool Wake::start(bool retry) {
  if (poll_ == nullptr) {
    startedNs_ = base::nowNs();
    lookLater();
    return true;
  }
  auto onReadable = [](uv_handle_s* handle, int, int) { owner(handle)->fire(); };
  if (!watches_ && uv_poll_start(poll_, kUvReadable, onReadable) != 0) return false;
  watches_ = true;
  if (retry) retryLater();
  return true;
}

void Wake::lookLater() {
  uint64_t quietMs = (base::nowNs() - startedNs_) / kNsInMs;
  auto pause = std::clamp(quietMs / kLookPart, kShortestLookMs, kLongestLookMs);
  uv_timer_start(
      timer_, [](uv_handle_s* handle) { owner(handle)->fire(); }, pause, 0);
}

void Wake::retryLater() {
  if (poll_ == nullptr) return;  // it looks in any case
  uv_timer_start(
      timer_, [](uv_handle_s* handle) { owner(handle)->fire(); }, kRetryMs, 0);
}

void Wake::stop(bool watches) {
  uv_timer_stop(timer_);
  if (watches || !watches_) return;
  watches_ = false;
  uv_poll_stop(poll_);
}

void Wake::nudge() { uv_async_send(async_); }

void Wake::setRef(bool keepsProcessAlive) {
  // Where there is a poll the timer runs only beside it, so one of them is enough.
  uv_handle_s* handle = poll_ != nullptr ? poll_ : timer_;
  keepsProcessAlive ? uv_ref(handle) : uv_unref(handle);
}

void Wake::fire() {
  if (waitsOn_ && waitsOn_()) {
    if (poll_ == nullptr) lookLater();
    return;
  }
  uv_timer_stop(timer_);
  // A copy, since the callback may destroy this.
  std::function<void()> callback = onWake_;
  if (callback) callback();
}

void Wake::destroy(std::function<void()> done) {
  done_ = std::move(done);
  onWake_ = {};
  waitsOn_ = {};
  auto onClose = [](uv_handle_s* handle) {
    Wake* wake = owner(handle);
    free(handle);
    wake->onClosed();
  };
  // uv_close takes a poll handle's descriptor out of the loop's epoll set before it returns.
  if (poll_ != nullptr) uv_close(poll_, onClose);
  if (async_ != nullptr) uv_close(async_, onClose);
  uv_close(timer_, onClose);
}

void Wake::onClosed() {
  if (--open_ > 0) return;
  if (done_) done_();
  delete this;
}

}  // namespace cinnabar::binding
