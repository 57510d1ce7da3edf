import type { ReadableStream, WritableStream } from "node:stream/web";
import { maxTimeoutMs } from "cinnabar/options";
import {
  type CallContext,
  type Client,
  OwnMemory,
  type RemoteRegionLike,
  type RpcError,
} from "cinnabar/standard";
import {
  RemoteStream,
  type RemoteStreamLike,
  remoteDescriptorOf,
  type StreamDescriptor,
  type StreamDirection,
} from "../contract/stream-kind.ts";
import { type ChunkSource, chunkReadable, type ReadableControl, webStreams } from "./chunk-readable.ts";
import { Bell, chunkOffset, givenUp, type NextChunk, streamError } from "./ring.ts";
import { ByteStreams, stopOf } from "./stream-service.ts";

/** Chunks that an open stream holds at the handler's side: one is read or filled while the other moves. */
const openBuffers = 2;

/** The most requests of byte streams that wait for answers of one peer. They leave room for other control requests. */
const maxRequests = 256;

/** How many requests of byte streams wait for each peer, by its address. Peers without waiting requests are absent. */
const waiting = new Map<string, number>();

/** Streams that a handler has opened. */
const opened = new WeakSet<RemoteStream>();

/** A stream that a handler has opened: its ring, and the client for its other side. */
class OpenStream {
  readonly descriptor: StreamDescriptor<RemoteRegionLike>;
  readonly #call: CallContext;
  readonly #client: Client<typeof ByteStreams>;

  /**
   * The caller chose the length of the chunks. Their memory here therefore counts towards `limits.maxPullBytes`, until
   * the call is answered.
   *
   * @throws TypeError when the argument is not a stream of that direction; RpcError `failed_precondition` when it is
   * already open, `resource_exhausted`, or the error that ended the call.
   */
  constructor(call: CallContext, stream: unknown, direction: StreamDirection) {
    if (!(stream instanceof RemoteStream) || stream.direction !== direction) {
      const name = direction === "read" ? "readable" : "writable";
      throw new TypeError(
        `${name}: the argument must be a byte stream of direction "${direction}" from this call's input`,
      );
    }
    if (opened.has(stream)) throw streamError("failed_precondition", "the byte stream is open already");
    this.descriptor = remoteDescriptorOf(stream);
    call.reserve(openBuffers * this.descriptor.chunkBytes);
    opened.add(stream);
    this.#call = call;
    // Each of its requests has its own time limit and signal.
    this.#client = call.callerClient(ByteStreams, { inherit: false });
  }

  /** The memory of one of its chunks at this side. */
  takeBuffer(): OwnMemory {
    return new OwnMemory(this.descriptor.chunkBytes, "the byte stream");
  }

  async get(seq: number, chunk: Uint8Array): Promise<void> {
    const { ring } = this.descriptor;
    await this.#call.get(ring as RemoteRegionLike<"read">, chunk, {
      offset: chunkOffset(this.descriptor, seq),
    });
  }

  async put(seq: number, chunk: Uint8Array): Promise<void> {
    const { ring } = this.descriptor;
    await this.#call.put(chunk, ring as RemoteRegionLike<"write">, {
      offset: chunkOffset(this.descriptor, seq),
    });
  }

  next(seq: number, taken: number): Promise<NextChunk> {
    return this.#answered(this.#client.next([this.descriptor.stream, seq, taken], this.#begin()));
  }

  push(seq: number, bytes: number, last: boolean): Promise<number> {
    return this.#answered(this.#client.push([this.descriptor.stream, seq, bytes, last], this.#begin()));
  }

  /** Notifies the caller that this side stops the stream. If that fails, nothing changes. */
  stop(error: RpcError): void {
    if (this.#call.signal.aborted) return;
    this.#client.stop(stopOf(this.descriptor.stream, error), this.#options).catch(() => {});
  }

  /** The error for an answer that no honest peer gives. */
  unexpected(): RpcError {
    return streamError("internal", `${this.#call.peer} sent a malformed answer about a byte stream`);
  }

  /** The options that end a request with the call. */
  get #options(): { timeoutMs: number; signal: AbortSignal } {
    const { timeLeftMs, signal } = this.#call;
    return { timeoutMs: Math.min(Math.max(1, timeLeftMs), maxTimeoutMs), signal };
  }

  /** Begins a request that may wait for long. */
  #begin(): { timeoutMs: number; signal: AbortSignal } {
    const { peer } = this.#call;
    const requests = waiting.get(peer) ?? 0;
    if (requests >= maxRequests)
      throw streamError(
        "resource_exhausted",
        `${maxRequests} byte streams wait for ${peer}; that is the limit`,
      );
    waiting.set(peer, requests + 1);
    return this.#options;
  }

  #end(): void {
    const { peer } = this.#call;
    const requests = (waiting.get(peer) as number) - 1;
    if (requests === 0) waiting.delete(peer);
    else waiting.set(peer, requests);
  }

  async #answered<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      // If the call has ended against the handler's will, its error is the reason.
      const { signal } = this.#call;
      throw signal.aborted ? signal.reason : error;
    } finally {
      this.#end();
    }
  }
}

