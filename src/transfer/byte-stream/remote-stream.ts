import type { ReadableStream, WritableStream } from "node:stream/web";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { OwnMemory } from "../../memory/pool.ts";
import type { RemoteRegion } from "../../memory/remote-region.ts";
import { builtin } from "../../wire/builtin.ts";
import { refuseClass } from "../../wire/extension.ts";
import { errorWord, packError } from "../../wire/fault.ts";
import type { StreamDescriptor } from "../../wire/stream-descriptor.ts";
import { isCount, isUint32 } from "../control/control-method.ts";
import { requestInCall, unexpected } from "../control/control-request.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { transfer } from "../transfer.ts";
import { type ChunkSource, chunkReadable, type ReadableControl, webStreams } from "./chunk-readable.ts";
import { Bell, chunkOffset, givenUp, streamError } from "./ring.ts";
import { remoteStreamBrand, type StreamDirection } from "./stream-kind.ts";

/** What a remote stream is made of. */
export interface RemoteRing {
  /** The call it came with. */
  readonly call: IncomingCall;
  /** The ring that the bytes go through. */
  readonly ring: RemoteRegion;
  readonly descriptor: StreamDescriptor;
  isOpen: boolean;
}

let ringOf: (stream: RemoteStream) => RemoteRing;

/**
 * A byte stream of the caller, as a handler receives it where the contract says `bulkStream(direction)`. Open it once,
 * with `call.readable(stream)` or `call.writable(stream)`.
 *
 * @example
 * for await (const chunk of call.readable(content)) await file.write(chunk);
 */
export class RemoteStream<D extends StreamDirection = StreamDirection> {
  readonly [remoteStreamBrand] = true as const;
  /** What the handler does: "read" or "write". */
  readonly direction: D;
  readonly #ring: RemoteRing;

  static {
    ringOf = (stream) => stream.#ring;
  }

  /** @internal Streams come out of messages. */
  constructor(call: IncomingCall, ring: RemoteRegion, descriptor: StreamDescriptor) {
    this.#ring = { call, ring, descriptor, isOpen: false };
    this.direction = (descriptor.direction === 1 ? "read" : "write") as D;
  }
}

/** What a stream is made of: it has no members for that, which editors would offer to users. */
export function remoteRingOf(stream: RemoteStream): RemoteRing {
  return ringOf(stream);
}

refuseClass(
  RemoteStream,
  "a byte stream cannot be sent here: a handler uses the stream of its caller, but cannot pass it on",
);

/** Chunks that an open stream holds at the handler's side: one is read or filled while the other moves. */
export const openBuffers = 2;

/**
 * Checks the stream that a handler opens, and marks it as open. The caller chose the length of its chunks. So their
 * memory here counts towards `limits.maxPullBytes`, until the call is answered.
 *
 * @throws TypeError when the argument is not a stream of that direction; RpcError `permission_denied` for a stream of
 * another call, `failed_precondition` when it is open already, `resource_exhausted`, or the error that ended the call.
 */
export function openStream(
  stream: unknown,
  direction: StreamDirection,
  call: IncomingCall,
  session: PeerLink,
): RemoteRing {
  if (!(stream instanceof RemoteStream) || stream.direction !== direction) {
    const name = direction === "read" ? "readable" : "writable";
    throw new TypeError(
      `${name}: the argument must be a byte stream of direction "${direction}" from this call's input`,
    );
  }
  const ring = remoteRingOf(stream);
  if (ring.call !== call) throw streamError("permission_denied", "the byte stream belongs to another call");
  if (ring.isOpen) throw streamError("failed_precondition", "the byte stream is open already");
  // The bytes taken now are given back when the call is answered, so that must be still to come.
  call.assertOpen();
  const { pulls } = session.account;
  const { limits } = session.services;
  const bytes = openBuffers * ring.descriptor.chunkBytes;
  // The budget admits one body above its limit when it is empty. A stream has no other bound, so it does not get that.
  if (bytes > limits.maxPullBytes || !pulls.take(bytes)) {
    throw streamError(
      "resource_exhausted",
      `the byte stream needs ${bytes} bytes here; limits.maxPullBytes is ${limits.maxPullBytes}`,
    );
  }
  const { onAnswered } = call;
  call.onAnswered = () => {
    onAnswered?.();
    pulls.give(bytes);
  };
  ring.isOpen = true;
  return ring;
}

/** Tells the caller that this side gives its stream up. If that fails, nothing changes. */
export function tellStopped(
  call: IncomingCall,
  session: PeerLink,
  stream: RemoteRing,
  error: RpcError,
): void {
  if (!call.open) return;
  requestInCall(call, session, builtin.stop, [
    stream.descriptor.stream,
    errorWord(error),
    { m: packError(error).m },
  ]).catch(() => {});
}

