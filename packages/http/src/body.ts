import { Refusal } from "./errors.ts";
import type { HttpRequest } from "./exchange.ts";

/** Bounds of the bodies that are read into memory. */
export interface BodyLimits {
  readonly maxBodyBytes: number;
  readonly maxBodyBytesInAll: number;
  readonly maxBodyMs: number;
}

/** Reads bodies of requests, each within its bounds and all within one budget of memory. */
export class BodyReader {
  readonly #limits: BodyLimits;
  #heldBytes = 0;

  constructor(limits: BodyLimits) {
    this.#limits = limits;
  }

  /**
   * The whole body of a request, for a call that has `timeoutMs`.
   *
   * @throws Refusal for a body that is too long, too slow or of another length than its `content-length`, and when the
   * client goes away.
   */
  async read(request: HttpRequest, timeoutMs?: number): Promise<Uint8Array> {
    const { maxBodyBytes, maxBodyMs } = this.#limits;
    const announced = lengthOf(request);
    if (announced !== undefined && announced > maxBodyBytes) throw tooLong(maxBodyBytes);
    const body = request.body();
    if (body === undefined) return new Uint8Array();
    const chunks: Uint8Array[] = [];
    let length = 0;
    const stop = deadline(request.signal, maxBodyMs, timeoutMs);
    try {
      for (;;) {
        const { done, value } = await Promise.race([body.read(), stop.promise]);
        if (done || value === undefined) break;
        length += value.byteLength;
        this.#heldBytes += value.byteLength;
        chunks.push(value);
        if (length > maxBodyBytes) throw tooLong(maxBodyBytes);
        if (this.#heldBytes > this.#limits.maxBodyBytesInAll)
          throw new Refusal("resource_exhausted", "the server holds too many bodies at the moment");
      }
      if (announced !== undefined && announced !== length)
        throw new Refusal(
          "invalid_argument",
          `the body has ${length} bytes, and its content-length says ${announced}`,
        );
      return chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : joined(chunks, length);
    } catch (error) {
      body.cancel().catch(() => {});
      throw error;
    } finally {
      stop.clear();
      this.#heldBytes -= length;
    }
  }
}

/** The length that the request announces. @throws Refusal for anything but digits. */
function lengthOf(request: HttpRequest): number | undefined {
  const text = request.header("content-length");
  if (text === undefined) return undefined;
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new Refusal("invalid_argument", "the content-length is not one number");
}

function tooLong(maxBodyBytes: number): Refusal {
  return new Refusal("resource_exhausted", `the body has more than ${maxBodyBytes} bytes`, 413);
}

/** A promise that rejects when the client goes away or the time for the body is over. */
function deadline(
  signal: AbortSignal,
  maxBodyMs: number,
  timeoutMs = Number.POSITIVE_INFINITY,
): { promise: Promise<never>; clear(): void } {
  let clear = () => {};
  const promise = new Promise<never>((_, reject) => {
    const gone = () => reject(new Refusal("cancelled", "the client has gone away"));
    if (signal.aborted) return gone();
    const late =
      timeoutMs < maxBodyMs
        ? new Refusal("deadline_exceeded", "the deadline has passed")
        : new Refusal("deadline_exceeded", `the body took more than ${maxBodyMs} ms`, 408);
    const timer = setTimeout(() => reject(late), Math.min(timeoutMs, maxBodyMs));
    signal.addEventListener("abort", gone, { once: true });
    clear = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", gone);
    };
  });
  promise.catch(() => {});
  return { promise, clear: () => clear() };
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
