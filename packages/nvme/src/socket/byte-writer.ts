import type { Duplex } from "node:stream";

/** What a connection sends. What is written in one turn of the event loop leaves in one system call. */
export class ByteWriter {
  readonly #socket: Duplex;
  #isCorked = false;
  #hasEnded = false;

  constructor(socket: Duplex) {
    this.#socket = socket;
    socket.once("close", () => (this.#hasEnded = true));
  }

  /** Nobody takes what is written: the socket is gone, or is ending. */
  get isGone(): boolean {
    return this.#hasEnded || this.#socket.destroyed;
  }

  /** Bytes that the socket has not taken wait in the process. */
  get isPending(): boolean {
    return this.#socket.writableLength > 0;
  }

  /** Writes parts of one message next to each other. They belong to the socket until `sent` of the last is called. */
  write(parts: readonly Uint8Array[], sent?: () => void): void {
    if (this.isGone) {
      sent?.();
      return;
    }
    if (!this.#isCorked) {
      this.#isCorked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#isCorked = false;
        this.#socket.uncork();
      });
    }
    const last = parts.length - 1;
    for (const [index, part] of parts.entries())
      if (index === last && sent !== undefined) this.#socket.write(part, () => sent());
      else this.#socket.write(part);
  }

  /** Resolves when the socket does not ask for a pause: a peer that reads no answers gets no more of them. */
  async drained(): Promise<void> {
    if (!this.#socket.writableNeedDrain || this.isGone) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#socket.off("drain", done).off("close", done);
        resolve();
      };
      this.#socket.on("drain", done).on("close", done);
    });
  }

  /** Sends what waits, then ends the socket. Resolves when it has left, or the socket is gone. */
  async end(): Promise<void> {
    if (this.isGone) return;
    this.#hasEnded = true;
    await new Promise<void>((resolve) => {
      this.#socket.once("close", resolve);
      this.#socket.end(resolve);
    });
    this.#socket.destroy();
  }
}
