import type { Clock } from "../call/clock.ts";
import { closedError } from "../errors/closed.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { assertMemoryKind, type MemoryKind } from "./device-memory.ts";
import { callerOf } from "./leak-watch.ts";
import { usersOf, watchUsers } from "./memory-users.ts";
import { PooledMemory } from "./pooled-memory.ts";
import type { Region } from "./region.ts";
import type { Access } from "./region-kind.ts";
import { slabBytesFor } from "./size-class.ts";
import { allocateSlab, releaseSlab } from "./slab-memory.ts";

/** What `pool.take` takes. */
export interface TakeOptions<A extends Access = never> {
  /** Whether the memory shall be zeros. Default true. If not, it may hold what an earlier taker left in it. */
  readonly zero?: boolean;
  /** Makes a region of it, for `memory.region`, with this right of the other side. Default: none. */
  readonly access?: A;
  /** Where it shall lie. Default, and all there is now: `"host"`. */
  readonly memory?: MemoryKind;
}

/** A pool at one moment, and what it has done. */
export interface PoolStats {
  /** Bytes of slabs that are taken, or given back and still in use by a transfer or a region. */
  readonly takenBytes: number;
  /** Bytes of slabs that lie ready. */
  readonly freeBytes: number;
  /** How many slabs there are, taken and free. */
  readonly slabs: number;
  /** Takes that a free slab served, and those for which one was made. */
  readonly hits: number;
  readonly misses: number;
  /** Free slabs given back to the system, idle for long or in the way of others. */
  readonly trims: number;
}

/** Exposes memory in its engine's name; `at` says where it was taken. */
export type Exposer = <A extends Access>(bytes: Uint8Array, access: A, at: string) => Region<A>;

/** How long a free slab is kept for the next taker. */
const idleMs = 5000;

const knownOptions = ["zero", "access", "memory"];

/**
 * An engine's pool of memory for bulk data, `engine.pool`: whoever moves much takes its buffers here instead of making new ones, because fresh
 * memory costs its first touch, page by page, and its registration. Each slab serves one taker at a time, so that a taker's views can reach
 * nobody else's bytes.
 */
export class Pool {
  readonly #clock: Clock;
  readonly #maxBytes: number;
  readonly #expose: Exposer;
  /** By length; the one used last at the end of each list. */
  readonly #free = new Map<number, Slab[]>();
  /** Finds slabs that a taker has forgotten: neither it, nor any view of the slab, nor a transfer or region has it any more. */
  readonly #forgotten = new FinalizationRegistry((taking: Taking) => this.#onForgotten(taking));
  /** Places in the code: one warning for each is enough. */
  readonly #warnedOf = new Set<string>();
  #takenBytes = 0;
  #freeBytes = 0;
  #slabs = 0;
  #hits = 0;
  #misses = 0;
  #trims = 0;
  #stopTrimming: (() => void) | undefined;
  #closed = false;

  /** @internal Engines have one. */
  constructor(clock: Clock, maxBytes: number, expose: Exposer) {
    this.#clock = clock;
    this.#maxBytes = maxBytes;
    this.#expose = expose;
  }

