import { closedError, RpcError } from "../base/errors/rpc-error.ts";
import { boolean, checkOptions, type FieldsOf, shown } from "../base/options/options.ts";
import type { Clock } from "../base/time/clock.ts";
import { addonIfThere } from "../fabric/libfabric/libfabric.ts";
import { forbidTransfer, noteOfAddon, regionFields } from "./exposable.ts";
import { IdleSlabs } from "./idle-slabs.ts";
import { callerOf } from "./leak-watch.ts";
import { usersOf, watchUsers } from "./memory-users.ts";
import type { Region } from "./region.ts";
import type { Access, RegionKeys } from "./region-kind.ts";

/** Options of `pool.take`. */
export interface TakeOptions<A extends Access = never> {
  /** Whether to fill the memory with zeros. Otherwise it may contain bytes of its last user. Default true. */
  readonly zero?: boolean | undefined;
  /** Exposes the memory as a region, `memory.region`, with this access for peers. Default: no region. */
  readonly access?: A | undefined;
  /** How long the region's keys live, as with `engine.expose`; only with `access`. Default "call". */
  readonly keys?: RegionKeys | undefined;
}

/** The pool at this moment, and its counters. */
export interface PoolStats {
  /** Bytes of slabs that are taken, or disposed but still in use by a transfer or a region. */
  readonly takenBytes: number;
  /** Bytes of slabs that are ready for the next `take`. */
  readonly freeBytes: number;
  /** Slabs, taken and free. */
  readonly slabs: number;
  /** Takes that reused a free slab; and takes that allocated one. */
  readonly hits: number;
  readonly misses: number;
  /** Free slabs returned to the system: idle for 5 seconds, or to make room for others. */
  readonly trims: number;
}

/** Exposes memory as a region of the engine; `at` says where it was taken. */
export type Exposer = <A extends Access>(
  bytes: Uint8Array,
  access: A,
  at: string,
  keys: RegionKeys | undefined,
) => Region<A>;

let close: (pool: Pool) => void;

/** Closes a pool with its engine. Taken memory stays with its takers, and returns to the system when they are done. */
export function closePool(pool: Pool): void {
  close(pool);
}

/** How long a free slab is kept, in milliseconds. */
const idleMs = 5000;

const takeFields = { zero: boolean(), ...regionFields } satisfies FieldsOf<TakeOptions>;

/**
 * Reusable memory for bulk data: `engine.pool`. Take buffers here when you move much data. New memory is slow at first:
 * the system maps its pages at the first access, and a device must register them. Each slab has one taker at a time, so
 * a taker's views never show another's bytes.
 *
 * @example
 * using memory = engine.pool.take(8 * 1024 * 1024, { access: "read", zero: false });
 * memory.as(Float32Array).fill(1);
 * await peer.client(Sums).sum({ numbers: memory.region });
 */
export class Pool {
  readonly #maxBytes: number;
  readonly #expose: Exposer;
  /** By length of the slabs; the one used last comes last. */
  readonly #free = new Map<number, Slab[]>();
  readonly #idle: IdleSlabs<Slab>;
  /** Finds slabs that their taker lost: no view, transfer or region holds the buffer. */
  readonly #forgotten = new FinalizationRegistry((taking: Taking) => this.#onForgotten(taking));
  /** Places in the code that have had a warning. One warning each. */
  readonly #warnedOf = new Set<string>();
  #takenBytes = 0;
  #freeBytes = 0;
  #slabs = 0;
  #hits = 0;
  #misses = 0;
  #trims = 0;
  #closed = false;

  static {
    close = (pool) => {
      pool.#closed = true;
      pool.trim();
    };
  }

  /** @internal Engines have one pool each. */
  constructor(clock: Clock, maxBytes: number, expose: Exposer) {
    this.#idle = new IdleSlabs(clock, idleMs, (slab) => this.#onIdle(slab));
    this.#maxBytes = maxBytes;
    this.#expose = expose;
  }