/** A stream of the caller, opened for reading by the handler. */
export function remoteReadable(
  call: IncomingCall,
  session: PeerLink,
  stream: RemoteRing,
): ReadableStream<Uint8Array> {
  return chunkReadable((control) => new RemoteReader(call, session, stream, control));
}

/** Gets the caller's chunks one after another, each while the one before is being read. Starts when somebody reads. */
class RemoteReader implements ChunkSource {
  readonly #call: IncomingCall;
  readonly #session: PeerLink;
  readonly #stream: RemoteRing;
  readonly #control: ReadableControl;
  readonly #memory: OwnMemory[] = [];
  readonly #buffers: Uint8Array[] = [];
  /** Chunks that are here; the first has been used up to `#used`. */
  readonly #ready: Uint8Array[] = [];
  #used = 0;
  #begun = false;
  #complete = false;
  #stopped = false;
  #error: { readonly reason: unknown } | undefined;
  readonly #changed = new Bell();

  constructor(call: IncomingCall, session: PeerLink, stream: RemoteRing, control: ReadableControl) {
    this.#call = call;
    this.#session = session;
    this.#stream = stream;
    this.#control = control;
  }

  async peek(): Promise<Uint8Array | undefined> {
    if (!this.#begun) {
      this.#begun = true;
      this.#run().catch((error: unknown) => this.#fail(error));
    }
    for (;;) {
      const [first] = this.#ready;
      if (first !== undefined) return first.subarray(this.#used);
      if (this.#error !== undefined) throw this.#error.reason;
      if (this.#complete) {
        this.#letGo();
        return undefined;
      }
      await this.#changed.rung();
    }
  }

  use(bytes: number): void {
    this.#used += bytes;
    if (this.#used < (this.#ready[0] as Uint8Array).byteLength) return;
    const used = this.#ready.shift() as Uint8Array;
    this.#buffers.push(new Uint8Array(used.buffer));
    this.#used = 0;
    this.#changed.ring();
  }

  cancel(reason: unknown): void {
    if (this.#complete || this.#stopped) return;
    this.#stopped = true;
    tellStopped(this.#call, this.#session, this.#stream, givenUp("the reader", reason));
    this.#changed.ring();
  }

  #fail(reason: unknown): void {
    this.#error = { reason };
    this.#stopped = true;
    this.#ready.length = 0;
    this.#letGo();
    this.#control.fail(reason);
    this.#changed.ring();
  }

  /** Nobody reads the buffers any more. */
  #letGo(): void {
    for (const memory of this.#memory) memory.dispose();
  }

  async #run(): Promise<void> {
    const { chunkBytes } = this.#stream.descriptor;
    for (let i = 0; i < openBuffers; i++) {
      const memory = new OwnMemory(chunkBytes, "readable");
      this.#memory.push(memory);
      this.#buffers.push(memory.bytes);
    }
    let asked = this.#next(0, 0);
    for (let seq = 0; !this.#stopped; seq++) {
      const { bytes, last } = await asked;
      if (!last) {
        asked = this.#next(seq + 1, seq);
        // It may fail before somebody awaits it.
        asked.catch(() => {});
      }
      if (bytes > 0) await this.#pull(seq, bytes);
      if (!last) continue;
      // The writer is told before the reader that everything is here: a stream succeeds at both sides or at none.
      if (!this.#stopped) await this.#next(seq + 1, seq + 1);
      this.#complete = true;
      this.#changed.ring();
      return;
    }
  }

  async #pull(seq: number, bytes: number): Promise<void> {
    while (this.#buffers.length === 0 && !this.#stopped) await this.#changed.rung();
    const buffer = this.#buffers.pop();
    if (buffer === undefined || this.#stopped) return;
    const chunk = buffer.subarray(0, bytes);
    await transfer("get", this.#session, this.#call, this.#stream.ring, chunk, {
      offset: chunkOffset(this.#stream.descriptor, seq),
    });
    this.#ready.push(chunk);
    this.#changed.ring();
  }

  async #next(seq: number, taken: number): Promise<{ readonly bytes: number; readonly last: boolean }> {
    const { stream, chunkBytes } = this.#stream.descriptor;
    const answer = await requestInCall(this.#call, this.#session, builtin.next, [stream, seq, taken]);
    const [bytes, last] = Array.isArray(answer) ? (answer as unknown[]) : [];
    if (!isUint32(bytes) || bytes > chunkBytes || typeof last !== "boolean") throw unexpected(this.#session);
    return { bytes, last };
  }
}

/** A stream of the caller, opened for writing by the handler. */
export function remoteWritable(
  call: IncomingCall,
  session: PeerLink,
  stream: RemoteRing,
): WritableStream<Uint8Array> {
  let writer!: RemoteWriter;
  const { WritableStream } = webStreams();
  return new WritableStream<Uint8Array>({
    start(controller) {
      writer = new RemoteWriter(call, session, stream, (error) => controller.error(error));
      // `abort` of the sink waits for a write, and that may wait for room.
      const { signal } = controller as unknown as { readonly signal: AbortSignal };
      signal.addEventListener("abort", () => writer.abort(signal.reason));
    },
    write(bytes) {
      if (!(bytes instanceof Uint8Array)) throw new TypeError("a byte stream accepts only Uint8Array chunks");
      return writer.write(bytes);
    },
    close: () => writer.close(),
  });
}

/**
 * Fills a chunk here while the one before moves to the caller. A chunk that is not full yet leaves when nothing else is
 * moving.
 */
class RemoteWriter {
  readonly #call: IncomingCall;
  readonly #session: PeerLink;
  readonly #stream: RemoteRing;
  readonly #onError: (error: unknown) => void;
  readonly #buffers: readonly OwnMemory[];
  /** The chunk being filled, and how far. */
  #seq = 0;
  #filled = 0;
  /** How many chunks the reader has used. */
  #taken = 0;
  /** The transfer of the chunk before. */
  #sending: Promise<void> | undefined;
  #error: { readonly reason: unknown } | undefined;
  #complete = false;
  readonly #changed = new Bell();

  constructor(call: IncomingCall, session: PeerLink, stream: RemoteRing, onError: (error: unknown) => void) {
    this.#call = call;
    this.#session = session;
    this.#stream = stream;
    this.#onError = onError;
    const { chunkBytes } = stream.descriptor;
    this.#buffers = Array.from({ length: openBuffers }, () => new OwnMemory(chunkBytes, "writable"));
  }

  async write(bytes: Uint8Array): Promise<void> {
    const { chunkBytes } = this.#stream.descriptor;
    for (let at = 0; at < bytes.byteLength; ) {
      this.#throwIfFailed();
      if (this.#filled === chunkBytes) {
        await this.#sent();
        continue;
      }
      const count = Math.min(chunkBytes - this.#filled, bytes.byteLength - at);
      this.#buffer.set(bytes.subarray(at, at + count), this.#filled);
      this.#filled += count;
      at += count;
      if (this.#filled === chunkBytes) this.#sendIfIdle();
    }
    this.#sendIfIdle();
  }

  /** Resolves when the reader has read everything. */
  async close(): Promise<void> {
    await this.#sent();
    this.#throwIfFailed();
    await this.#send(true);
    this.#throwIfFailed();
  }

  abort(reason: unknown): void {
    if (this.#complete || this.#error !== undefined) return;
    const error = givenUp("the writer", reason);
    this.#error = { reason: error };
    tellStopped(this.#call, this.#session, this.#stream, error);
    this.#changed.ring();
  }

  #throwIfFailed(): void {
    if (this.#error !== undefined) throw this.#error.reason;
  }

  get #buffer(): Uint8Array {
    return (this.#buffers[this.#seq % openBuffers] as OwnMemory).bytes;
  }

  /**
   * Waits until nothing is moving. Sending continues with what was written meanwhile, so that can take several rounds.
   */
  async #sent(): Promise<void> {
    while (this.#sending !== undefined && this.#error === undefined) await this.#changed.rung();
  }

  #sendIfIdle(): void {
    if (this.#sending === undefined && this.#filled > 0 && this.#error === undefined) this.#send(false);
  }

  #send(last: boolean): Promise<void> {
    const chunk = this.#buffer.subarray(0, this.#filled);
    const seq = this.#seq++;
    this.#filled = 0;
    this.#sending = this.#push(seq, chunk, last).then(
      () => {
        this.#sending = undefined;
        this.#complete = last;
        if (last) this.#letGo();
        this.#sendIfIdle();
        this.#changed.ring();
      },
      (reason: unknown) => {
        this.#sending = undefined;
        this.#error ??= { reason };
        this.#letGo();
        this.#onError(reason);
        this.#changed.ring();
      },
    );
    return this.#sending;
  }

  /** Nothing is written into the buffers any more. */
  #letGo(): void {
    for (const memory of this.#buffers) memory.dispose();
  }

  async #push(seq: number, chunk: Uint8Array, last: boolean): Promise<void> {
    const { descriptor, ring } = this.#stream;
    if (chunk.byteLength > 0) {
      await transfer("put", this.#session, this.#call, ring, chunk, { offset: chunkOffset(descriptor, seq) });
    }
    this.#throwIfFailed();
    // The answer comes when there is room for another chunk; that to the last chunk, when everything was read.
    const taken = await requestInCall(this.#call, this.#session, builtin.push, [
      descriptor.stream,
      seq,
      chunk.byteLength,
      last,
    ]);
    const room =
      isCount(taken) && taken >= this.#taken && taken <= seq + 1 && seq + 1 - taken < descriptor.chunks;
    if (!room || (last && taken !== seq + 1)) throw unexpected(this.#session);
    this.#taken = taken;
  }
}
