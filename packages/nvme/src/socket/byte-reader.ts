import type { Duplex } from "node:stream";
import { DirectSocket } from "./direct-socket.ts";

/** What a connection past its handshake may hold. */
export const maxHeldBytes = 128 * 1024;
/** The body of a message from this length on is worth a system call of its own, straight into its memory. */
const longBytes = 32 * 1024;
/** So much is read at a time where a message with a long body comes next: its head, and little of its body. */
const headWindowBytes = 4 * 1024;
const windowBytes = 64 * 1024;
/** More chunks than this become one: a peer that sends single bytes costs little more than its bytes. */
const maxChunks = 256;

/** Memory that waits for bytes. */
interface Target {
  readonly memory: Uint8Array;
  filledBytes: number;
  readonly resolve: (isWhole: boolean) => void;
}

/**
 * The bytes of a socket, taken in messages. One reader at a time. Those of a `DirectSocket` go straight into the memory
 * of `readInto` where they are awaited, else into a ring, so that no buffer is made for them.
 */
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
  readonly #targets: Target[] = [];
  #hasEnded = false;
  #isPaused = false;
  /** The bytes that are read are the rest of a message: its head was read before. */
  #isWithinBody = false;
  /** Twice as long as what may be held. What is held ends at `#ringEnd`. */
  #ring = Buffer.alloc(0);
  #ringEnd = 0;
  #windowBytes = windowBytes;
  /** Where a direct socket puts the next bytes. */
  #place: Target | "ring" | undefined;

  constructor(socket: Duplex, most = maxHeldBytes) {
    this.#socket = socket;
    this.maxHeldBytes = most;
    if (socket instanceof DirectSocket) socket.readInto(this);
    else socket.on("data", this.#onData);
    socket.on("end", this.#onEnd).on("close", this.#onClose);
  }

  /** A part of the expected bytes has come, so the rest should come soon. */
  get isWithinMessage(): boolean {
    return this.#targets.length > 0 || (this.#wake !== undefined && (this.#held > 0 || this.#isWithinBody));
  }

  /**
   * The next bytes, at most 64 KiB, where they have come; `read` waits for them. The result is a view that holds until
   * the caller waits for something: copy it to keep it.
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
    if (bytes > this.maxHeldBytes) {
      const whole = Buffer.allocUnsafe(bytes);
      return (await this.readInto(whole)) ? whole : undefined;
    }
    return this.#held >= bytes || (await this.#has(bytes)) ? this.take(bytes) : undefined;
  }

  /** As `read`, and the bytes stay. */
  async peek(bytes: number): Promise<Buffer | undefined> {
    if (this.#held < bytes && !(await this.#has(bytes))) return undefined;
    if ((this.#chunks[0] as Buffer).length - this.#taken < bytes) this.#join();
    return this.#chunks[0]?.subarray(this.#taken, this.#taken + bytes);
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

  /** Fills memory where as many bytes have come. `readInto` waits for them. */
  takeInto(target: Uint8Array): boolean {
    if (this.#held < target.length) return false;
    this.#windowBytes = target.length < longBytes ? windowBytes : headWindowBytes;
    this.#copyInto(target);
    return true;
  }

  /**
   * Fills memory as bytes come. False where the socket ends before. Several calls fill one after another, and without a
   * pause between them where the caller does not wait for each.
   */
  readInto(target: Uint8Array): Promise<boolean> {
    if (this.takeInto(target)) return Promise.resolve(true);
    const filledBytes = this.#copyInto(target);
    if (this.#hasEnded) return Promise.resolve(false);
    this.#windowBytes = target.length < longBytes ? windowBytes : headWindowBytes;
    return new Promise((resolve) => {
      this.#targets.push({ memory: target, filledBytes, resolve });
      this.#resume();
    });
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
    if (this.#socket instanceof DirectSocket) this.#socket.readInto(undefined);
    this.#socket.off("data", this.#onData).off("end", this.#onEnd).off("close", this.#onClose);
    this.#socket.pause();
    if (this.#held > 0) this.#socket.unshift(Buffer.from(this.take(this.#held) as Buffer));
  }

  /** As `Sink` has it. */
  place(): Uint8Array {
    const target = this.#targets[0];
    this.#place = target ?? "ring";
    if (target !== undefined) return target.memory.subarray(target.filledBytes);
    const bytes = 2 * this.maxHeldBytes;
    if (this.#ring.length !== bytes) {
      this.#ring = Buffer.allocUnsafeSlow(bytes);
      this.#ringEnd = 0;
    }
    if (this.#held === 0 || this.#ringEnd === bytes) this.#ringEnd = 0;
    // Half of the ring is free, and one byte more: beyond the other half the socket is not read.
    const window = Math.min(this.#windowBytes, this.maxHeldBytes);
    const free = Math.min(bytes - this.#held, bytes - this.#ringEnd, window);
    return this.#ring.subarray(this.#ringEnd, this.#ringEnd + free);
  }

  /** As `Sink` has it. */
  filled(bytes: number, memory: Uint8Array): void {
    const place = this.#place;
    if (place === undefined || place === "ring") {
      if (place === "ring") this.#ringEnd += bytes;
      this.#onData(memory.subarray(0, bytes) as Buffer);
    } else {
      place.filledBytes += bytes;
      this.#endTarget(place);
    }
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#chunks.push(chunk);
    this.#held += chunk.length;
    for (let target = this.#targets[0]; target !== undefined && this.#held > 0; target = this.#targets[0]) {
      target.filledBytes += this.#copyInto(target.memory.subarray(target.filledBytes));
      this.#endTarget(target);
    }
    if (this.#chunks.length > maxChunks) this.#join();
    if (this.#held >= this.#wanted) this.#awaken();
    if (this.#held >= this.maxHeldBytes && this.#wake === undefined) {
      this.#isPaused = true;
      this.#socket.pause();
    }
  };

  #join(): void {
    const all = Buffer.concat(this.#chunks).subarray(this.#taken);
    this.#chunks.splice(0, this.#chunks.length, all);
    this.#taken = 0;
  }

  /** Ends the first target where it is full. */
  #endTarget({ memory, filledBytes, resolve }: Target): void {
    if (filledBytes < memory.length) return;
    this.#targets.shift();
    resolve(true);
  }

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    for (const { resolve } of this.#targets.splice(0)) resolve(false);
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
