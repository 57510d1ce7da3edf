import type { IncomingCall } from "../call/incoming-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import { fail } from "./builtin-method.ts";
import { Bell, chunkOffset, type RingShape } from "./ring.ts";
import { givenUp, streamError } from "./stream-error.ts";

/** The reader's question for a chunk, while there is none yet. */
interface Asked {
  readonly call: IncomingCall;
  readonly seq: number;
}

/**
 * The writing side of a stream whose reader is the handler: fills the ring in its own memory, and answers `next` when the chunk asked for is there.
 * What has been written of a chunk is handed out before it is full when the reader has nothing else to do.
 */
export class RingWriter {
  readonly #shape: RingShape;
  readonly #ring: Uint8Array;
  /** The chunk being filled, and how far. All below it are sealed. */
  #chunk = 0;
  #filled = 0;
  /** How many chunks the reader has given back. */
  #taken = 0;
  /** The next chunk that the reader may ask for. */
  #expected = 0;
  /** The lengths of those that the reader may still ask for: a ring full, and an empty last one, which takes no room in the ring. */
  readonly #sealed: number[] = [];
  /** The last chunk's number, once it is known. */
  #last = -1;
  #asked: Asked | undefined;
  #error: RpcError | undefined;
  #complete = false;
  readonly #changed = new Bell();

  constructor(shape: RingShape, ring: Uint8Array) {
    this.#shape = shape;
    this.#ring = ring;
  }

  /** The reader has confirmed that it has everything. */
  get complete(): boolean {
    return this.#complete;
  }

  async write(bytes: Uint8Array): Promise<void> {
    const { chunkBytes, chunks } = this.#shape;
    for (let at = 0; at < bytes.byteLength; ) {
      if (this.#error !== undefined) throw this.#error;
      if (this.#chunk - this.#taken >= chunks) {
        await this.#changed.rung();
        continue;
      }
      const count = Math.min(chunkBytes - this.#filled, bytes.byteLength - at);
      const to = chunkOffset(this.#shape, this.#chunk) + this.#filled;
      this.#ring.set(bytes.subarray(at, at + count), to);
      this.#filled += count;
      at += count;
      if (this.#filled === chunkBytes) this.#seal();
    }
    this.#answer();
  }

  /** Resolves when the reader has everything. */
  async close(): Promise<void> {
    if (this.#error === undefined) {
      this.#last = this.#chunk;
      this.#seal();
    }
    while (!this.#complete) {
      if (this.#error !== undefined) throw this.#error;
      await this.#changed.rung();
    }
  }

  abort(reason: unknown): void {
    this.fail(givenUp("the writer", reason));
  }

  /** Ends the stream with an error, for both sides. */
  fail(error: RpcError): void {
    if (this.#complete) return;
    this.#error ??= error;
    this.#answer();
    this.#changed.ring();
  }

  /** The reader wants chunk `seq`, and has used all below `taken`. */
  onNext(call: IncomingCall, seq: number, taken: number): void {
    const pending = this.#asked?.call.open === true;
    if (
      pending ||
      seq !== this.#expected ||
      taken < this.#taken ||
      taken > seq ||
      taken > this.#chunk ||
      seq >= taken + this.#shape.chunks
    ) {
      return fail(call, "invalid_argument", `next: chunk ${seq} cannot be asked for now`);
    }
    this.#taken = taken;
    this.#asked = { call, seq };
    this.#answer();
    this.#changed.ring();
  }

  #seal(): void {
    this.#sealed[this.#chunk % (this.#shape.chunks + 1)] = this.#filled;
    this.#chunk++;
    this.#filled = 0;
    this.#answer();
  }

  #answer(): void {
    const asked = this.#asked;
    if (asked === undefined) return;
    const { call, seq } = asked;
    if (this.#error !== undefined) {
      this.#asked = undefined;
      call.settle({ error: this.#error });
      return;
    }
    if (this.#last >= 0 && seq > this.#last) return this.#finish(asked);
    // The reader waits for what is being filled: it gets what there is of it.
    if (seq === this.#chunk && this.#filled > 0) return this.#seal();
    if (seq >= this.#chunk) return;
    this.#asked = undefined;
    this.#expected++;
    call.settle({ value: [this.#sealed[seq % (this.#shape.chunks + 1)], seq === this.#last] });
  }

  /** The question for what comes after the last chunk is the reader's word that it has that one. */
  #finish({ call, seq }: Asked): void {
    this.#asked = undefined;
    this.#complete = this.#taken === seq;
    if (this.#complete) call.settle({ value: [0, true] });
    else this.fail(streamError("internal", "the reader ended the stream before it had everything"));
    this.#changed.ring();
  }
}
