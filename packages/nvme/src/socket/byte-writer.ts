import type { Duplex } from "node:stream";
import { SpareBuffers } from "./spare-buffers.ts";

/** Shorter parts are copied next to each other: a part of its own costs the socket more than the copy. */
const maxCopiedBytes = 16 * 1024;
/** The longest joined copy. */
const maxJoinedBytes = 64 * 1024;

/** Sends the bytes of a connection. Writes of one turn of the event loop leave in one system call. */
export class ByteWriter {
  readonly #socket: Duplex;
  /** The parts that were written in this turn. `#sent` has the callbacks for when the socket has taken them. */
  #parts: Uint8Array[] = [];
  #sent: (() => void)[] = [];
  readonly #buffers = new SpareBuffers();
  #hasEnded = false;

  constructor(socket: Duplex) {
    this.#socket = socket;
    socket.once("close", () => (this.#hasEnded = true));
  }

  /** Written bytes are dropped: the socket is gone, or is ending. */
  get isGone(): boolean {
    return this.#hasEnded || this.#socket.destroyed;
  }

  /** Bytes wait in the process: the socket has not taken them. */
  get isPending(): boolean {
    return this.#parts.length > 0 || this.#socket.writableLength > 0;
  }

  /**
   * Writes parts of one message next to each other. The parts belong to the socket until `sent` of the last write is
   * called.
   */
  write(parts: readonly Uint8Array[], sent?: () => void): void {
    if (this.isGone) {
      sent?.();
      return;
    }
    if (this.#parts.length === 0) process.nextTick(() => this.#flush());
    this.#parts.push(...parts);
    if (sent !== undefined) this.#sent.push(sent);
  }

  /** Resolves when the socket has taken what was written, or is gone. */
  flushed(): Promise<void> {
    return new Promise((resolve) => this.write([], resolve));
  }

  /** The socket asks for a pause. */
  get isFull(): boolean {
    return this.#socket.writableNeedDrain && !this.isGone;
  }

  /** Resolves when the socket does not ask for a pause. A peer that does not read its answers gets no more of them. */
  async drained(): Promise<void> {
    if (!this.isFull) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#socket.off("drain", done).off("close", done);
        resolve();
      };
      this.#socket.on("drain", done).on("close", done);
    });
  }

  /** Sends the waiting bytes, then ends the socket. Resolves when the bytes have left, or the socket is gone. */
  async end(): Promise<void> {
    if (this.isGone) return;
    this.#flush();
    this.#hasEnded = true;
    await new Promise<void>((resolve) => {
      this.#socket.once("close", resolve);
      this.#socket.end(resolve);
    });
    this.#socket.destroy();
  }

  /** Ends the socket at once, and drops what it has not sent. */
  destroy(): void {
    this.#hasEnded = true;
    this.#socket.destroy();
  }

  #flush(): void {
    const [parts, sent] = [this.#parts, this.#sent];
    this.#parts = [];
    this.#sent = [];
    const done = () => {
      for (const tell of sent) tell();
    };
    if (parts.length === 0 || this.isGone) return done();
    this.#socket.cork();
    for (let at = 0; at < parts.length; ) {
      const end = endOfRun(parts, at);
      const taken = end === parts.length ? done : undefined;
      if (end - at === 1) this.#socket.write(parts[at], taken);
      else this.#writeJoined(parts, at, end, taken);
      at = end;
    }
    this.#socket.uncork();
  }

  #writeJoined(
    parts: readonly Uint8Array[],
    from: number,
    end: number,
    taken: (() => void) | undefined,
  ): void {
    const memory = this.#buffers.take(maxJoinedBytes);
    let bytes = 0;
    for (let at = from; at < end; at++) {
      const part = parts[at] as Uint8Array;
      memory.set(part, bytes);
      bytes += part.length;
    }
    this.#socket.write(memory.subarray(0, bytes), () => {
      this.#buffers.giveBack(memory);
      taken?.();
    });
  }
}

/** The end of a run of parts that are sent as one. Short parts are joined; a long part is a run alone. */
function endOfRun(parts: readonly Uint8Array[], from: number): number {
  let bytes = 0;
  let at = from;
  for (; at < parts.length; at++) {
    const { length } = parts[at] as Uint8Array;
    if (length > maxCopiedBytes || bytes + length > maxJoinedBytes) break;
    bytes += length;
  }
  return Math.max(at, from + 1);
}
