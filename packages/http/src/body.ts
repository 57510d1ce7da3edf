import { Refusal } from "./errors.ts";
import type { BodySource, HttpRequest } from "./exchange.ts";

/** Bounds of the bodies that are read. */
export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly maxBodyBytesInAll: number;
  readonly maxBodyBytesByClient: number;
  readonly maxBodyMs: number;
  readonly maxStallMs: number;
}

/** Reads bodies of requests, each within its bounds and all within one budget of memory. */
export class BodyReader {
  readonly #limits: BodyLimits;
  #heldBytes = 0;
  /** Clients that hold nothing are absent. */
  readonly #byClient = new Map<string, number>();

  constructor(limits: BodyLimits) {
    this.#limits = limits;
  }

  /**
   * The whole body of a request of `client`, for a call that has `timeoutMs`.
   *
   * @throws Refusal for a body that is too long, too slow or of another length than its `content-length`, and when the
   * client goes away.
   */
  async read(
    request: HttpRequest,
    client: string | undefined,
    timeoutMs = Number.POSITIVE_INFINITY,
  ): Promise<Uint8Array> {
    const { maxBodyBytes, maxBodyMs } = this.#limits;
    if (request.whole !== undefined) {
      // Node gives the body of a short request after its headers, but before the next turn.
      await undefined;
      const whole = wholeOf(request, maxBodyBytes);
      if (whole !== undefined) {
        this.#hold(whole.byteLength, client);
        this.#release(whole.byteLength, client);
        return whole;
      }
    }
    const pieces = new BodyPieces(request, maxBodyBytes, {
      withinMs: Math.min(timeoutMs, maxBodyMs),
      late: () =>
        timeoutMs < maxBodyMs
          ? new Refusal("deadline_exceeded", "the deadline has passed")
          : new Refusal("deadline_exceeded", `the body took more than ${maxBodyMs} ms`, 408),
    });
    const chunks: Uint8Array[] = [];
    let length = 0;
    try {
      for (;;) {
        const piece = await pieces.next();
        if (piece === undefined) break;
        this.#hold(piece.byteLength, client);
        length += piece.byteLength;
        chunks.push(piece);
      }
      return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : joined(chunks, length);
    } finally {
      pieces.end();
      this.#release(length, client);
    }
  }

  /**
   * The whole body, which may have `maxBytes`, in memory of its own length. It may take as long as the call, but not
   * stand still. The memory counts until `release` is called.
   *
   * @throws Refusal as `read` does, and for a body without a `content-length`.
   */
  async readWhole(
    request: HttpRequest,
    client: string | undefined,
    maxBytes: number,
  ): Promise<{ readonly bytes: Uint8Array; release(): void }> {
    const pieces = this.pieces(request, maxBytes);
    let release = () => {};
    try {
      const { announced } = pieces;
      if (announced === undefined)
        throw new Refusal("failed_precondition", "the body needs a content-length", 411);
      release = this.hold(announced, client);
      const bytes = new Uint8Array(announced);
      let at = 0;
      for (;;) {
        const piece = await pieces.next();
        if (piece === undefined) return { bytes, release };
        bytes.set(piece, at);
        at += piece.byteLength;
      }
    } catch (error) {
      release();
      throw error;
    } finally {
      pieces.end();
    }
  }

  /** The pieces of a body that may take as long as its call, but not stand still. @throws Refusal for a bad length. */
  pieces(request: HttpRequest, maxBytes = Number.MAX_SAFE_INTEGER): BodyPieces {
    const { maxStallMs } = this.#limits;
    return new BodyPieces(request, maxBytes, {
      withinMs: maxStallMs,
      isByPiece: true,
      late: () => new Refusal("deadline_exceeded", `nothing of the body came within ${maxStallMs} ms`, 408),
    });
  }

  /** Counts memory of a body until the result is called, which is safe to repeat. @throws Refusal beyond the budget. */
  hold(bytes: number, client: string | undefined): () => void {
    this.#hold(bytes, client);
    let held = bytes;
    return () => {
      this.#release(held, client);
      held = 0;
    };
  }

  #hold(bytes: number, client: string | undefined): void {
    const { maxBodyBytesInAll, maxBodyBytesByClient } = this.#limits;
    const ofClient = client === undefined ? 0 : (this.#byClient.get(client) ?? 0) + bytes;
    if (this.#heldBytes + bytes > maxBodyBytesInAll || ofClient > maxBodyBytesByClient)
      throw new Refusal("resource_exhausted", "the server holds too many bodies at the moment", 429, [
        ["retry-after", "1"],
      ]);
    this.#heldBytes += bytes;
    if (client !== undefined) this.#byClient.set(client, ofClient);
  }

  #release(bytes: number, client: string | undefined): void {
    this.#heldBytes -= bytes;
    if (client === undefined) return;
    const left = (this.#byClient.get(client) ?? 0) - bytes;
    if (left > 0) this.#byClient.set(client, left);
    else this.#byClient.delete(client);
  }
}

/** When a body is too slow. */
interface Pace {
  readonly withinMs: number;
  /** Whether each piece has that time; otherwise all have it together. */
  readonly isByPiece?: boolean;
  late(): Refusal;
}

/** One body while it is read, piece by piece. Its owner calls `end`. */
export class BodyPieces {
  /** The `content-length`, or what `expect` was given. */
  announced: number | undefined;
  readonly #body: BodySource | undefined;
  readonly #maxBytes: number;
  readonly #signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #length = 0;
  /** When the wait for the next piece began; undefined while the reader is busy with the last, or the client may be silent. */
  #waitingSinceMs: number | undefined;
  #failure: Refusal | undefined;

