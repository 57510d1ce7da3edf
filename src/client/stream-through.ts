import type {
  ClientStreamWriter,
  DuplexStreamWriter,
  ItemSource,
  ItemStream,
} from "../contract/item-stream.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { ClientMiddlewareCall } from "./middleware-call.ts";

// Streams that go through middleware of the client. Its functions are asynchronous, and a stream is there at once: so
// what the user has waits for what the middleware gives.

type Items = AsyncIterator<unknown, unknown> & { cancel?(reason?: unknown): void };

/** The items that middleware gives, as their consumer has them. */
export class ItemsThrough implements ItemStream<unknown> {
  readonly #call: ClientMiddlewareCall;
  readonly #items: Promise<Items>;
  #ended = false;

  /** `given` is what the outermost middleware returns. */
  constructor(call: ClientMiddlewareCall, given: Promise<unknown>) {
    this.#call = call;
    this.#items = given.then((value) => iteratorOf(value, call.method));
    // Whoever reads hears of it.
    this.#items.catch(() => {});
  }

  async next(): Promise<IteratorResult<unknown, undefined>> {
    if (this.#ended) return { done: true, value: undefined };
    try {
      const result = await (await this.#items).next();
      if (result.done !== true) return result;
    } catch (error) {
      if (!this.#ended) {
        this.#ended = true;
        throw error;
      }
    }
    this.#ended = true;
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<unknown, undefined>> {
    this.cancel();
    return { done: true, value: undefined };
  }

  cancel(reason?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#call.cancel(reason);
    this.#items.then(
      (items) => {
        if (items.cancel === undefined) void items.return?.();
        else items.cancel(reason);
      },
      () => {},
    );
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
  }
}

/** Items that a user sends one by one, as the iterable that middleware sees. */
export class SentItems {
  readonly source: ItemSource<unknown>;
  readonly #writer: WritableStreamDefaultWriter<unknown>;

  constructor() {
    const { readable, writable } = new TransformStream<unknown, unknown>();
    this.source = readable as unknown as ItemSource<unknown>;
    this.#writer = writable.getWriter();
    this.#writer.closed.catch(() => {});
  }

  async send(item: unknown): Promise<void> {
    await this.#writer.write(item).catch((cause: unknown) => {
      throw new RpcError({ code: "failed_precondition", message: "the stream takes no more items", cause });
    });
  }

  async end(): Promise<void> {
    await this.#writer.close().catch(() => {});
  }

  cancel(): void {
    this.#writer.abort().catch(() => {});
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

  override cancel(reason?: unknown): void {
    super.cancel(reason);
    this.#sent.cancel();
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
    // Whoever calls `end` hears of it.
    answer.catch(() => {});
  }

  send(item: unknown): Promise<void> {
    return this.#sent.send(item);
  }

  end(): Promise<unknown> {
    void this.#sent.end();
    return this.#answer.then((value) => value);
  }

  cancel(reason?: unknown): void {
    this.#call.cancel(reason);
    this.#sent.cancel();
  }
}

function iteratorOf(value: unknown, method: string): Items {
  if (typeof value === "object" && value !== null) {
    const source = value as Partial<AsyncIterable<unknown> & Iterable<unknown>>;
    const items = source[Symbol.asyncIterator]?.() ?? source[Symbol.iterator]?.();
    if (items !== undefined) return items as Items;
  }
  const message = "middleware of the client returned no items";
  throw new RpcError({ code: "internal", message, method });
}
