import { systemClock } from "../call/clock.ts";
import type { Port } from "../fabric/port.ts";
import { detached, isDetached } from "./exposable.ts";
import { type HeldMemory, RegistrationCache, type RegistrationStats } from "./registration-cache.ts";

const caches = new WeakMap<Port, RegistrationCache>();

const nothing: RegistrationStats = {
  held: 0,
  heldBytes: 0,
  idle: 0,
  idleBytes: 0,
  hits: 0,
  misses: 0,
  evictions: 0,
  invalidations: 0,
};

/**
 * The way to use local memory in a transfer over `port`: registers the view's whole buffer once, and finds it registered the next time.
 * Each hold wants one `release`, when nothing posted touches the view any more. ArrayBuffers and SharedArrayBuffers will do.
 *
 * @throws TypeError for an empty view and for one in a resizable ArrayBuffer, whose pages go when it shrinks; RpcError `failed_precondition` for
 * detached memory, or what the provider says.
 */
export function hold(port: Port, view: ArrayBufferView): HeldMemory {
  if (view.byteLength === 0) {
    if (isDetached(view.buffer)) throw detached("the local memory");
    throw new TypeError("an empty view cannot be registered, there is nothing to move");
  }
  if ((view.buffer as { readonly resizable?: boolean }).resizable === true) {
    throw new TypeError(
      "local memory must not lie in a resizable ArrayBuffer: it could shrink while it is read",
    );
  }
  let cache = caches.get(port);
  if (cache === undefined) {
    cache = new RegistrationCache(port, systemClock);
    caches.set(port, cache);
  }
  return cache.hold(view);
}

/** What `hold` keeps registered on a port. */
export function registrations(port: Port): RegistrationStats {
  return caches.get(port)?.stats() ?? nothing;
}

/** Drops what lies registered and unused on a port that has closed, and the timer that would have. */
export function dropIdleRegistrations(port: Port): void {
  caches.get(port)?.dropIdle();
}