/**
 * Opens a byte stream of the caller for reading. A stream can be opened once. Cancelling it fails the caller's side with
 * the reason. It errors when the call ends first.
 *
 * @throws TypeError when the argument is not such a stream; RpcError `failed_precondition` when it is already open or
 * the call has ended, `resource_exhausted` when `limits.maxPullBytes` is reached. A stream of another call fails with
 * `permission_denied` when it is read.
 *
 * @example
 * for await (const chunk of readable(call, content)) await file.write(chunk);
 */
export function readable(call: CallContext, stream: RemoteStreamLike<"read">): ReadableStream<Uint8Array> {
  const open = new OpenStream(call, stream, "read");
  return chunkReadable((control) => new RemoteReader(open, control));
}

/**
 * Opens a byte stream of the caller for writing. A stream can be opened once. `close` resolves when the caller has read
 * everything; `abort` fails the caller's side with the reason. It errors when the call ends first.
 *
 * @throws as `readable`.
 */
export function writable(call: CallContext, stream: RemoteStreamLike<"write">): WritableStream<Uint8Array> {
  const open = new OpenStream(call, stream, "write");
  let writer!: RemoteWriter;
  const { WritableStream } = webStreams();
  return new WritableStream<Uint8Array>({
    start(controller) {
      writer = new RemoteWriter(open, (error) => controller.error(error));
      // `abort` of the sink waits for a write, and the write may wait for room.
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

/** Gets the caller's chunks in order, each while the former one is being read. Starts with the first read. */
class RemoteReader implements ChunkSource {
  readonly #stream: OpenStream;
  readonly #control: ReadableControl;
  readonly #memory: OwnMemory[] = [];
  readonly #buffers: Uint8Array[] = [];
  /** Received chunks; the first has been used up to `#used`. */
  readonly #ready: Uint8Array[] = [];
  #used = 0;
  #begun = false;
  #complete = false;
  #stopped = false;
  #error: { readonly reason: unknown } | undefined;
  readonly #changed = new Bell();

  constructor(stream: OpenStream, control: ReadableControl) {
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
    this.#stream.stop(givenUp("the reader", reason));
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

  /** The buffers are no longer read. */
  #letGo(): void {
    for (const memory of this.#memory) memory.dispose();
  }

  async #run(): Promise<void> {
    for (let i = 0; i < openBuffers; i++) {
      const memory = this.#stream.takeBuffer();
      this.#memory.push(memory);
      this.#buffers.push(memory.bytes);
    }
    let asked = this.#next(0, 0);
    for (let seq = 0; !this.#stopped; seq++) {
      const { bytes, last } = await asked;
      if (!last) {
        asked = this.#next(seq + 1, seq);
        // It may fail before it is awaited.
        asked.catch(() => {});
      }
      if (bytes > 0) await this.#pull(seq, bytes);
      if (!last) continue;
      // The writer is notified before the reader that all bytes have arrived: a stream succeeds at both sides or fails
      // at both.
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
    await this.#stream.get(seq, chunk);
    this.#ready.push(chunk);
    this.#changed.ring();
  }

  async #next(seq: number, taken: number): Promise<{ readonly bytes: number; readonly last: boolean }> {
    const [bytes, last] = await this.#stream.next(seq, taken);
    if (bytes > this.#stream.descriptor.chunkBytes) throw this.#stream.unexpected();
    return { bytes, last };
  }
}

/**
 * Fills a chunk here while the former one moves to the caller. A partial chunk leaves when no other chunk is moving.
 */
class RemoteWriter {
  readonly #stream: OpenStream;
  readonly #onError: (error: unknown) => void;
  readonly #buffers: readonly OwnMemory[];
  /** The chunk being filled, and the bytes in it. */
  #seq = 0;
  #filled = 0;
  /** How many chunks the reader has used. */
  #taken = 0;
  /** The transfer of the former chunk. */
  #sending: Promise<void> | undefined;
  #error: { readonly reason: unknown } | undefined;
  #complete = false;
  readonly #changed = new Bell();

  constructor(stream: OpenStream, onError: (error: unknown) => void) {
    this.#stream = stream;
    this.#onError = onError;
    this.#buffers = Array.from({ length: openBuffers }, () => stream.takeBuffer());
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
    this.#stream.stop(error);
    this.#changed.ring();
  }

  #throwIfFailed(): void {
    if (this.#error !== undefined) throw this.#error.reason;
  }

  get #buffer(): Uint8Array {
    return (this.#buffers[this.#seq % openBuffers] as OwnMemory).bytes;
  }

  /**
   * Waits until no chunk is moving. Sending continues with bytes that were written meanwhile, so this can take several
   * rounds.
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

  /** The buffers are no longer written. */
  #letGo(): void {
    for (const memory of this.#buffers) memory.dispose();
  }

  async #push(seq: number, chunk: Uint8Array, last: boolean): Promise<void> {
    const { chunks } = this.#stream.descriptor;
    if (chunk.byteLength > 0) await this.#stream.put(seq, chunk);
    this.#throwIfFailed();
    // The answer comes when there is room for another chunk. The answer to the last chunk comes when everything was
    // read.
    const taken = await this.#stream.push(seq, chunk.byteLength, last);
    const isRoom = taken >= this.#taken && taken <= seq + 1 && seq + 1 - taken < chunks;
    if (!isRoom || (last && taken !== seq + 1)) throw this.#stream.unexpected();
    this.#taken = taken;
  }
}
