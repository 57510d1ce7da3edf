import type { ItemStream } from "cinnabar/contract/standard";
import type { EndMessage } from "../connect-codes.ts";
import { EnvelopeReader } from "../envelopes.ts";
import type { Attempt } from "./attempt.ts";
import { type CallErrors, rpcError } from "./call-errors.ts";

/** The longest message that is taken. A longer one is no message of ours, but a page or a wrong length. */
const maxMessageBytes = 2 ** 26;

function assertShort(length: number): void {
  if (length > maxMessageBytes) throw new RangeError(`the message has ${length} bytes`);
}

const done = { done: true, value: undefined } as const;

/** The items of a server stream, read from Connect's envelopes. */
export class HttpItemStream implements ItemStream<unknown> {
  readonly #attempt: Attempt;
  readonly #errors: CallErrors;
  readonly #opened: Promise<EnvelopeReader>;
  readonly #read: (json: unknown) => Promise<unknown>;
  readonly #onTrailers: ((trailers: Headers) => void) | undefined;
  /** Settles when all reads before have: several may wait at the same time. */
  #last: Promise<unknown> = Promise.resolve();
  #hasEnded = false;

  constructor(
    attempt: Attempt,
    errors: CallErrors,
    open: () => Promise<Response>,
    read: (json: unknown) => Promise<unknown>,
    onTrailers: ((trailers: Headers) => void) | undefined,
  ) {
    this.#attempt = attempt;
    this.#errors = errors;
    this.#read = read;
    this.#onTrailers = onTrailers;
    this.#opened = open().then(({ body }) => new EnvelopeReader(body?.getReader()));
    // Only the iteration throws.
    this.#opened.catch(() => {});
  }

  next(): Promise<IteratorResult<unknown, undefined>> {
    const result = this.#last.then(() => this.#next());
    this.#last = result.catch(() => {});
    return result;
  }

  async #next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#hasEnded) return done;
    try {
      const message = await (await this.#opened).next(assertShort);
      if (message === undefined)
        throw rpcError("unavailable", "the stream was cut off before its end", this.#errors.path);
      const json: unknown = JSON.parse(new TextDecoder().decode(message.bytes));
      if ((message.flags & 2) === 0) return { done: false, value: await this.#read(json) };
      const { error, metadata } = json as EndMessage;
      this.#onTrailers?.(trailersOf(metadata ?? {}));
      if (error !== undefined) throw await this.#errors.ofJson(error, "unknown", "the stream failed");
      this.#end();
      return done;
    } catch (error) {
      // A read after `cancel` ends as at the end of the stream.
      if (this.#hasEnded) return done;
      const failure = this.#attempt.errorOf(error);
      this.cancel();
      throw failure;
    }
  }

  async return(): Promise<IteratorResult<unknown, undefined>> {
    this.cancel();
    return done;
  }

  cancel(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#attempt.cancel();
  }

  async toArray(): Promise<unknown[]> {
    const items: unknown[] = [];
    for await (const item of this) items.push(item);
    return items;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
  }

  #end(): void {
    this.#hasEnded = true;
    this.#attempt.end();
  }
}

function trailersOf(metadata: Readonly<Record<string, readonly string[]>>): Headers {
  const trailers = new Headers();
  for (const [name, values] of Object.entries(metadata))
    for (const value of values) trailers.append(name, value);
  return trailers;
}
