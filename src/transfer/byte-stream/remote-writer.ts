import { WritableStream } from "node:stream/web";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { builtin } from "../../wire/builtin.ts";
import { isCount } from "../control/control-method.ts";
import { requestInCall, unexpected } from "../control/control-request.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { transfer } from "../transfer.ts";
import type { RemoteRing } from "./remote-stream.ts";
import { tellStopped } from "./remote-stream.ts";
import { Bell, chunkOffset, givenUp } from "./ring.ts";

/** A stream of the caller, opened for writing by the handler. */
export function remoteWritable(
  call: IncomingCall,
  session: PeerLink,
  stream: RemoteRing,
): WritableStream<Uint8Array> {
  let writer!: RemoteWriter;
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
  readonly #buffers: [Uint8Array, Uint8Array];
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
