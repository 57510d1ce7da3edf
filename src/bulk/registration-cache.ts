import type { Clock } from "../call/clock.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { access, type Port, type RegisteredMemory } from "../fabric/port.ts";
import { addUser, removeUser } from "./memory-users.ts";

/** Local memory that a transfer may use: registered, and kept so, until it is released. */
export interface HeldMemory {
  /** A registration with local access that covers the view; usually its whole buffer. */
  readonly memory: RegisteredMemory;
  /** Where the view begins in it. */
  readonly offset: number;
  /** The transfer touches the memory no longer. Safe to call twice. */
  release(): void;
}

/** What a port's cache of registrations holds, and what became of what it was asked. */
export interface RegistrationStats {
  /** Registrations that transfers use now, and the bytes they cover. */
  readonly held: number;
  readonly heldBytes: number;
  /** Registrations kept for the next transfer, and the bytes of the buffers they keep alive. */
  readonly idle: number;
  readonly idleBytes: number;
  readonly hits: number;
  readonly misses: number;
  /** Idle ones dropped because others needed the room. */
  readonly evictions: number;
  /** Ones dropped because their buffer was transferred away or had grown. */
  readonly invalidations: number;
}

/** Bounds of what lies idle; what is in use stays alive anyway. */
export interface RegistrationBounds {
  readonly maxIdle: number;
  readonly maxIdleBytes: number;
}

const defaultRegistrationBounds: RegistrationBounds = {
  maxIdle: 256,
  maxIdleBytes: 256 * 1024 * 1024,
};

const sweepMs = 500;
/** Idle at this many sweeps means idle for 1 s at least, 1.5 s at most, without looking at the clock at each release. */
const sweepsUntilDropped = 3;

/**
 * Registers each buffer once and keeps the registration while transfers come back to it: on a NIC registering pins pages, for milliseconds;
 * elsewhere it still costs more than the call that uses it.
 *
 * The whole buffer is registered, for this side's use only: no key of it ever leaves the process, so it opens nothing to anybody. A registration
 * keeps its buffer alive; idle ones are bounded in number and bytes, and dropped after a second by a timer that runs only while there are some.
 */
export class RegistrationCache {
  readonly #port: Port;
  readonly #clock: Clock;
  readonly #bounds: RegistrationBounds;
  readonly #entries = new Map<ArrayBufferLike, Entry>();
  /** Entries in use whose buffer has gone or grown, and views registered by themselves: out of the map, not yet deregistered. */
  #outside = 0;
  #idle = 0;
  #idleBytes = 0;
  /** Of all registrations, held and idle. */
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

  /** A registration for a view that is neither empty nor detached. @throws RpcError what the provider says. */
  hold(view: ArrayBufferView): HeldMemory {
    const buffer = view.buffer;
    let entry = this.#entries.get(buffer);
    if (entry !== undefined && entry.bytes !== buffer.byteLength) {
      this.#invalidate(entry);
      entry = undefined;
    }
    if (entry === undefined) {
      this.#misses++;
      // What could never lie idle is not worth pinning whole for a part of it.
      const whole = buffer.byteLength <= this.#bounds.maxIdleBytes;
      const [from, bytes] = whole ? [0, buffer.byteLength] : [view.byteOffset, view.byteLength];
      const memory = this.#register(buffer, from, bytes);
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
    return new Held(this, entry, view.byteOffset - entry.from);
  }

  /** @internal */
  release(entry: Entry): void {
    if (--entry.users === 0) {
      if (entry.outside) {
        this.#outside--;
        this.#deregister(entry);
      } else this.#becomeIdle(entry);
    }
    removeUser(entry.buffer);
  }

  /** Drops what lies idle now. What is in use goes when it is released, and is kept no longer than others. */
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

  /** Where no more memory may be locked, what lies idle is given up for it. */
  #register(buffer: ArrayBufferLike, from: number, bytes: number): RegisteredMemory {
    for (;;) {
      try {
        return this.#port.register(buffer, from, bytes, access.local);
      } catch (error) {
        const isShort = error instanceof RpcError && error.code === "resource_exhausted";
        if (!isShort || this.#idle === 0) throw error;
        this.#evict();
      }
    }
  }

  #becomeIdle(entry: Entry): void {
    entry.sweeps = 0;
    entry.releasedAt = ++this.#releases;
    this.#idle++;
    this.#idleBytes += entry.bytes;
    if (entry.bytes !== entry.buffer.byteLength) this.#invalidate(entry);
    while (this.#idle > this.#bounds.maxIdle || this.#idleBytes > this.#bounds.maxIdleBytes) this.#evict();
    if (this.#idle > 0) this.#sweepLater();
  }

  #leaveIdle(entry: Entry): void {
    this.#idle--;
    this.#idleBytes -= entry.bytes;
  }

  /** The entry's registration is no longer the buffer's: new transfers do not find it. */
  #invalidate(entry: Entry): void {
    this.#invalidations++;
    if (entry.users === 0) {
      this.#drop(entry);
      return;
    }
    this.#entries.delete(entry.buffer);
    entry.outside = true;
    this.#outside++;
  }

  #drop(entry: Entry): void {
    this.#leaveIdle(entry);
    this.#entries.delete(entry.buffer);
    this.#deregister(entry);
  }

  #deregister(entry: Entry): void {
    this.#bytes -= entry.bytes;
    this.#port.deregister(entry.memory.index);
  }

  /** Drops the one that has lain idle longest. A look at all of them costs less than the registration that made it necessary. */
  #evict(): void {
    let oldest: Entry | undefined;
    for (const entry of this.#entries.values()) {
      if (entry.users === 0 && (oldest === undefined || entry.releasedAt < oldest.releasedAt)) oldest = entry;
    }
    this.#evictions++;
    this.#drop(oldest as Entry);
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

interface Entry {
  readonly buffer: ArrayBufferLike;
  /** The buffer's length when it was registered, or the view's. */
  readonly bytes: number;
  /** Where the registration begins in the buffer. */
  readonly from: number;
  readonly memory: RegisteredMemory;
  users: number;
  sweeps: number;
  /** Orders the idle ones by age. */
  releasedAt: number;
  /** Not in the map: deregistered at its last release. */
  outside: boolean;
}

class Held implements HeldMemory {
  readonly memory: RegisteredMemory;
  readonly offset: number;
  readonly #cache: RegistrationCache;
  #entry: Entry | undefined;

  constructor(cache: RegistrationCache, entry: Entry, offset: number) {
    this.memory = entry.memory;
    this.offset = offset;
    this.#cache = cache;
    this.#entry = entry;
  }

  release(): void {
    const entry = this.#entry;
    if (entry === undefined) return;
    this.#entry = undefined;
    this.#cache.release(entry);
  }
}
