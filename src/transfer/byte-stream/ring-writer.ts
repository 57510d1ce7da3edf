import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { fail } from "../control/control-method.ts";
import { Bell, chunkOffset, givenUp, type RingShape, streamError } from "./ring.ts";

/** The reader's request for a chunk that is not there yet. */
interface Asked {
  readonly call: IncomingCall;
  readonly seq: number;
}

/**
 * The caller's side of a stream that the handler reads: fills the ring in its own memory, and answers `next` when the
 * requested chunk is there. A chunk that is not full yet is handed out when the reader has nothing else to do.
 */
export class RingWriter {
  readonly #shape: RingShape;
  readonly #ring: Uint8Array;
  /** The chunk being filled, and how far. All chunks before it are sealed. */
  #chunk = 0;
  #filled = 0;
  /** How many chunks the reader has given back. */
  #taken = 0;
  /** The next chunk that the reader may request. */
  #expected = 0;
  /**
   * Lengths of the chunks that the reader may still request: a ring full, and an empty last one, which takes no room in
   * the ring.
   */
  readonly #sealed: number[] = [];
  /** Number of the last chunk, once it is known. */
  #last = -1;
  #asked: Asked | undefined;
  #error: RpcError | undefined;
  #complete = false;
  readonly #changed = new Bell();

  constructor(shape: RingShape, ring: Uint8Array) {
    this.#shape = shape;
    this.#ring = ring;
  }

  /** Whether the reader has confirmed that it has everything. */
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

  /** Ends the stream with an error, at both sides. */
  fail(error: RpcError): void {
    if (this.#complete) return;
    this.#error ??= error;
    this.#answer();
    this.#changed.ring();
  }

  /** The reader requests chunk `seq`, and has used all chunks below `taken`. */
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
      return fail(call, "invalid_argument", `next: chunk ${seq} is out of turn`);
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
    // The reader waits for the chunk being filled: it gets what is there.
    if (seq === this.#chunk && this.#filled > 0) return this.#seal();
    if (seq >= this.#chunk) return;
    this.#asked = undefined;
    this.#expected++;
    call.settle({ value: [this.#sealed[seq % (this.#shape.chunks + 1)], seq === this.#last] });
  }

  /** The request for a chunk after the last one confirms that the reader has the last one. */
  #finish({ call, seq }: Asked): void {
    this.#asked = undefined;
    this.#complete = this.#taken === seq;
    if (this.#complete) call.settle({ value: [0, true] });
    else this.fail(streamError("internal", "the reader ended the stream before it had read everything"));
    this.#changed.ring();
  }
}
