// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

// The few functions of libuv that a wait for a descriptor needs. Node exports libuv, and libuv 1.x
// keeps its ABI, but the Node-API headers do not carry uv.h. With these declarations the build does
// not need Node's own headers. Handles are opaque and allocated by their size at run time
// (uv_handle_size). test/test_uv_abi.cc compares all of it with uv.h, where a machine has that.

#include <cstddef>

#ifndef UV_H
extern "C" {

struct uv_loop_s;
struct uv_handle_s;
using uv_close_cb = void (*)(uv_handle_s* handle);
using uv_poll_cb = void (*)(uv_handle_s* handle, int status, int events);
using uv_timer_cb = void (*)(uv_handle_s* handle);
using uv_async_cb = void (*)(uv_handle_s* handle);

size_t uv_handle_size(int type);
void uv_handle_set_data(uv_handle_s* handle, void* data);
void* uv_handle_get_data(const uv_handle_s* handle);
void uv_close(uv_handle_s* handle, uv_close_cb callback);
void uv_ref(uv_handle_s* handle);
void uv_unref(uv_handle_s* handle);
int uv_poll_init(uv_loop_s* loop, uv_handle_s* handle, int fd);
int uv_poll_start(uv_handle_s* handle, int events, uv_poll_cb callback);
int uv_poll_stop(uv_handle_s* handle);
int uv_timer_init(uv_loop_s* loop, uv_handle_s* handle);
int uv_timer_start(uv_handle_s* handle, uv_timer_cb callback, unsigned long long timeout,
                   unsigned long long repeat);
int uv_timer_stop(uv_handle_s* handle);
int uv_async_init(uv_loop_s* loop, uv_handle_s* handle, uv_async_cb callback);
int uv_async_send(uv_handle_s* handle);

}  // extern "C"
#endif

namespace cinnabar::binding {

// uv_handle_type and uv_poll_event of libuv 1.x.
constexpr int kUvAsync = 1;
constexpr int kUvPoll = 8;
constexpr int kUvTimer = 13;
constexpr int kUvReadable = 1;

}  // namespace cinnabar::binding
