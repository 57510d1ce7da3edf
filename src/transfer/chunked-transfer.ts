import type { ChunkListener } from "./control/sealed-bulk.ts";

/**
 * One transfer, cut into chunks. A few chunks move at a time. Subclasses cut and move the chunks: one-sided
 * (`scheduler.ts`), or sealed (`sealed/mover.ts`).
 */
export abstract class ChunkedTransfer<F = unknown> {
  protected readonly listener: ChunkListener<F>;
  readonly #turns: TransferTurns;
  #failure: F | 0 = 0;
  /** Chunks in flight. Only this class writes it. */
  inFlight = 0;
  /** Whether it waits for its turn. */
  #waits = false;
  #ended = false;

  constructor(turns: TransferTurns, listener: ChunkListener<F>) {
    this.#turns = turns;
    this.listener = listener;
  }

  /** Bytes that are not posted yet. */
  abstract get remaining(): number;
  /** Chunks of this transfer that may be in flight at once. */
  abstract get maxInFlight(): number;
  /** The most bytes of the next chunk; 0 while there is no room for one. */
  abstract get room(): number;
  /** Moves the next chunk of at most `maxBytes` bytes. Calls `onChunkEnded` when it has ended, perhaps at once. */
  protected abstract move(maxBytes: number): void;

  /** True when no further chunk may be posted: a chunk failed, or the rest is not wanted. */
  get isStopped(): boolean {
    return this.#failure !== 0 || this.listener.stopped();
  }

  /** Whether it would post a chunk now. */
  get wants(): boolean {
    return !this.#ended && this.remaining > 0 && this.inFlight < this.maxInFlight && !this.isStopped;
  }

  /** Takes its turn among the others. Its first chunks are posted before this returns, if there is room. */
  start(): void {
    this.#waits = true;
    this.#turns.add(this);
  }

  /** Stops the transfer. It ends now if no chunk is in flight, else with the last of them. */
  stop(): void {
    if (this.inFlight === 0 && !this.wants) this.#end();
  }

  /** Posts the next chunk, of at most `maxBytes` bytes. */
  post(maxBytes: number): void {
    this.inFlight++;
    this.move(maxBytes);
  }

  /** The transfer leaves the turns, because it has no chunk to post. A chunk that ends may bring it back. */
  rest(): void {
    this.#waits = false;
    if (this.inFlight === 0) this.#end();
  }

  protected onChunkEnded(failure: F | 0 = 0): void {
    if (this.#failure === 0) this.#failure = failure;
    this.inFlight--;
    if (!this.wants) {
      if (this.inFlight === 0) this.#end();
    } else if (!this.#waits) return this.start();
    // The room of its chunk is free for other transfers.
    this.#turns.go();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.onEnded();
    this.listener.onEnded(this.#failure);
  }

  /** No chunk is in flight, and no chunk follows. */
  protected onEnded(): void {}
}

/** Transfers that share room for chunks take turns: each posts one chunk, and then waits after the others. */
export class TransferTurns {
  /** Transfers that have chunks to post, the next one first. */
  readonly #waiting: ChunkedTransfer[] = [];
  #posting = false;

  /** Whether no transfer waits. */
  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  /** @internal Called by `ChunkedTransfer.start`. */
  add(transfer: ChunkedTransfer): void {
    this.#waiting.push(transfer);
    this.go();
  }

  /**
   * Posts chunks while there is room. A chunk that ends while it is posted calls this again; then the outer loop goes
   * on.
   */
  go(): void {
    if (this.#posting) return;
    this.#posting = true;
    for (let transfer = this.#waiting[0]; transfer !== undefined; transfer = this.#waiting[0]) {
      if (!transfer.wants) {
        this.#waiting.shift();
        transfer.rest();
        continue;
      }
      const maxBytes = transfer.room;
      if (maxBytes === 0) break;
      this.#waiting.shift();
      transfer.post(maxBytes);
      if (transfer.wants) this.#waiting.push(transfer);
      else transfer.rest();
    }
    this.#posting = false;
  }
}