  /** @throws Refusal for a `content-length` that is too long or no number. */
  constructor(request: HttpRequest, maxBytes: number, pace?: Pace) {
    this.announced = lengthOf(request);
    this.#maxBytes = maxBytes;
    this.#signal = request.signal;
    if (this.announced !== undefined && this.announced > maxBytes) throw tooLong(maxBytes);
    this.#body = request.body();
    if (this.#body === undefined) return;
    if (this.#signal.aborted) this.#onGone();
    else this.#signal.addEventListener("abort", this.#onGone, { once: true });
    if (pace !== undefined) this.#timer = setTimeout(() => this.#onTime(pace), pace.withinMs);
  }

  /**
   * The next bytes; undefined at the end. `mayBeSilent` is true where the client owes nothing: its pace does not count.
   *
   * @throws Refusal for a body that is too long, too slow, cut off, or of another length than its `content-length`.
   */
  async next(mayBeSilent = false): Promise<Uint8Array | undefined> {
    if (this.#failure !== undefined) throw this.#failure;
    this.#waitingSinceMs = mayBeSilent ? undefined : performance.now();
    let read: Awaited<ReturnType<BodySource["read"]>> | undefined;
    try {
      read = await this.#body?.read();
    } catch {
      this.#failure ??= new Refusal("cancelled", "the body was cut off");
    }
    const { done, value } = read ?? { done: true };
    this.#waitingSinceMs = undefined;
    if (this.#failure !== undefined) throw this.#failure;
    if (done || value === undefined) {
      if (this.#body !== undefined && this.announced !== undefined && this.announced !== this.#length)
        throw otherLength(this.#length, this.announced);
      return undefined;
    }
    this.#length += value.byteLength;
    if (this.#length > this.#maxBytes) throw tooLong(this.#maxBytes);
    if (this.announced !== undefined && this.#length > this.announced)
      throw otherLength(this.#length, this.announced);
    return value;
  }

  /** The body must have this length. @throws Refusal for another `content-length`. */
  expect(bytes: number): void {
    if (this.announced !== undefined && this.announced !== bytes)
      throw new Refusal("invalid_argument", "the content-range and the content-length differ");
    this.announced = bytes;
  }

  /** Ends the body: a waiting `next` throws `reason`. */
  stop(reason: Refusal): void {
    this.#failure ??= reason;
    this.#body?.cancel().catch(() => {});
  }

  /** The timer and the listener are not needed any more. A body that has not come to its end is not read on. */
  end(): void {
    clearTimeout(this.#timer);
    this.#signal.removeEventListener("abort", this.#onGone);
    this.#body?.cancel().catch(() => {});
  }

  readonly #onGone = (): void => this.stop(new Refusal("cancelled", "the client has gone away"));

  #onTime(pace: Pace): void {
    const { withinMs, isByPiece = false, late } = pace;
    const since = this.#waitingSinceMs ?? performance.now();
    const leftMs = isByPiece ? since + withinMs - performance.now() : 0;
    if (leftMs > 0) this.#timer = setTimeout(() => this.#onTime(pace), Math.ceil(leftMs));
    else this.stop(late());
  }
}

/** A body that has come already. @throws Refusal as `BodyPieces` does. */
function wholeOf(request: HttpRequest, maxBytes: number): Uint8Array | undefined {
  const announced = lengthOf(request);
  if (announced !== undefined && announced > maxBytes) throw tooLong(maxBytes);
  const whole = request.whole?.();
  if (whole === undefined) return undefined;
  if (whole.byteLength > maxBytes) throw tooLong(maxBytes);
  if (announced !== undefined && whole.byteLength !== announced)
    throw otherLength(whole.byteLength, announced);
  return whole;
}

function tooLong(maxBytes: number): Refusal {
  return new Refusal("resource_exhausted", `the body has more than ${maxBytes} bytes`, 413);
}

function otherLength(bytes: number, announced: number): Refusal {
  return new Refusal("invalid_argument", `the body has ${bytes} bytes, and its headers say ${announced}`);
}

/** The length that the request announces. @throws Refusal for anything but digits. */
function lengthOf(request: HttpRequest): number | undefined {
  const text = request.header("content-length");
  if (text === undefined) return undefined;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new Refusal("invalid_argument", "the content-length is not one number");
}

function joined(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.byteLength;
  }
  return all;
}
