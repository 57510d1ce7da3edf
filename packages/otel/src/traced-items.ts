import { type Context, context } from "@opentelemetry/api";

type AnyIterable = AsyncIterable<unknown> | Iterable<unknown>;
type AnyIterator = Pick<AsyncIterator<unknown>, "next" | "return"> & { cancel?(reason?: unknown): void };

/** Whether it has items. A handler that returns anything else fails behind its middleware. */
export function isIterable(value: unknown): value is AnyIterable {
  if (typeof value !== "object" || value === null) return false;
  return Symbol.asyncIterator in value || Symbol.iterator in value;
}

/**
 * The items of a stream, passed on. `onEnd` is called when they end: with their error, with undefined for a normal end,
 * or with null when the reader stops early.
 */
export class TracedItems implements AsyncIterableIterator<unknown> {
  readonly #items: AnyIterator;
  readonly #context: Context;
  readonly #onEnd: (error: unknown) => void;

  constructor(items: AnyIterable, inside: Context, onEnd: (error: unknown) => void) {
    const iterator = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]();
    this.#items = iterator as AnyIterator;
    this.#context = inside;
    this.#onEnd = onEnd;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<unknown>> {
    try {
      const result = await context.with(this.#context, () => this.#items.next());
      if (result.done === true) this.#onEnd(undefined);
      return result;
    } catch (error) {
      this.#onEnd(error);
      throw error;
    }
  }

  async return(): Promise<IteratorResult<unknown>> {
    this.#onEnd(null);
    await this.#items.return?.();
    return { done: true, value: undefined };
  }

  cancel(reason?: unknown): void {
    this.#onEnd(null);
    if (this.#items.cancel !== undefined) this.#items.cancel(reason);
    else this.#items.return?.()?.catch(() => {});
  }
}
