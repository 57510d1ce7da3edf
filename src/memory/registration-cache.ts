import { RpcError } from "../base/errors/rpc-error.ts";
import { type Clock, systemClock } from "../base/time/clock.ts";
import { isPinRefusal } from "../fabric/libfabric/file-memory.ts";
import { access, type Port, type RegisteredMemory } from "../fabric/port.ts";
import { detached, isDetached } from "./exposable.ts";
import { addUser, removeUser } from "./memory-users.ts";

/** The registration cache of a port at this moment, and its counters. */
export interface RegistrationStats {
  /** Registrations in use by transfers, and the bytes they cover. */
  readonly held: number;
  readonly heldBytes: number;
  /** Registrations kept for later transfers, and the bytes of the buffers that they keep alive. */
  readonly idle: number;
  readonly idleBytes: number;
  /** Transfers that found their memory registered; and transfers that registered it. */
  readonly hits: number;
  readonly misses: number;
  /** Idle registrations dropped to make room. */
  readonly evictions: number;
  /** Registrations dropped because their buffer was transferred away or had grown. */
  readonly invalidations: number;
}

/** Limits of idle registrations. Those in use are not limited. */
export interface RegistrationBounds {
  readonly maxIdle: number;
  readonly maxIdleBytes: number;
}

const defaultRegistrationBounds: RegistrationBounds = {
  maxIdle: 256,
  maxIdleBytes: 256 * 1024 * 1024,
};

const sweepMs = 500;
/** Sweeps before an idle registration is dropped: 1 to 1.5 s, without reading the clock at each release. */
const sweepsUntilDropped = 3;

/**
 * Registers each buffer once and keeps the registration for the next transfer. On a NIC a registration pins pages,
 * which takes milliseconds. Elsewhere it still costs more than a call.
 *
 * It registers the whole buffer for local access only: the key never leaves the process, so no peer gains access. A
 * registration keeps its buffer alive. Idle registrations are limited in number and bytes. A timer drops them after a
 * second, and runs only while there are some.
 */
export class RegistrationCache {
  readonly #port: Port;
  readonly #clock: Clock;
  readonly #bounds: RegistrationBounds;
  readonly #entries = new Map<ArrayBufferLike, CachedRegistration>();
  /** Files that the device does not pin for writing. Their registrations are for puts only. */
  readonly #unwritable = new WeakSet<ArrayBufferLike>();
  /**
   * Entries in use with a transferred or grown buffer, and views registered by themselves. They are not in the map, and
   * not yet deregistered.
   */
  #outside = 0;
  #idle = 0;
  #idleBytes = 0;
  /** Bytes of all registrations, held and idle. */
  #bytes = 0;
  #releases = 0;
  #stopSweeping: (() => void) | undefined;
  #hits = 0;
  #misses = 0;
  #evictions = 0;
  #invalidations = 0;

  constructor(port: Port, clock: Clock, bounds: RegistrationBounds = defaultRegistrationBounds) {
    this.#port = port;
    this.#clock = clock;
    this.#bounds = bounds;
  }

  /** A registration to read from, for a view that is neither empty nor detached. @throws RpcError of the provider. */
  hold(view: ArrayBufferView): HeldMemory {
    const buffer = view.buffer;
    let entry = this.#entries.get(buffer);
    if (entry !== undefined && entry.bytes !== buffer.byteLength) {
      this.#invalidate(entry);
      entry = undefined;
    }
    if (entry === undefined) {
      this.#misses++;
      // A buffer that is too long to stay idle is not pinned whole for a part of it.
      const whole = buffer.byteLength <= this.#bounds.maxIdleBytes;
      const [from, bytes] = whole ? [0, buffer.byteLength] : [view.byteOffset, view.byteLength];
      const memory = this.#registerOwn(buffer, from, bytes);
      entry = { buffer, bytes, from, memory, users: 0, sweeps: 0, releasedAt: 0, outside: !whole };
      this.#bytes += bytes;
      if (whole) this.#entries.set(buffer, entry);
      else this.#outside++;
    } else {
      this.#hits++;
      if (entry.users === 0) this.#leaveIdle(entry);
    }
    entry.users++;
    addUser(buffer);
    return new HeldMemory(this, entry, view.byteOffset - entry.from);
  }

