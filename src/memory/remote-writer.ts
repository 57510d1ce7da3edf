import { WritableStream } from "node:stream/web";
import type { RemoteStream } from "../bulk/remote-stream.ts";
import { transfer } from "../bulk/transfer.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { Session } from "../session/session.ts";
import { builtin } from "../wire/builtin.ts";
import { askInCall, unexpected } from "./ask-in-call.ts";
import { isCount } from "./builtin-method.ts";
import { tellStopped } from "./open-stream.ts";
import { Bell, chunkOffset } from "./ring.ts";
import { givenUp } from "./stream-error.ts";

/** A caller's stream, opened for writing by its handler. */
export function remoteWritable(
  call: IncomingCall,
  session: Session,
  stream: RemoteStream,
): WritableStream<Uint8Array> {
  let writer!: RemoteWriter;
  return new WritableStream<Uint8Array>({
    start(controller) {
      writer = new RemoteWriter(call, session, stream, (error) => controller.error(error));
      // The sink's own `abort` waits for a write, which may wait for room.
      const { signal } = controller as unknown as { readonly signal: AbortSignal };
      signal.addEventListener("abort", () => writer.abort(signal.reason));
    },
    write(bytes) {
      if (!(bytes instanceof Uint8Array)) throw new TypeError("a byte stream takes Uint8Arrays");
      return writer.write(bytes);
    },
    close: () => writer.close(),
  });
}

/**
 * Fills a chunk here while the one before is on its way to the caller. What has been written of a chunk leaves before it is full when nothing else is on
 * its way.
 */
class RemoteWriter {
  readonly #call: IncomingCall;
  readonly #session: Session;
  readonly #stream: RemoteStream;
  readonly #onError: (error: unknown) => void;
  readonly #buffers: [Uint8Array, Uint8Array];
  /** The chunk being filled, and how far. */
  #seq = 0;
  #filled = 0;
  /** How many chunks the reader has used. */
  #taken = 0;
  /** The sending of the chunk before. */
  #sending: Promise<void> | undefined;
  #error: { readonly reason: unknown } | undefined;
  #complete = false;
  readonly #changed = new Bell();

  constructor(call: IncomingCall, session: Session, stream: RemoteStream, onError: (error: unknown) => void) {
    this.#call = call;
    this.#session = session;
    this.#stream = stream;
    this.#onError = onError;
    const { chunkBytes } = stream.descriptor;
    this.#buffers = [new Uint8Array(chunkBytes), new Uint8Array(chunkBytes)];
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
    return this.#buffers[this.#seq % 2] as Uint8Array;
  }

  /** Until nothing is on its way. Sending goes on with what has been written meanwhile, so that can take several rounds. */
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
        this.#sendIfIdle();
        this.#changed.ring();
      },
      (reason: unknown) => {
        this.#sending = undefined;
        this.#error ??= { reason };
        this.#onError(reason);
        this.#changed.ring();
      },
    );
    return this.#sending;
  }

  async #push(seq: number, chunk: Uint8Array, last: boolean): Promise<void> {
    const { descriptor, ring } = this.#stream;
    if (chunk.byteLength > 0) {
      await transfer("put", this.#session, this.#call, ring, chunk, { offset: chunkOffset(descriptor, seq) });
    }
    this.#throwIfFailed();
    // The answer comes when there is room for another chunk, and to the last one when everything has been read.
    const taken = await askInCall(this.#call, this.#session, builtin.push, [
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
