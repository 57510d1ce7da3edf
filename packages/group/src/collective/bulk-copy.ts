import {
  type CallContext,
  type PooledMemory,
  type Region,
  type RemoteRegion,
  RpcError,
} from "cinnabar/standard";

/** A parent in the tree that has the region of a collective, or is still copying it. */
export interface BulkSource {
  /** The request that brought the parent's region, and with it the right to read that. */
  readonly call: Pick<CallContext, "get" | "signal">;
  /** All of the parent's region. */
  readonly region: RemoteRegion<"read">;
  /** How many bytes from the first on the parent has, whenever it has more. */
  readonly offers: AsyncIterable<number>;
}

/** How much is pulled at once. A node offers a piece to its children when it has all of it. */
export const pieceBytes = 2 * 1024 * 1024;
/** How often a piece with a different checksum is pulled. */
const mostTries = 3;

/** A parent, and what is known of it. */
interface Source extends BulkSource {
  offeredBytes: number;
  isLost: boolean;
}

/**
 * The region of a collective, as one node has it. The first `readyBytes` bytes are here. The node pulls the rest from
 * its parent, piece by piece, and offers what it has to its children.
 *
 * A node may get several parents: when one fails, the parent's parent takes its place. The copy then goes on from there,
 * behind the bytes that it has.
 */
export class BulkCopy {
  /** What children are granted. The offers say how much of it they may read. */
  readonly region: Region<"read">;
  /** Undefined for the caller's own region, which is all there. */
  readonly #memory: PooledMemory<"read"> | undefined;
  readonly #checksum: "crc32c" | undefined;
  /** The newest is the last. */
  readonly #sources: Source[] = [];
  /** The piece that is on its way. */
  #current: { readonly source: Source; readonly end: AbortController } | undefined;
  #readyBytes: number;
  #failure: { readonly error: unknown } | undefined;
  #isReleased = false;
  #changed!: Promise<void>;
  #tellChanged!: () => void;

  /** The region of the caller. It stays the caller's. */
  static ofCaller(region: Region<"read">): BulkCopy {
    return new BulkCopy(region, undefined, undefined);
  }

  /** Zeroed memory that the copy fills, and that it gives back when it is released. */
  static into(memory: PooledMemory<"read">, checksum: "crc32c" | undefined): BulkCopy {
    const copy = new BulkCopy(memory.region, memory, checksum);
    void copy.#pullAll();
    return copy;
  }

  private constructor(
    region: Region<"read">,
    memory: PooledMemory<"read"> | undefined,
    checksum: "crc32c" | undefined,
  ) {
    this.region = region;
    this.#memory = memory;
    this.#checksum = checksum;
    this.#readyBytes = memory === undefined ? region.byteLength : 0;
    this.#awaitChange();
  }

  /** The memory; of the caller's region, where that is contiguous. */
  get bytes(): Uint8Array {
    return this.region.bytes;
  }

  get byteLength(): number {
    return this.region.byteLength;
  }

  /** How many bytes from the first on are here. */
  get readyBytes(): number {
    return this.#readyBytes;
  }

  /** How many bytes are here, each time that there are more. It ends when all are, or the copy has failed. */
  async *offers(): AsyncGenerator<number, void> {
    let told = 0;
    while (told < this.byteLength && !this.#hasEnded) {
      if (this.#readyBytes === told) await this.#changed;
      if (this.#readyBytes === told) continue;
      told = this.#readyBytes;
      yield told;
    }
  }

  /** Resolves when all bytes are here. Rejects with why they will never be. */
  async whole(): Promise<void> {
    while (this.#readyBytes < this.byteLength) {
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#isReleased) throw new RpcError({ code: "cancelled", message: "the collective has ended" });
      await this.#changed;
    }
  }

  /** Another parent has it. The copy goes on from there as soon as that has more than is here. */
  follow(parent: BulkSource): void {
    if (this.#hasEnded || this.#readyBytes === this.byteLength) return;
    const source: Source = { ...parent, offeredBytes: 0, isLost: false };
    this.#sources.push(source);
    void this.#listen(source);
  }

  /** It is not needed any more. Memory goes back to the pool when no transfer uses it. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#current?.end.abort();
    this.#tell();
    this.#memory?.dispose();
  }

  get #hasEnded(): boolean {
    return this.#isReleased || this.#failure !== undefined;
  }

  /** Keeps what the parent says that it has. */
  async #listen(source: Source): Promise<void> {
    try {
      for await (const bytes of source.offers) {
        source.offeredBytes = Math.min(bytes, this.byteLength);
        const current = this.#current?.source;
        // A former parent may be stopped, and its piece never come: what the new one has is not waited for.
        if (current !== undefined && this.#sources.indexOf(current) < this.#sources.indexOf(source))
          this.#current?.end.abort();
        this.#tell();
        if (this.#hasEnded) return;
      }
    } catch {
      // The call of that parent has ended, which its signal says, too.
    }
  }

  async #pullAll(): Promise<void> {
    let tries = 0;
    while (this.#readyBytes < this.byteLength && !this.#hasEnded) {
      const source = this.#sources.findLast(
        ({ offeredBytes, isLost }) => !isLost && offeredBytes > this.#readyBytes,
      );
      if (source === undefined) {
        await this.#changed;
        continue;
      }
      const end = new AbortController();
      this.#current = { source, end };
      try {
        await this.#pullPiece(source, end.signal);
        tries = 0;
      } catch (error) {
        if (end.signal.aborted) continue;
        const isLost = source.call.signal.aborted || codeOf(error) === "unavailable";
        if (isLost) source.isLost = true;
        else if (codeOf(error) !== "data_loss" || ++tries === mostTries) this.#fail(error);
      } finally {
        this.#current = undefined;
      }
    }
  }

  async #pullPiece({ call, region, offeredBytes }: Source, signal: AbortSignal): Promise<void> {
    const offset = this.#readyBytes;
    const length = Math.min(pieceBytes, offeredBytes - offset);
    const checksum = this.#checksum;
    await call.get(region, this.bytes, { offset, localOffset: offset, length, signal, checksum });
    this.#readyBytes = offset + length;
    this.#tell();
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.#tell();
  }

  #tell(): void {
    this.#tellChanged();
    this.#awaitChange();
  }

  #awaitChange(): void {
    this.#changed = new Promise((resolve) => {
      this.#tellChanged = resolve;
    });
  }
}

const codeOf = (error: unknown): unknown => (error instanceof RpcError ? error.code : undefined);
