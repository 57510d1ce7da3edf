import { type RpcCode, RpcError } from "cinnabar/standard";
import type { RingShape } from "../contract/stream-kind.ts";
import type { ChunkSource, ReadableControl } from "./chunk-readable.ts";
import type { Question } from "./question.ts";

/** Offset of chunk number `seq` in the ring. */
export function chunkOffset({ chunkBytes, chunks }: RingShape, seq: number): number {
  return (seq % chunks) * chunkBytes;
}

/** Lets several waiters wait for one event: room, data, or the end. */
export class Bell {
  #waiting: (() => void)[] = [];

  rung(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  ring(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}

/**
 * The error of a stream that one side stops. A reason that is an RpcError keeps its code; any other reason becomes
 * `cancelled` with its text.
 */
export function givenUp(who: string, reason: unknown): RpcError {
  if (reason instanceof RpcError) return streamError(reason.code, reason.plainMessage, reason);
  const text = reason instanceof Error ? reason.message : reason === undefined ? "" : String(reason);
  return streamError("cancelled", `${who} gave the stream up${text === "" ? "" : `: ${text}`}`, reason);
}

export function streamError(code: RpcCode, message: string, cause?: unknown): RpcError {
  return new RpcError({ code, message, origin: "local", ...(cause === undefined ? {} : { cause }) });
}

/** The call was answered before its stream was complete. */
export function endedEarly(): RpcError {
  return streamError("failed_precondition", "the call ended before the byte stream did");
}

/** The writer's report of a new chunk. It stays unanswered while the writer must wait. */
interface Pushed {
  readonly question: Question<number>;
  readonly seq: number;
  readonly last: boolean;
}

/**
 * The caller's side of a stream that the handler writes: takes chunks out of the ring in its own memory. It answers a
 * `push` when there is room for the next chunk, and the last `push` when everything was read. The answer is the number
 * of chunks used.
 */
export class RingReader implements ChunkSource {
  readonly #shape: RingShape;
  readonly #ring: Uint8Array;
  readonly #control: ReadableControl;
  readonly #filled: number[] = [];
  /** How many chunks have come; then how many were used. */
  #pushed = 0;
  #taken = 0;
  /** Bytes used of the chunk being read. */
  #used = 0;
  #last = -1;
  #isRead = false;
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

  /** What the caller's program has not done, so that the stream does not move. */
  get missed(): string | undefined {
    if (this.#isRead) return undefined;
    return "its byte stream was not read: read `readable` while the call runs";
  }

  async peek(): Promise<Uint8Array | undefined> {
    this.#isRead = true;
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
  onPush(question: Question<number>, seq: number, bytes: number, last: boolean): void {
    const { chunkBytes, chunks } = this.#shape;
    const pending = this.#waiting?.question.open === true;
    if (
      pending ||
      seq !== this.#pushed ||
      this.#last >= 0 ||
      seq >= this.#taken + chunks ||
      bytes > chunkBytes ||
      (bytes === 0 && !last)
    ) {
      return question.settle({
        error: streamError("invalid_argument", `push: chunk ${seq} of ${bytes} bytes is out of turn`),
      });
    }
    this.#filled[seq % chunks] = bytes;
    this.#pushed++;
    if (last) this.#last = seq;
    this.#waiting = { question, seq, last };
    this.#answer();
    this.#changed.ring();
  }

  #answer(): void {
    if (this.#waiting === undefined) return;
    const { question, seq, last } = this.#waiting;
    const error = this.complete ? undefined : this.#error;
    const free = last ? this.complete : seq + 1 < this.#taken + this.#shape.chunks;
    if (error === undefined && !free) return;
    this.#waiting = undefined;
    question.settle(error === undefined ? { value: this.#taken } : { error });
  }
}

/** Length of a chunk, and whether it is the last. */
export type NextChunk = readonly [bytes: number, last: boolean];

/** The reader's request for a chunk that has not come yet. */
interface Asked {
  readonly question: Question<NextChunk>;
  readonly seq: number;
}

/**
 * The caller's side of a stream that the handler reads: fills the ring in its own memory, and answers `next` when the
 * requested chunk has come. A partial chunk is handed out when the reader has no other chunk to read.
 */
export class RingWriter {
  readonly #shape: RingShape;
  readonly #ring: Uint8Array;
  /** The chunk being filled, and the bytes in it. All chunks before it are sealed. */
  #chunk = 0;
  #filled = 0;
  /** How many chunks the reader has returned. */
  #taken = 0;
  /** The next chunk that the reader may request. */
  #expected = 0;
  #isWritten = false;
  /**
   * Lengths of the chunks that the reader may still request: a full ring, and an empty last chunk, which takes no room
   * in the ring.
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

  /** What a program has not done, so that the stream does not move. */
  get missed(): string | undefined {
    if (this.#last < 0) {
      if (!this.#isWritten)
        return "nothing was written into its byte stream: write into `writable`, and close it, while the call runs";
      // The reader waits although it has received all that was written.
      if (this.#asked?.question.open === true)
        return "its byte stream was not closed: close `writable` at its end";
    }
    if (this.#expected === 0 && this.#asked === undefined)
      return "the handler did not read its byte stream: it reads `readable(call, stream)`";
    return undefined;
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#isWritten = true;
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
  onNext(question: Question<NextChunk>, seq: number, taken: number): void {
    const pending = this.#asked?.question.open === true;
    if (
      pending ||
      seq !== this.#expected ||
      taken < this.#taken ||
      taken > seq ||
      taken > this.#chunk ||
      seq >= taken + this.#shape.chunks
    ) {
      return question.settle({
        error: streamError("invalid_argument", `next: chunk ${seq} is out of turn`),
      });
    }
    this.#taken = taken;
    this.#asked = { question, seq };
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
    const { question, seq } = asked;
    if (this.#error !== undefined) {
      this.#asked = undefined;
      question.settle({ error: this.#error });
      return;
    }
    if (this.#last >= 0 && seq > this.#last) return this.#finish(asked);
    // The reader waits for the chunk being filled, so it gets the bytes in it.
    if (seq === this.#chunk && this.#filled > 0) return this.#seal();
    if (seq >= this.#chunk) return;
    this.#asked = undefined;
    this.#expected++;
    const bytes = this.#sealed[seq % (this.#shape.chunks + 1)] as number;
    question.settle({ value: [bytes, seq === this.#last] });
  }

  /** The request for a chunk after the last one confirms that the reader has the last one. */
  #finish({ question, seq }: Asked): void {
    this.#asked = undefined;
    this.#complete = this.#taken === seq;
    if (this.#complete) question.settle({ value: [0, true] });
    else this.fail(streamError("internal", "the reader ended the stream before it had read everything"));
    this.#changed.ring();
  }
}
