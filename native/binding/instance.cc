// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "binding/instance.h"

namespace cinnabar::binding {
namespace {

using Shared = std::shared_ptr<Instance>;

}  // namespace

bool Instance::attach(napi_env env) {
  auto* shared = new Shared(new Instance(env));
  auto destroy = [](napi_env, void* data, void*) { delete static_cast<Shared*>(data); };
  if (napi_set_instance_data(env, shared, destroy, nullptr) != napi_ok) {
    delete shared;
    return false;
  }
  // Asynchronous, because the loop must turn once more to release the poll handles. It runs when a
  // worker ends or is terminated, and when the main thread's loop becomes empty. It does not run at
  // process.exit() on the main thread, see claim.cc.
  auto clean = [](napi_async_cleanup_hook_handle handle, void* data) {
    Shared instance = *static_cast<Shared*>(data);
    instance->cleanup_ = handle;
    instance->cleaning_ = true;
    instance->closeAll();
    ++instance->closingWakes_;
    instance->onWakeClosed();
  };
  return napi_add_async_cleanup_hook(env, clean, shared, nullptr) == napi_ok;
}

Instance* Instance::of(napi_env env) {
  void* data = nullptr;
  if (napi_get_instance_data(env, &data) != napi_ok || data == nullptr) return nullptr;
  return static_cast<Shared*>(data)->get();
}

void Instance::closePort(napi_value number) {
  if (auto holder = ports.take(env_, number)) release(*holder);
}

void Instance::closeListener(napi_value number) {
  if (auto holder = listeners.take(env_, number)) release(*holder);
}

void Instance::closeAll() {
  while (auto holder = ports.takeAny()) release(*holder);
  while (auto holder = listeners.takeAny()) release(*holder);
  if (lostPages) releaseWake(lostPages->wake);
  lostPages.reset();
}

void Instance::release(PortHolder& holder) {
  // First the guard ends, which wakes the loop and uses the port. Then the loop releases the
  // descriptor, and the port closes it. Only then may the buffers be freed.
  holder.guard.reset();
  releaseWake(holder.wake);
  holder.port->close();
}

void Instance::release(QueuePairsHolder& holder) {
  releaseWake(holder.wake);
  holder.pairs.reset();
}

void Instance::releaseWake(Wake* wake) {
  if (wake == nullptr) return;
  ++closingWakes_;
  wake->destroy([self = shared_from_this()] { self->onWakeClosed(); });
}

void Instance::call(const Hold& function) {
  Napi::Env env(env_);
  napi_value callee = function.get();
  if (callee == nullptr) return;
  napi_value result;
  napi_status status = napi_make_callback(env, nullptr, env.Global(), callee, 0, nullptr, &result);
  if (status != napi_pending_exception) return;
  napi_value thrown;
  if (napi_get_and_clear_last_exception(env, &thrown) == napi_ok) napi_fatal_exception(env, thrown);
}

void Instance::onWakeClosed() {
  if (--closingWakes_ == 0 && cleaning_) napi_remove_async_cleanup_hook(cleanup_);
}

}  // namespace cinnabar::binding
