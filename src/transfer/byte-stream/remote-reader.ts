import type { ReadableStream } from "node:stream/web";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { builtin } from "../../wire/builtin.ts";
import { isUint32 } from "../control/control-method.ts";
import { requestInCall, unexpected } from "../control/control-request.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { transfer } from "../transfer.ts";
import { type ChunkSource, chunkReadable, type ReadableControl } from "./chunk-readable.ts";
import type { RemoteRing } from "./remote-stream.ts";
import { openBuffers, tellStopped } from "./remote-stream.ts";
import { Bell, chunkOffset, givenUp } from "./ring.ts";

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
      if (this.#complete) return undefined;
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
    this.#control.fail(reason);
    this.#changed.ring();
  }

  async #run(): Promise<void> {
    const { chunkBytes } = this.#stream.descriptor;
    for (let i = 0; i < openBuffers; i++) this.#buffers.push(new Uint8Array(chunkBytes));
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
