// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#pragma once

#include <napi.h>

#include <memory>
#include <unordered_map>

#include "base/allocation.h"
#include "base/fd.h"
#include "binding/arguments.h"
#include "binding/handles.h"
#include "binding/wake.h"
#include "crypto/aead.h"
#include "engine/guard.h"
#include "transport/verbs/queue_pairs.h"

namespace cinnabar::binding {

/// A port with the owners of its memory. The buffers are held from open (or register) until the
/// endpoint is closed.
///
/// Node-API cannot keep an ArrayBuffer from being detached. Code that transfers a slab, a ring or a
/// registered buffer away moves the memory out of this hold. It must not let the memory be
/// collected before close or deregister. A SharedArrayBuffer cannot be detached.
struct PortHolder {
  std::unique_ptr<engine::Port> port;
  std::unique_ptr<engine::Guard> guard;  // its lock is held whenever the port is used
  Wake* wake = nullptr;                  // deletes itself
  Hold slab;
  Hold ring;
  Hold extents;
  uint64_t* extentWords = nullptr;  // kExtentsBytes of it
  Hold onWake;
  std::unordered_map<uint32_t, Hold> regions;
  /// The pages of regions in memory of our own. They outlast the buffer, which a dying environment
  /// finalizes before it closes its ports.
  std::unordered_map<uint32_t, std::shared_ptr<base::Allocation>> pages;
};

/// A listener for queue pairs with the owners of its memory until its endpoints are closed.
struct QueuePairsHolder {
  std::unique_ptr<verbs::QueuePairs> pairs;
  Wake* wake = nullptr;  // deletes itself
  Hold onEvents;
  Hold events;
  uint32_t* eventWords = nullptr;
  std::unordered_map<uint32_t, Hold> memories;
  /// As those of PortHolder.
  std::unordered_map<uint32_t, std::shared_ptr<base::Allocation>> pages;
};

/// Reports lost pages of the files that an environment has mapped.
struct AlarmHolder {
  std::shared_ptr<const base::Fd> alarm;  // an eventfd, which the files share
  Wake* wake = nullptr;                   // deletes itself
  Hold onLostPages;
};

/// The state of one environment: the main thread or a worker. It is used on that thread only. Only
/// its ports are shared, with their guards.
class Instance : public std::enable_shared_from_this<Instance> {
 public:
  /// Makes the instance and attaches it to the environment. The instance is closed before the
  /// environment's buffers are freed.
  static bool attach(napi_env env);
  static Instance* of(napi_env env);

  /// Each removes the object from its table at once, and closes what it held.
  void closePort(napi_value number);
  void closeListener(napi_value number);

  /// Calls a function of JavaScript. An exception of the function becomes an uncaught exception.
  void call(const Hold& function);

  napi_env env() const { return env_; }

  Handles<PortHolder> ports;
  Handles<QueuePairsHolder> listeners;  // for queue pairs
  Handles<crypto::Aead> aeads;          // keys
  /// Opened with the first mapped file, closed with the ports.
  std::unique_ptr<AlarmHolder> lostPages;

 private:
  explicit Instance(napi_env env) : env_(env) {}
  void closeAll();
  void release(PortHolder& holder);
  void release(QueuePairsHolder& holder);
  void releaseWake(Wake* wake);
  void onWakeClosed();

  napi_env env_;
  int closingWakes_ = 0;
  napi_async_cleanup_hook_handle cleanup_ = nullptr;
  bool cleaning_ = false;
};

}  // namespace cinnabar::binding
