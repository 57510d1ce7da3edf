import type { Duplex } from "node:stream";

/** What a connection past its handshake may hold. */
export const maxHeldBytes = 256 * 1024;

/** The bytes of a socket, taken in messages. One reader at a time. */
export class ByteReader {
  /** Beyond this limit, the socket is not read until the caller takes bytes. */
  maxHeldBytes: number;
  readonly #socket: Duplex;
  readonly #chunks: Buffer[] = [];
  /** How much of the first chunk was taken. */
  #taken = 0;
  #held = 0;
  #wanted = 0;
  #wake: (() => void) | undefined;
  #hasEnded = false;
  #isPaused = false;
  /** The bytes that are read are the rest of a message: its head was read before. */
  #isWithinBody = false;

  constructor(socket: Duplex, most = maxHeldBytes) {
    this.#socket = socket;
    this.maxHeldBytes = most;
    socket.on("data", this.#onData).on("end", this.#onEnd).on("close", this.#onClose);
  }

  /** A part of the expected bytes has come, so the rest should come soon. */
  get isWithinMessage(): boolean {
    return this.#wake !== undefined && (this.#held > 0 || this.#isWithinBody);
  }

  /**
   * The next bytes, at most 64 KiB, where they have come; `read` waits for them. The result is mostly a view, which
   * keeps the memory of all bytes that came together. Copy it to keep it for long.
   */
  take(bytes: number): Buffer | undefined {
    if (this.#held < bytes) return undefined;
    const first = this.#chunks[0] as Buffer;
    if (first.length - this.#taken >= bytes) {
      const part = first.subarray(this.#taken, this.#taken + bytes);
      this.#drop(bytes);
      return part;
    }
    const whole = Buffer.allocUnsafe(bytes);
    this.#copyInto(whole);
    return whole;
  }

  /** As `take`, when they have come. Undefined where the socket ends before. */
  async read(bytes: number): Promise<Buffer | undefined> {
    return this.#held >= bytes || (await this.#has(bytes)) ? this.take(bytes) : undefined;
  }

  /** As `read`, for the rest of a message after its head. */
  async readRest(bytes: number): Promise<Buffer | undefined> {
    this.#isWithinBody = true;
    try {
      return await this.read(bytes);
    } finally {
      this.#isWithinBody = false;
    }
  }

  /** Fills a buffer where as many bytes have come. `readInto` waits for them. */
  takeInto(target: Uint8Array): boolean {
    if (this.#held < target.length) return false;
    this.#copyInto(target);
    return true;
  }

  /** Fills a buffer as bytes come. False where the socket ends before. */
  async readInto(target: Uint8Array): Promise<boolean> {
    this.#isWithinBody = true;
    try {
      for (let at = 0; at < target.length; ) {
        if (this.#held === 0 && !(await this.#has(1))) return false;
        at += this.#copyInto(target.subarray(at));
      }
      return true;
    } finally {
      this.#isWithinBody = false;
    }
  }

  /** Drops the next bytes. False where the socket ends before. */
  async skip(bytes: number): Promise<boolean> {
    this.#isWithinBody = true;
    try {
      for (let left = bytes; left > 0; ) {
        if (this.#held === 0 && !(await this.#has(1))) return false;
        const part = Math.min(left, this.#held);
        this.#drop(part);
        left -= part;
      }
      return true;
    } finally {
      this.#isWithinBody = false;
    }
  }

  /** Gives the socket back, with the bytes that have come and were not taken. No read may be waiting. */
  release(): void {
    this.#socket.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onClose);
    this.#socket.pause();
    if (this.#held > 0) this.#socket.unshift(this.take(this.#held));
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#chunks.push(chunk);
    this.#held += chunk.length;
    if (this.#held >= this.#wanted) this.#awaken();
    if (this.#held >= this.maxHeldBytes && this.#wake === undefined) {
      this.#isPaused = true;
      this.#socket.pause();
    }
  };

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    this.#awaken();
  };

  readonly #onClose = (): void => {
    // No request gets an answer any more.
    this.#chunks.length = 0;
    this.#held = 0;
    this.#taken = 0;
    this.#onEnd();
  };

  async #has(bytes: number): Promise<boolean> {
    while (this.#held < bytes) {
      if (this.#hasEnded) return false;
      this.#wanted = bytes;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        this.#resume();
      });
    }
    return true;
  }

  #awaken(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    this.#wanted = 0;
    wake?.();
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#socket.resume();
  }

  /** Copies what is held, as far as it fits. Returns how many bytes. */
  #copyInto(target: Uint8Array): number {
    let at = 0;
    while (at < target.length && this.#held > 0) {
      const first = this.#chunks[0] as Buffer;
      const bytes = Math.min(first.length - this.#taken, target.length - at);
      first.copy(target, at, this.#taken, this.#taken + bytes);
      this.#drop(bytes);
      at += bytes;
    }
    return at;
  }

  #drop(bytes: number): void {
    this.#held -= bytes;
    this.#taken += bytes;
    for (
      let first = this.#chunks[0];
      first !== undefined && this.#taken >= first.length;
      first = this.#chunks[0]
    ) {
      this.#taken -= first.length;
      this.#chunks.shift();
    }
    if (this.#held < this.maxHeldBytes / 2) this.#resume();
  }
}