  /** The same, to write to. Undefined where the port cannot do so. */
  holdTarget(view: ArrayBufferView): HeldMemory | undefined {
    // Only an attempt shows whether the memory can be registered for writing.
    if (!this.#unwritable.has(view.buffer)) {
      const held = this.hold(view);
      if (!this.#unwritable.has(view.buffer)) return held;
      held.release();
    }
    return undefined;
  }

  /** @internal */
  release(entry: CachedRegistration): void {
    if (--entry.users === 0) {
      if (entry.outside) {
        this.#outside--;
        this.#deregister(entry);
      } else this.#becomeIdle(entry);
    }
    removeUser(entry.buffer);
  }

  /** Drops idle registrations now. Those in use are dropped when they are released. */
  dropIdle(): void {
    for (const entry of this.#entries.values()) if (entry.users === 0) this.#drop(entry);
    this.#stopSweeping?.();
    this.#stopSweeping = undefined;
  }

  stats(): RegistrationStats {
    return {
      held: this.#entries.size - this.#idle + this.#outside,
      heldBytes: this.#bytes - this.#idleBytes,
      idle: this.#idle,
      idleBytes: this.#idleBytes,
      hits: this.#hits,
      misses: this.#misses,
      evictions: this.#evictions,
      invalidations: this.#invalidations,
    };
  }

  #registerOwn(buffer: ArrayBufferLike, from: number, bytes: number): RegisteredMemory {
    try {
      if (!this.#unwritable.has(buffer)) return this.#register(buffer, from, bytes, access.local);
    } catch (error) {
      if (!isPinRefusal(error)) throw error;
      this.#unwritable.add(buffer);
    }
    return this.#register(buffer, from, bytes, access.source);
  }

  /** When no more memory may be locked, idle registrations are dropped. */
  #register(buffer: ArrayBufferLike, from: number, bytes: number, rights: number): RegisteredMemory {
    for (;;) {
      try {
        return this.#port.register(buffer, from, bytes, rights);
      } catch (error) {
        const isShort = error instanceof RpcError && error.code === "resource_exhausted";
        if (!isShort || this.#idle === 0) throw error;
        this.#evict();
      }
    }
  }

  #becomeIdle(entry: CachedRegistration): void {
    entry.sweeps = 0;
    entry.releasedAt = ++this.#releases;
    this.#idle++;
    this.#idleBytes += entry.bytes;
    if (entry.bytes !== entry.buffer.byteLength) this.#invalidate(entry);
    while (this.#idle > this.#bounds.maxIdle || this.#idleBytes > this.#bounds.maxIdleBytes) this.#evict();
    if (this.#idle > 0) this.#sweepLater();
  }

  #leaveIdle(entry: CachedRegistration): void {
    this.#idle--;
    this.#idleBytes -= entry.bytes;
  }

  /** The registration no longer matches the buffer: new transfers do not find it. */
  #invalidate(entry: CachedRegistration): void {
    this.#invalidations++;
    if (entry.users === 0) {
      this.#drop(entry);
      return;
    }
    this.#entries.delete(entry.buffer);
    entry.outside = true;
    this.#outside++;
  }

  #drop(entry: CachedRegistration): void {
    this.#leaveIdle(entry);
    this.#entries.delete(entry.buffer);
    this.#deregister(entry);
  }