  /**
   * Takes `bytes` bytes of memory. `dispose` it when you are done; `using` does. Memory that is garbage-collected
   * instead causes a `CinnabarLeakWarning`.
   *
   * @throws TypeError or RangeError for invalid arguments; RpcError `resource_exhausted` when `limits.maxPoolBytes` or
   * the system's memory is used up, `unavailable` when the engine is closed.
   */
  take<A extends Access = never>(bytes: number, options: TakeOptions<A> = {}): PooledMemory<A> {
    assertTakes(bytes, options);
    const { zero = true, access, keys } = options;
    if (this.#closed) throw closedError("the engine");
    const slab = this.#slabOf(slabBytesFor(bytes), zero, bytes);
    const { taking } = slab;
    taking.state = "taken";
    taking.bytes = bytes;
    taking.at = callerOf(this.take);
    this.#takenBytes += taking.slabBytes;
    const view = new Uint8Array(slab.memory, 0, bytes);
    const onDisposed = () => this.#onDisposed(slab);
    if (access === undefined) return new PooledMemory<A>(view, onDisposed);
    try {
      return new PooledMemory<A>(view, onDisposed, this.#expose(view, access, taking.at, keys));
    } catch (error) {
      onDisposed();
      throw error;
    }
  }

  /** Returns all free slabs to the system now. */
  trim(): void {
    this.#idle.dropAll();
  }

  /** The pool at this moment. */
  stats(): PoolStats {
    return {
      takenBytes: this.#takenBytes,
      freeBytes: this.#freeBytes,
      slabs: this.#slabs,
      hits: this.#hits,
      misses: this.#misses,
      trims: this.#trims,
    };
  }

  #slabOf(slabBytes: number, zero: boolean, asked: number): Slab {
    const slab = this.#free.get(slabBytes)?.pop();
    if (slab === undefined) {
      this.#misses++;
      return this.#make(slabBytes, asked);
    }
    this.#hits++;
    this.#idle.delete(slab);
    this.#freeBytes -= slabBytes;
    // The whole slab: the view's buffer shows the rest of it.
    if (zero) new Uint8Array(slab.memory).fill(0);
    return slab;
  }

  #make(slabBytes: number, asked: number): Slab {
    while (this.#takenBytes + this.#freeBytes + slabBytes > this.#maxBytes && this.#idle.dropOldest());
    if (this.#takenBytes + slabBytes > this.#maxBytes) {
      throw new RpcError({
        code: "resource_exhausted",
        message:
          `pool.take: ${asked} bytes need a slab of ${slabBytes} bytes; ${this.#takenBytes} bytes are taken and ` +
          `limits.maxPoolBytes is ${this.#maxBytes}`,
      });
    }
    const memory = allocateSlab(slabBytes);
    const taking: Taking = { slabBytes, state: "free", bytes: 0, at: "" };
    const slab: Slab = { memory, taking };
    this.#slabs++;
    // These entries do not keep the buffer alive.
    watchUsers(memory, () => {
      if (taking.state === "leaving") this.#takeBack(slab);
    });
    this.#forgotten.register(memory, taking);
    return slab;
  }

  #onDisposed(slab: Slab): void {
    slab.taking.state = "leaving";
    if (usersOf(slab.memory) === 0) this.#takeBack(slab);
  }

  #takeBack(slab: Slab): void {
    const { taking } = slab;
    taking.state = "free";
    this.#takenBytes -= taking.slabBytes;
    this.#freeBytes += taking.slabBytes;
    if (this.#closed) {
      this.#drop(slab);
      return;
    }
    const slabs = this.#free.get(taking.slabBytes);
    if (slabs === undefined) this.#free.set(taking.slabBytes, [slab]);
    else slabs.push(slab);
    this.#idle.add(slab);
  }

  /** The slab is gone with its last view; only its numbers remain. */
  #onForgotten(taking: Taking): void {
    if (taking.state === "free") return;
    this.#takenBytes -= taking.slabBytes;
    this.#slabs--;
    if (taking.state === "leaving" || this.#warnedOf.has(taking.at)) return;
    this.#warnedOf.add(taking.at);
    process.emitWarning(
      `pooled memory of ${taking.bytes} bytes was forgotten without being disposed; it was taken ${taking.at}. ` +
        "Call dispose() when it is no longer needed, or declare it with `using`.",
      "CinnabarLeakWarning",
    );
  }

  /** Returns a slab to the system that counts as free. */
  #drop({ memory, taking }: Slab): void {
    this.#freeBytes -= taking.slabBytes;
    this.#slabs--;
    this.#trims++;
    releaseSlab(memory);
  }

  /** The slab was the first of its length to become free. */
  #onIdle(slab: Slab): void {
    this.#free.get(slab.taking.slabBytes)?.shift();
    this.#drop(slab);
  }
}

