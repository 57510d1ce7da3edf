import { RpcError } from "../base/errors/rpc-error.ts";
import type { ClientStreamWriter, DuplexStreamWriter, ItemStream } from "../contract/item-stream.ts";
import { IteratedOnce } from "../session/streams/item-receiver.ts";
import type { ClientMiddlewareCall } from "./middleware-call.ts";
import type { SentItems } from "./sent-items.ts";

// Streams that go through middleware of the client. Its functions are asynchronous, and a stream is there at once: so
// what the user has waits for what the middleware gives.

type Items = AsyncIterator<unknown, unknown> & { cancel?(reason?: unknown): void };

/** The items that middleware gives, as their consumer has them. */
export class ItemsThrough extends IteratedOnce implements ItemStream<unknown> {
  readonly #call: ClientMiddlewareCall;
  readonly #items: Promise<Items>;
  #isOver = false;

  /** `given` is what the outermost middleware returns. */
  constructor(call: ClientMiddlewareCall, given: Promise<unknown>) {
    super();
    this.#call = call;
    this.#items = given.then((value) => iteratorOf(value, call.method));
    // Whoever reads hears of it.
    this.#items.catch((error: RpcError) => this.onOver(error));
  }

  async next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#isOver) return done;
    try {
      const result = await (await this.#items).next();
      if (result.done !== true) return result;
    } catch (cause) {
      // The first to read hears of an error, unless it was the consumer that ended the stream.
      if (this.#isOver) return done;
      const error = cause instanceof RpcError ? cause : this.#call.threw(cause);
      throw this.#settle(error);
    }
    const error = this.#isOver ? undefined : this.#settle(undefined);
    if (error !== undefined) throw error;
    return done;
  }

  /** The end has been read, or an error. Returns what the consumer gets. */
  #settle(error: RpcError | undefined): RpcError | undefined {
    this.#isOver = true;
    const told = this.#call.tellMetadata() ?? error;
    this.onOver(told);
    return told;
  }

  async return(): Promise<IteratorResult<unknown, undefined>> {
    this.cancel();
    return done;
  }

  cancel(reason?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.onOver(this.#call.cancel(reason));
    this.#items.then(
      (items) => {
        if (items.cancel !== undefined) items.cancel(reason);
        else items.return?.()?.catch(() => {});
      },
      () => {},
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
  }

  /** The stream is over for its consumer. Called once or more, the first time with what ended it. */
  protected onOver(_error: RpcError | undefined): void {
    this.#call.finish();
  }
}

export class DuplexThrough extends ItemsThrough implements DuplexStreamWriter<unknown, unknown> {
  readonly #sent: SentItems;

  constructor(call: ClientMiddlewareCall, given: Promise<unknown>, sent: SentItems) {
    super(call, given);
    this.#sent = sent;
  }

  send(item: unknown): Promise<void> {
    return this.#sent.send(item);
  }

  end(): Promise<void> {
    return this.#sent.end();
  }

  protected override onOver(error: RpcError | undefined): void {
    this.#sent.close(error);
    super.onOver(error);
  }
}

export class AnswerThrough implements ClientStreamWriter<unknown, unknown> {
  readonly #call: ClientMiddlewareCall;
  readonly #answer: Promise<unknown>;
  readonly #sent: SentItems;

  constructor(call: ClientMiddlewareCall, answer: Promise<unknown>, sent: SentItems) {
    this.#call = call;
    this.#answer = answer;
    this.#sent = sent;
    // Whoever calls `end` hears of an error.
    answer.then(
      () => sent.close(undefined),
      (error: RpcError) => sent.close(error),
    );
  }

  send(item: unknown): Promise<void> {
    return this.#sent.send(item);
  }

  end(): Promise<unknown> {
    // What hinders the end is the error of the answer, or the answer has come already.
    this.#sent.end().catch(() => {});
    return this.#answer.then((value) => value);
  }

  cancel(reason?: unknown): void {
    this.#sent.close(this.#call.cancel(reason));
  }
}

const done: IteratorReturnResult<undefined> = Object.freeze({ done: true, value: undefined });

function iteratorOf(value: unknown, method: string): Items {
  if (typeof value === "object" && value !== null) {
    const source = value as Partial<AsyncIterable<unknown> & Iterable<unknown>>;
    const items = source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]?.();
    if (items !== undefined) return items as Items;
  }
  const message = "middleware of the client returned no items";
  throw new RpcError({ code: "internal", message, method });
}
