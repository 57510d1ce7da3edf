import { ByteBudget, type ByteShare } from "../base/flow/byte-budget.ts";
import { realClock } from "../base/time/clock.ts";
import { access, type Port, type RegisteredMemory } from "../fabric/port.ts";
import { IdleSlabs } from "../memory/idle-slabs.ts";
import { allocateSlab, releaseSlab } from "../memory/pool.ts";

/**
 * The longest piece. Sealing one takes 100 µs, or 250 µs with OpenSSL 3.0: others can wait for such a part of a turn.
 * With shorter pieces, messages, reads and turns take more of the processors than the ciphers.
 */
export const pieceBytes = 1024 * 1024;

const piecesPerSlab = 2;
const slabBytes = piecesPerSlab * pieceBytes;
/** A pool of pieces has a sixty-fourth of an engine's memory budget, at most this. */
const maxPoolBytes = 32 * 1024 * 1024;
/** How long an unused slab is kept, in milliseconds: the first write to a new slab is slow. */
const idleMs = 500;

/**
 * Registered memory through which sealed bulk travels. Peers may read `readable`, which only holds ciphertext. `own` is
 * private: pieces are pulled into it and opened there, because no peer can write to it meanwhile.
 */
export class Staging {
  readonly readable: PiecePool;
  readonly own: PiecePool;

  private constructor(port: Port, maxBytes: number) {
    this.readable = new PiecePool(port, access.remoteRead, maxBytes);
    this.own = new PiecePool(port, access.local, maxBytes);
  }

  /**
   * The staging memory of a port. The first call creates it, without any memory, for an engine with that memory budget.
   */
  static of(port: Port, memoryBytes = Number.POSITIVE_INFINITY): Staging {
    let staging = stagings.get(port);
    if (staging === undefined) {
      staging = new Staging(port, stagingPoolBytes(memoryBytes));
      stagings.set(port, staging);
    }
    return staging;
  }
}

const stagings = new WeakMap<Port, Staging>();

/** Bytes of one of the two pools of a port, in an engine with that memory budget. One slab at least. */
export function stagingPoolBytes(memoryBytes: number): number {
  const slabs = Math.floor(Math.min(maxPoolBytes, memoryBytes / 64) / slabBytes);
  return Math.max(1, slabs) * slabBytes;
}

/** Copies `source` into the views, which have as many bytes. */
export function scatter(source: Uint8Array, views: readonly Uint8Array[]): void {
  let at = 0;
  for (const view of views) {
    view.set(source.subarray(at, at + view.byteLength));
    at += view.byteLength;
  }
}

/** Staging memory for one piece. Its taker gives it back once. */
export class StagingPiece {
  /** `pieceBytes` long. */
  readonly memory: Uint8Array;
  readonly registered: RegisteredMemory;
  /** Offset of the first byte in the registration. */
  readonly offset: number;
  readonly #slab: StagingSlab;
  /** The share of the peer that uses it. */
  share: ByteShare | undefined;

  constructor(slab: StagingSlab, memory: Uint8Array, offset: number) {
    this.#slab = slab;
    this.memory = memory;
    this.registered = slab.registered;
    this.offset = offset;
  }

  giveBack(): void {
    this.share?.give(pieceBytes);
    this.share = undefined;
    this.#slab.give(this);
  }
}

/** A transfer that waits for a piece. */
interface Taker {
  readonly share: ByteShare;
  readonly resolve: (piece: StagingPiece) => void;
}

/**
 * Pieces of one kind. Slabs of a few pieces are registered on demand, and withdrawn when they are unused. Peers share
 * the pieces: each takes no more than it leaves for the others.
 */
export class PiecePool {
  readonly #port: Port;
  readonly #rights: number;
  readonly #slabs = new Set<StagingSlab>();
  readonly #budget: ByteBudget;
  readonly #shares = new WeakMap<object, ByteShare>();
  readonly #waiting: Taker[] = [];
  readonly #idle = new IdleSlabs<StagingSlab>(realClock, idleMs, (slab) => this.#drop(slab));
  #free = 0;

  /** `maxBytes`: a multiple of the length of a slab. */
  constructor(port: Port, rights: number, maxBytes = maxPoolBytes) {
    this.#port = port;
    this.#rights = rights;
    this.#budget = new ByteBudget(maxBytes);
  }

  /** Bytes that are registered now. */
  get bytes(): number {
    return this.#slabs.size * slabBytes;
  }

  /** Pieces that are in use. */
  get taken(): number {
    return this.#slabs.size * piecesPerSlab - this.#free;
  }

  /**
   * A piece for a peer with this account: now, or in turn when pieces are given back. Rejects with an RpcError of the
   * provider.
   */
  async take(account: object): Promise<StagingPiece> {
    const share = this.#shareOf(account);
    if (!share.take(pieceBytes)) return new Promise((resolve) => this.#waiting.push({ share, resolve }));
    try {
      return this.#pieceFor(share);
    } catch (error) {
      share.give(pieceBytes);
      throw error;
    }
  }

  #shareOf(account: object): ByteShare {
    let share = this.#shares.get(account);
    if (share === undefined) {
      share = this.#budget.share();
      this.#shares.set(account, share);
    }
    return share;
  }

  #pieceFor(share: ByteShare): StagingPiece {
    if (this.#free === 0) {
      this.#slabs.add(new StagingSlab(this.#port, this.#rights, this));
      this.#free += piecesPerSlab;
    }
    for (const slab of this.#slabs) {
      const piece = slab.take();
      if (piece === undefined) continue;
      this.#idle.delete(slab);
      this.#free--;
      piece.share = share;
      return piece;
    }
    throw new Error("a piece is counted as free and is not");
  }

  /** @internal A piece has come back to its slab. */
  onFree(slab: StagingSlab): void {
    this.#free++;
    // Transfers of peers that have enough already are passed over.
    const next = this.#waiting.findIndex(({ share }) => share.take(pieceBytes));
    if (next >= 0) {
      const [taker] = this.#waiting.splice(next, 1) as [Taker];
      return taker.resolve(this.#pieceFor(taker.share));
    }
    if (slab.isFree) this.#idle.add(slab);
  }

  #drop(slab: StagingSlab): void {
    this.#free -= piecesPerSlab;
    this.#slabs.delete(slab);
    slab.release(this.#port);
  }
}

/** Pieces that share a registration. */
class StagingSlab {
  readonly registered: RegisteredMemory;
  readonly #pool: PiecePool;
  readonly #free: StagingPiece[] = [];
  readonly #memory = allocateSlab(slabBytes);

  constructor(port: Port, rights: number, pool: PiecePool) {
    const memory = this.#memory;
    this.registered = port.register(memory, 0, memory.byteLength, rights);
    this.#pool = pool;
    for (let at = 0; at < memory.byteLength; at += pieceBytes)
      this.#free.push(new StagingPiece(this, new Uint8Array(memory, at, pieceBytes), at));
  }

  get isFree(): boolean {
    return this.#free.length === piecesPerSlab;
  }

  take(): StagingPiece | undefined {
    return this.#free.pop();
  }

  give(piece: StagingPiece): void {
    this.#free.push(piece);
    this.#pool.onFree(this);
  }

  /** Returns the memory when no access of a peer can be in progress. */
  release(port: Port): void {
    port.deregister(this.registered.index, () => releaseSlab(this.#memory));
  }
}