  /**
   * Memory of `bytes` bytes, all zero unless `zero` is false. Dispose it when it is no longer needed (`using` does); what is forgotten instead gives a
   * `CinnabarLeakWarning` when the garbage collector finds it.
   *
   * @throws TypeError or RangeError for arguments that will not do; RpcError `resource_exhausted` when the pool has reached `limits.maxPoolBytes`
   * or the system its own, `unimplemented` for memory of devices, `unavailable` when the engine is closed.
   */
  take<A extends Access = never>(bytes: number, options: TakeOptions<A> = {}): PooledMemory<A> {
    const { zero = true, access, memory } = this.#checked(bytes, options);
    assertMemoryKind("pool.take", memory);
    if (this.#closed) throw closedError("the engine");
    const slab = this.#slabOf(slabBytesFor(bytes), zero, bytes);
    const { taking } = slab;
    taking.state = "taken";
    taking.bytes = bytes;
    taking.at = callerOf(this.take);
    this.#takenBytes += taking.slabBytes;
    const view = new Uint8Array(slab.memory, 0, bytes);
    const onDisposed = () => this.#onDisposed(slab);
    if (access === undefined) return new PooledMemory<A>(view, { onDisposed });
    try {
      return new PooledMemory<A>(view, { onDisposed }, this.#expose(view, access, taking.at));
    } catch (error) {
      onDisposed();
      throw error;
    }
  }

  /** Gives all free slabs back to the system now. */
  trim(): void {
    for (const slabs of this.#free.values()) while (slabs.length > 0) this.#drop(slabs.pop() as Slab);
    this.#stopTrimming?.();
    this.#stopTrimming = undefined;
  }

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

  /** @internal What is taken stays its takers', and goes to the system when they are done. */
  close(): void {
    this.#closed = true;
    this.trim();
  }

  #checked<A extends Access>(bytes: number, options: TakeOptions<A>): TakeOptions<A> {
    if (!Number.isSafeInteger(bytes) || bytes < 1)
      throw new RangeError(`pool.take: bytes must be an integer of at least 1, it is ${bytes}`);
    if (typeof options !== "object" || options === null)
      throw new TypeError("pool.take: options must be an object");
    for (const name of Object.keys(options)) {
      if (!knownOptions.includes(name))
        throw new TypeError(`pool.take: unknown option "${name}"; known are ${knownOptions.join(", ")}`);
    }
    if (options.zero !== undefined && typeof options.zero !== "boolean")
      throw new TypeError(`pool.take: zero must be true or false, it is ${String(options.zero)}`);
    return options;
  }

  #slabOf(slabBytes: number, zero: boolean, asked: number): Slab {
    const slab = this.#free.get(slabBytes)?.pop();
    if (slab === undefined) {
      this.#misses++;
      return this.#make(slabBytes, asked);
    }
    this.#hits++;
    this.#freeBytes -= slabBytes;
    // All of it, not only what is asked for: the view's buffer shows the rest.
    if (zero) new Uint8Array(slab.memory).fill(0);
    return slab;
  }

  #make(slabBytes: number, asked: number): Slab {
    while (this.#takenBytes + this.#freeBytes + slabBytes > this.#maxBytes && this.#freeBytes > 0)
      this.#drop(this.#oldest());
    if (this.#takenBytes + slabBytes > this.#maxBytes) {
      throw new RpcError({
        code: "resource_exhausted",
        message:
          `pool.take: ${asked} bytes need a slab of ${slabBytes}, but ${this.#takenBytes} are taken and ` +
          `limits.maxPoolBytes is ${this.#maxBytes}`,
        origin: "local",
      });
    }
    const memory = allocateSlab(slabBytes);
    const taking: Taking = { slabBytes, state: "free", bytes: 0, at: "" };
    const slab: Slab = { memory, taking, freeSinceMs: 0 };
    this.#slabs++;
    // The entries hang on the buffer, and none of them keeps it alive.
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
    slab.freeSinceMs = this.#clock.now();
    const slabs = this.#free.get(taking.slabBytes);
    if (slabs === undefined) this.#free.set(taking.slabBytes, [slab]);
    else slabs.push(slab);
    this.#stopTrimming ??= this.#clock.timer(idleMs, () => this.#trimIdle(), true);
  }

  /** The slab itself is gone with its last view; what is left of it are its numbers. */
  #onForgotten(taking: Taking): void {
    if (taking.state === "free") return;
    this.#takenBytes -= taking.slabBytes;
    this.#slabs--;
    if (taking.state === "leaving" || this.#warnedOf.has(taking.at)) return;
    this.#warnedOf.add(taking.at);
    process.emitWarning(
      `pooled memory of ${taking.bytes} bytes was forgotten without being disposed; it was taken ${taking.at}. ` +
        "Dispose it when it is no longer needed, or let `using` do so.",
      "CinnabarLeakWarning",
    );
  }

  /** Out of the free list, or never in it, and counted as free. */
  #drop({ memory, taking }: Slab): void {
    this.#freeBytes -= taking.slabBytes;
    this.#slabs--;
    this.#trims++;
    releaseSlab(memory);
  }

  /** The free slab used least lately. There is one. */
  #oldest(): Slab {
    let lists: Slab[] = [];
    for (const slabs of this.#free.values()) {
      const [first] = slabs;
      if (first !== undefined && (lists[0] === undefined || first.freeSinceMs < lists[0].freeSinceMs))
        lists = slabs;
    }
    return lists.shift() as Slab;
  }

  #trimIdle(): void {
    this.#stopTrimming = undefined;
    const nowMs = this.#clock.now();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const slabs of this.#free.values()) {
      const kept = slabs.findIndex(({ freeSinceMs }) => nowMs - freeSinceMs < idleMs);
      for (const slab of slabs.splice(0, kept < 0 ? slabs.length : kept)) this.#drop(slab);
      if (slabs[0] !== undefined) nextMs = Math.min(nextMs, slabs[0].freeSinceMs + idleMs);
    }
    if (this.#freeBytes > 0)
      this.#stopTrimming = this.#clock.timer(Math.max(1, nextMs - nowMs), () => this.#trimIdle(), true);
  }
}

/** One buffer, for one taker at a time. */
interface Slab {
  readonly memory: ArrayBuffer;
  readonly taking: Taking;
  freeSinceMs: number;
}

/** What is known of a slab without its buffer. */
interface Taking {
  readonly slabBytes: number;
  /** leaving: disposed, and still used. */
  state: "free" | "taken" | "leaving";
  /** What was asked for. */
  bytes: number;
  /** Where it was taken, for people. */
  at: string;
}