function assertTakes(bytes: number, options: TakeOptions<Access>): void {
  if (!Number.isSafeInteger(bytes) || bytes < 1)
    throw new RangeError(`pool.take: bytes must be an integer of at least 1, it is ${shown(bytes)}`);
  checkOptions("pool.take", options, takeFields);
  if (options.keys !== undefined && options.access === undefined)
    throw new TypeError("pool.take: keys need access: without it the memory is no region");
}

/** A buffer with one taker at a time. */
interface Slab {
  readonly memory: ArrayBuffer;
  readonly taking: Taking;
}

/** The data about a slab, without its buffer. */
interface Taking {
  readonly slabBytes: number;
  /** leaving: disposed, but still used. */
  state: "free" | "taken" | "leaving";
  /** The length that its taker asked for. */
  bytes: number;
  /** Where it was taken, for the warning. */
  at: string;
}

/** The class of a typed array, or DataView. */
export interface ViewConstructor<V extends ArrayBufferView> {
  readonly name: string;
  /** A DataView has no element size: its elements are bytes. */
  readonly BYTES_PER_ELEMENT?: number;
  new (buffer: ArrayBuffer, byteOffset: number, length: number): V;
}

/**
 * Memory from `engine.pool.take(bytes)`. It is yours until `dispose`, which `using` calls. Then it returns to the pool
 * as soon as no transfer and no region uses it. After `dispose` its bytes have another owner: keep no view of it.
 */
export class PooledMemory<A extends Access = never> implements Disposable {
  /** Length in bytes, as asked for. */
  readonly byteLength: number;
  readonly #bytes: Uint8Array<ArrayBuffer>;
  readonly #onDisposed: () => void;
  readonly #region: Region<A> | undefined;
  #disposed = false;

  /** @internal Memory comes from `pool.take`. */
  constructor(bytes: Uint8Array<ArrayBuffer>, onDisposed: () => void, region?: Region<A>) {
    this.byteLength = bytes.byteLength;
    this.#bytes = bytes;
    this.#onDisposed = onDisposed;
    this.#region = region;
  }

  /**
   * The memory as bytes: exactly the length that `take` was called with.
   *
   * @throws RpcError `failed_precondition` after `dispose`.
   */
  get bytes(): Uint8Array<ArrayBuffer> {
    this.#assertUsable();
    return this.#bytes;
  }