  #deregister(entry: CachedRegistration): void {
    this.#bytes -= entry.bytes;
    this.#port.deregister(entry.memory.index);
  }

  /**
   * Drops the registration that has been idle longest. The search costs less than the registration that needs the room.
   */
  #evict(): void {
    let oldest: CachedRegistration | undefined;
    for (const entry of this.#entries.values()) {
      if (entry.users === 0 && (oldest === undefined || entry.releasedAt < oldest.releasedAt)) oldest = entry;
    }
    this.#evictions++;
    this.#drop(oldest as CachedRegistration);
  }

  #sweepLater(): void {
    this.#stopSweeping ??= this.#clock.timer(sweepMs, () => this.#sweep(), true);
  }

  #sweep(): void {
    this.#stopSweeping = undefined;
    for (const entry of this.#entries.values()) {
      if (entry.users > 0) continue;
      if (entry.bytes !== entry.buffer.byteLength) this.#invalidate(entry);
      else if (++entry.sweeps >= sweepsUntilDropped) this.#drop(entry);
    }
    if (this.#idle > 0) this.#sweepLater();
  }
}

interface CachedRegistration {
  readonly buffer: ArrayBufferLike;
  /** The buffer's length when it was registered, or the view's. */
  readonly bytes: number;
  /** Where the registration begins in the buffer. */
  readonly from: number;
  readonly memory: RegisteredMemory;
  users: number;
  sweeps: number;
  /** Orders the idle registrations by age. */
  releasedAt: number;
  /** Not in the map; deregistered at its last release. */
  outside: boolean;
}

/** Local memory that is registered until it is released. */
export class HeldMemory {
  /** A registration for local access that covers the view; usually its whole buffer. */
  readonly memory: RegisteredMemory;
  /** Where the view begins in the registration. */
  readonly offset: number;
  readonly #cache: RegistrationCache;
  #entry: CachedRegistration | undefined;

  constructor(cache: RegistrationCache, entry: CachedRegistration, offset: number) {
    this.memory = entry.memory;
    this.offset = offset;
    this.#cache = cache;
    this.#entry = entry;
  }

  /** The transfer no longer touches the memory. Safe to call twice. */
  release(): void {
    const entry = this.#entry;
    if (entry === undefined) return;
    this.#entry = undefined;
    this.#cache.release(entry);
  }
}

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
 * Registers local memory that a transfer over `port` reads from: the view's whole buffer, once. The next transfer finds
 * it registered. Each call needs one `release`, when no posted operation touches the view. Accepts ArrayBuffers and
 * SharedArrayBuffers.
 *
 * @throws TypeError for an empty view, and for a view of a resizable ArrayBuffer, which loses pages when it shrinks;
 * RpcError `failed_precondition` for detached memory, or the provider's error.
 */
export function hold(port: Port, view: ArrayBufferView): HeldMemory {
  return cacheFor(port, view).hold(view);
}

/**
 * The same for memory that a transfer writes to. Undefined where the port cannot do so: its device does not pin the
 * pages of a file for writing.
 *
 * @throws as `hold`.
 */
export function holdTarget(port: Port, view: ArrayBufferView): HeldMemory | undefined {
  return cacheFor(port, view).holdTarget(view);
}

/** The cache of a port, for a view that can be registered. */
function cacheFor(port: Port, view: ArrayBufferView): RegistrationCache {
  if (view.byteLength === 0) {
    if (isDetached(view.buffer)) throw detached("the local memory");
    throw new TypeError("an empty view cannot be registered");
  }
  assertFixed(view);
  let cache = caches.get(port);
  if (cache === undefined) {
    cache = new RegistrationCache(port, systemClock);
    caches.set(port, cache);
  }
  return cache;
}

/** @throws TypeError for a view of a resizable ArrayBuffer. */
export function assertFixed({ buffer }: ArrayBufferView): void {
  if ((buffer as { readonly resizable?: boolean }).resizable !== true) return;
  throw new TypeError(
    "local memory must not lie in a resizable ArrayBuffer: it could shrink during the transfer",
  );
}

/** Statistics of a port's registration cache. */
export function registrations(port: Port): RegistrationStats {
  return caches.get(port)?.stats() ?? nothing;
}

/** Drops the idle registrations of a closed port, and their timer. */
export function dropIdleRegistrations(port: Port): void {
  caches.get(port)?.dropIdle();
}
