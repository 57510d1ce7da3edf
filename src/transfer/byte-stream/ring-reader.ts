import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { fail } from "../control/control-method.ts";
import type { ChunkSource, ReadableControl } from "./chunk-readable.ts";
import { Bell, chunkOffset, givenUp, type RingShape } from "./ring.ts";

/** The writer's word that a chunk is there. It stays unanswered while the writer must wait. */
interface Pushed {
  readonly call: IncomingCall;
  readonly seq: number;
  readonly last: boolean;
}

/**
 * The caller's side of a stream that the handler writes: takes chunks out of the ring in its own memory. It answers a
 * `push` when there is room for the next chunk, and the last one when everything was read. The answer is the number of
 * chunks used.
 */
export class RingReader implements ChunkSource {
  readonly #shape: RingShape;
  readonly #ring: Uint8Array;
  readonly #control: ReadableControl;
  readonly #filled: number[] = [];
  /** How many chunks have come, and how many were used up. */
  #pushed = 0;
  #taken = 0;
  /** Bytes used of the chunk being read. */
  #used = 0;
  #last = -1;
  #waiting: Pushed | undefined;
  #error: RpcError | undefined;
  readonly #changed = new Bell();

  constructor(shape: RingShape, ring: Uint8Array, control: ReadableControl) {
    this.#shape = shape;
    this.#ring = ring;
    this.#control = control;
  }

  /** Whether the last chunk was read. */
  get complete(): boolean {
    return this.#last >= 0 && this.#taken > this.#last;
  }

  async peek(): Promise<Uint8Array | undefined> {
    for (;;) {
      if (this.complete) return undefined;
      if (this.#error !== undefined) throw this.#error;
      if (this.#taken < this.#pushed) {
        const offset = chunkOffset(this.#shape, this.#taken);
        const filled = this.#filled[this.#taken % this.#shape.chunks] as number;
        if (filled > this.#used) return this.#ring.subarray(offset + this.#used, offset + filled);
        this.use(0);
      } else await this.#changed.rung();
    }
  }

  use(bytes: number): void {
    this.#used += bytes;
    if (this.#used < (this.#filled[this.#taken % this.#shape.chunks] as number)) return;
    this.#taken++;
    this.#used = 0;
    this.#answer();
  }

  cancel(reason: unknown): void {
    if (this.complete) return;
    this.#error ??= givenUp("the reader", reason);
    this.#answer();
    this.#changed.ring();
  }

  /** Ends the stream with an error, at both sides. */
  fail(error: RpcError): void {
    if (this.complete || this.#error !== undefined) return;
    this.#error = error;
    this.#control.fail(error);
    this.#answer();
    this.#changed.ring();
  }

  /** The writer has put chunk `seq`. */
  onPush(call: IncomingCall, seq: number, bytes: number, last: boolean): void {
    const { chunkBytes, chunks } = this.#shape;
    const pending = this.#waiting?.call.open === true;
    if (
      pending ||
      seq !== this.#pushed ||
      this.#last >= 0 ||
      seq >= this.#taken + chunks ||
      bytes > chunkBytes ||
      (bytes === 0 && !last)
    ) {
      return fail(call, "invalid_argument", `push: chunk ${seq} of ${bytes} bytes is out of turn`);
    }
    this.#filled[seq % chunks] = bytes;
    this.#pushed++;
    if (last) this.#last = seq;
    this.#waiting = { call, seq, last };
    this.#answer();
    this.#changed.ring();
  }

  #answer(): void {
    if (this.#waiting === undefined) return;
    const { call, seq, last } = this.#waiting;
    const error = this.complete ? undefined : this.#error;
    const free = last ? this.complete : seq + 1 < this.#taken + this.#shape.chunks;
    if (error === undefined && !free) return;
    this.#waiting = undefined;
    call.settle(error === undefined ? { value: this.#taken } : { error });
  }
}
