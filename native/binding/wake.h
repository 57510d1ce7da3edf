// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <functional>

struct uv_handle_s;

namespace cinnabar::binding {

/// Waits on the event loop for a descriptor, and calls back when it is readable or when another
/// thread calls `nudge`. Lives until its handles are closed; see `destroy`.
class Wake {
 public:
  /// Without a descriptor (-1) it calls `waitsOn` by a timer: each millisecond at first, and each
  /// 10 after a long time without news. nullptr if the loop refuses the descriptor, or has no
  /// memory for its handles. `waitsOn` is called before each `onWake`. If it returns true, `onWake`
  /// is not called and the wait goes on.
  static Wake* create(napi_env env, int fd, std::function<void()> onWake,
                      std::function<bool()> waitsOn = {});

  /// Watches the descriptor. Calls back in each turn of the loop in which the descriptor is
  /// readable. With `retry`, calls back after a while without any event, too.
  bool start(bool retry);
  /// Calls back after a while, even without an event.
  void retryLater();
  /// Stops calling back. `watches`: the loop keeps the descriptor, because another `start` follows
  /// soon. That saves two system calls, but each turn of the loop looks at the descriptor.
  void stop(bool watches = false);
  /// Calls back as soon as the loop turns, whether it waits or not. From any thread, until
  /// `destroy`.
  void nudge();
  void setRef(bool keepsProcessAlive);

  /// Closes the handles. The object deletes itself when the loop has released them, and then calls
  /// `done`. The descriptor may be closed as soon as this returns.
  void destroy(std::function<void()> done);

 private:
  Wake(std::function<void()> onWake, std::function<bool()> waitsOn)
      : onWake_(std::move(onWake)), waitsOn_(std::move(waitsOn)) {}
  ~Wake() = default;
  void fire();
  void lookLater();
  void onClosed();

  uv_handle_s* poll_ = nullptr;  // null without a descriptor
  uv_handle_s* timer_ = nullptr;
  uv_handle_s* async_ = nullptr;
  int open_ = 0;
  bool watches_ = false;
  uint64_t startedNs_ = 0;  // the last start, without a descriptor
  std::function<void()> onWake_;
  std::function<bool()> waitsOn_;
  std::function<void()> done_;
};

}  // namespace cinnabar::binding
