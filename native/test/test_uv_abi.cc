// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors

// What binding/uv_abi.h declares, compared with libuv's own header by the compiler. tests.cmake
// leaves this file out where no package of Node or of libuv has brought that header.
#include <uv.h>

#include <type_traits>

#include "binding/uv_abi.h"

namespace {

using namespace cinnabar::binding;
using Handle = uv_handle_t*;

static_assert(UV_VERSION_MAJOR == 1);
static_assert(kUvAsync == UV_ASYNC);
static_assert(kUvPoll == UV_POLL);
static_assert(kUvTimer == UV_TIMER);
static_assert(kUvReadable == UV_READABLE);
static_assert(sizeof(uv_handle_type) == sizeof(int));
static_assert(sizeof(unsigned long long) == sizeof(uint64_t));

template <typename Function, typename Declared>
constexpr bool same = std::is_same_v<Function, Declared>;

static_assert(same<decltype(uv_handle_size), size_t(uv_handle_type)>);
static_assert(same<decltype(uv_handle_set_data), void(Handle, void*)>);
static_assert(same<decltype(uv_handle_get_data), void*(const uv_handle_t*)>);
static_assert(same<decltype(uv_close), void(Handle, uv_close_cb)>);
static_assert(same<decltype(uv_ref), void(Handle)> && same<decltype(uv_unref), void(Handle)>);
static_assert(same<decltype(uv_poll_init), int(uv_loop_t*, uv_poll_t*, int)>);
static_assert(same<decltype(uv_poll_start), int(uv_poll_t*, int, uv_poll_cb)>);
static_assert(same<decltype(uv_poll_stop), int(uv_poll_t*)>);
static_assert(same<decltype(uv_timer_init), int(uv_loop_t*, uv_timer_t*)>);
static_assert(same<decltype(uv_timer_start), int(uv_timer_t*, uv_timer_cb, uint64_t, uint64_t)>);
static_assert(same<decltype(uv_timer_stop), int(uv_timer_t*)>);
static_assert(same<decltype(uv_async_init), int(uv_loop_t*, uv_async_t*, uv_async_cb)>);
static_assert(same<decltype(uv_async_send), int(uv_async_t*)>);
static_assert(same<uv_close_cb, void (*)(uv_handle_t*)>);
static_assert(same<uv_poll_cb, void (*)(uv_poll_t*, int, int)>);
static_assert(same<uv_timer_cb, void (*)(uv_timer_t*)>);
static_assert(same<uv_async_cb, void (*)(uv_async_t*)>);

}  // namespace
