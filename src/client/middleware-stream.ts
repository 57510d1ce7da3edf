import { RpcError } from "../base/errors/rpc-error.ts";
import type { Middleware } from "../call/middleware.ts";
import type { AnyService } from "../contract/service.ts";
import type { ItemDirections } from "../transfer/control/control-method.ts";
import type { StreamCallOptions } from "./call-options.ts";
import type { ClientMethod } from "./client-method.ts";
import type { ReadInputs } from "./item-queue.ts";
import { ClientMiddlewareCall } from "./middleware-call.ts";
import type { StreamCall } from "./stream-call.ts";
import { Outputs, type UserStream } from "./user-stream.ts";

/** Begins a stream for `next()`. `given`: the items of the caller, or the input if the caller sends no items. */
export type BeginStream = (given: unknown, options: StreamCallOptions) => StreamCall;

type AnyItems = AsyncIterator<unknown, unknown> & { cancel?(reason?: unknown): void };

const done: IteratorReturnResult<undefined> = Object.freeze({ done: true, value: undefined });

/**
 * A stream through the middleware of a client. Middleware is asynchronous, but the user has the stream at once. So the
 * user's stream waits for the stream that the middleware returns.
 */
export class MiddlewareStream extends ClientMiddlewareCall implements UserStream {
  readonly #hasOutputs: boolean;
  readonly #begin: BeginStream;
  /** The open streams that `next()` has opened, and the newest stream. */
  #streams: StreamCall[] = [];
  /** The items that the user sends one by one. */
  #inputs: ReadInputs | undefined;
  #answer: Promise<unknown> | undefined;
  #items: Promise<AnyItems> | undefined;
  /** The user has read the end or an error, or has stopped reading. */
  #isOver = false;

  constructor(
    contract: AnyService,
    method: ClientMethod,
    { inputs, outputs }: ItemDirections,
    items: unknown,
    input: unknown,
    options: StreamCallOptions | undefined,
    begin: BeginStream,
  ) {
    super(contract, method, inputs ? items : input, options, inputs ? input : undefined);
    this.#hasOutputs = outputs;
    this.#begin = begin;
  }

  protected override get givesItems(): boolean {
    return this.#hasOutputs;
  }

  /** Runs the middleware. */
  open(chain: readonly Middleware[], inputs?: ReadInputs): this {
    this.#inputs = inputs;
    const given = this.run(chain, (items, options) => this.#make(items, options));
    if (this.givesItems) {
      this.#items = given.then((value) => iteratorOf(value, this.method));
      // The reader receives the error.
      this.#items.catch((error: RpcError) => this.#onOver(error));
    } else {
      this.#answer = given;
      // The caller of `end` receives the error.
      if (inputs !== undefined)
        given.then(
          () => inputs.close(undefined),
          (error: RpcError) => inputs.close(error),
        );
    }
    return this;
  }

  async #make(given: unknown, options: StreamCallOptions): Promise<unknown> {
    const stream = this.#begin(given, options);
    this.#streams = this.#streams.filter(({ settled }) => !settled);
    this.#streams.push(stream);
    if (!this.givesItems) return stream.answered();
    await stream.begun();
    return new Outputs(stream);
  }

  /** The error of the newest stream. */
  get streamFailure(): RpcError | undefined {
    return this.#streams.at(-1)?.failure;
  }

  answered(): Promise<unknown> {
    return (this.#answer as Promise<unknown>).then((value) => value);
  }

  async next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#isOver) return done;
    try {
      const result = await (await (this.#items as Promise<AnyItems>)).next();
      if (result.done !== true) return result;
    } catch (cause) {
      // The first reader receives the error, unless the consumer ended the stream.
      if (this.#isOver) return done;
      throw this.#readTo(this.errorFrom(cause));
    }
    const error = this.#isOver ? undefined : this.#readTo(undefined);
    if (error !== undefined) throw error;
    return done;
  }

  /** The consumer has read the end or an error. Returns what the consumer receives. */
  #readTo(error: RpcError | undefined): RpcError | undefined {
    this.#isOver = true;
    const reported = this.reportTrailers() ?? error;
    this.#onOver(reported);
    return reported;
  }

  async return(): Promise<IteratorResult<unknown, undefined>> {
    this.cancel();
    return done;
  }

  cancel(reason?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const more = reason === undefined ? {} : { cause: reason };
    const error = this.errorOf("cancelled", "the stream was cancelled", more);
    this.end(error);
    this.finish(reason);
    this.#onOver(error);
    this.#items?.then(
      (items) => {
        if (items.cancel !== undefined) items.cancel(reason);
        else items.return?.()?.catch(() => {});
      },
      () => {},
    );
  }

  /** The stream has ended for its consumer, with this error if there was one. */
  #onOver(error: RpcError | undefined): void {
    this.#inputs?.close(error);
    this.finish();
  }

  /** Ends the streams that middleware has left open, and notifies their readers. */
  protected override finish(reason?: unknown): void {
    for (const stream of this.#streams.splice(0)) stream.abandon(reason);
  }
}

function iteratorOf(value: unknown, method: string): AnyItems {
  if (typeof value === "object" && value !== null) {
    const source = value as Partial<AsyncIterable<unknown> & Iterable<unknown>>;
    const items = source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]?.();
    if (items !== undefined) return items as AnyItems;
  }
  const message = "middleware of the client returned no items";
  throw new RpcError({ code: "internal", message, method });
}