  /**
   * The same memory as another view, without a copy: `memory.as(Float64Array)`.
   *
   * @throws RangeError when the length is not a multiple of the element size; RpcError `failed_precondition` after
   * `dispose`.
   */
  as<V extends ArrayBufferView>(view: ViewConstructor<V>): V {
    this.#assertUsable();
    const length = this.byteLength / (view.BYTES_PER_ELEMENT ?? 1);
    if (!Number.isInteger(length)) {
      throw new RangeError(
        `as: ${this.byteLength} bytes are not a multiple of ${view.BYTES_PER_ELEMENT}, the element size of ${view.name}`,
      );
    }
    return new view(this.#bytes.buffer, this.#bytes.byteOffset, length);
  }

  /**
   * The memory as a region for calls, when it was taken with `access`. It is disposed with the memory.
   *
   * @throws RpcError `failed_precondition` without `access`, and after `dispose`.
   */
  get region(): Region<A> {
    this.#assertUsable();
    if (this.#region !== undefined) return this.#region;
    throw new RpcError({
      code: "failed_precondition",
      message: "the memory has no region: take it with the option `access`",
    });
  }

  /** Whether `dispose` was called. */
  get disposed(): boolean {
    return this.#disposed;
  }

  /**
   * Returns the memory to the pool: at once, or when the last transfer or region that uses it is done. Safe to call
   * twice.
   */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.#region?.dispose();
    this.#onDisposed();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #assertUsable(): void {
    if (!this.#disposed) return;
    throw new RpcError({
      code: "failed_precondition",
      message: "the memory has been disposed; it belongs to the pool again",
    });
  }
}

/** Smaller slabs do not get their own pages: that would cost more than it gains. */
const minMappedBytes = 64 * 1024;
/** From this length on, slabs use huge pages: one entry of the TLB (and of a NIC's table) instead of 512. */
const hugePageBytes = 2 * 1024 * 1024;
/** The longest buffer that the addon allocates. */
const maxMappedBytes = 2 ** 32;

/**
 * Allocates zeroed memory for the pool. Large slabs get their own pages from the addon. Small ones come from
 * JavaScript, and so do all slabs without the addon. Slabs cannot be transferred to another thread.
 *
 * @throws RpcError `resource_exhausted` when the system is out of memory.
 */
export function allocateSlab(bytes: number, what = "pool.take"): ArrayBuffer {
  const memory =
    bytes < minMappedBytes || bytes > maxMappedBytes ? ordinary(bytes, what) : mapped(bytes, what);
  forbidTransfer(memory);
  return memory;
}

/** Returns an unused slab to the system. Small slabs wait for the garbage collector. */
export function releaseSlab(memory: ArrayBuffer): void {
  if (memory.byteLength >= minMappedBytes) addonIfThere()?.release(memory);
}

function mapped(bytes: number, what: string): ArrayBuffer {
  const addon = addonIfThere();
  if (addon === undefined) return ordinary(bytes, what);
  const memory = addon.allocate(bytes, bytes >= hugePageBytes);
  if (!(memory instanceof ArrayBuffer)) throw noRoom(bytes, what);
  noteOfAddon(memory);
  return memory;
}

function ordinary(bytes: number, what: string): ArrayBuffer {
  try {
    return new ArrayBuffer(bytes);
  } catch {
    throw noRoom(bytes, what);
  }
}

function noRoom(bytes: number, what: string): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `${what}: the system has no memory for a slab of ${bytes} bytes`,
  });
}

/**
 * Memory of one user that returns to the system when it is disposed. Its pages are zeros, and take memory at the first
 * access. A plain `ArrayBuffer` of some megabytes is filled with zeros when it is made.
 */
export class OwnMemory {
  readonly bytes: Uint8Array;
  readonly #memory: ArrayBuffer;
  #disposed = false;

  /** @throws RpcError `resource_exhausted` that begins with `what`. */
  constructor(bytes: number, what: string) {
    this.#memory = allocateSlab(bytes, what);
    this.bytes = new Uint8Array(this.#memory);
    watchUsers(this.#memory, () => this.#releaseIfUnused());
  }

  /** Its user is done. The memory is returned when no transfer and no region uses it; its views then have length 0. */
  dispose(): void {
    this.#disposed = true;
    this.#releaseIfUnused();
  }

  #releaseIfUnused(): void {
    if (this.#disposed && usersOf(this.#memory) === 0) releaseSlab(this.#memory);
  }
}

const pageBytes = 4096;

/**
 * Length of the slab for `bytes` bytes. Sizes are powers of two from a page on, with three more sizes between each two.
 * That wastes less than a fifth, where powers of two alone waste up to half. Always whole pages, and whole huge pages
 * above one huge page.
 */
export function slabBytesFor(bytes: number): number {
  const power = 2 ** Math.floor(Math.log2(bytes));
  const step = Math.max(power / 4, bytes > hugePageBytes ? hugePageBytes : pageBytes);
  return Math.ceil(bytes / step) * step;
}
