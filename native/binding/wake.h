// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <functional>

struct uv_handle_s;

namespace cinnabar::binding {

/// Waits on the event loop for a descriptor, and calls back once; calls back too when another
/// thread wants it. Lives until its handles are closed; see `destroy`.
class Wake {
 public:
  /// nullptr if the loop refuses the descriptor, or there is no memory for its handles.
  static Wake* create(napi_env env, int fd, std::function<void()> onWake);

  /// Starts waiting. With `retry`, calls back after a while even if nothing came.
  bool start(bool retry);
  void stop();
  /// Calls back as soon as the loop turns, whether it waits or not. From any thread, until
  /// `destroy`.
  void nudge();
  void setRef(bool keepsProcessAlive);

  /// Closes the handles; the object deletes itself when the loop has let go of them, and then calls
  /// `done`. The descriptor may be closed as soon as this returns.
  void destroy(std::function<void()> done);

 private:
  explicit Wake(std::function<void()> onWake) : onWake_(std::move(onWake)) {}
  ~Wake() = default;
  void fire();
  void onClosed();

  uv_handle_s* poll_ = nullptr;
  uv_handle_s* timer_ = nullptr;
  uv_handle_s* async_ = nullptr;
  int open_ = 0;
  std::function<void()> onWake_;
  std::function<void()> done_;
};

}  // namespace cinnabar::binding
