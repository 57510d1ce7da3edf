import type { AsyncResource } from "node:async_hooks";

interface AnyIterator {
  next(): unknown;
  return?(value: unknown): unknown;
}

interface IterableItems {
  readonly next?: unknown;
  readonly [Symbol.asyncIterator]?: () => AnyIterator;
  readonly [Symbol.iterator]?: () => AnyIterator;
}

/**
 * Items with an iterator that runs in the async context `here`. Otherwise a generator's body would run in the contexts
 * of its consumers, which are turns of the engine. A value that is not iterable is returned unchanged.
 */
export function itemsBoundTo(here: AsyncResource, source: unknown): unknown {
  if (typeof source !== "object" || source === null || source instanceof BoundIterator) return source;
  // No code of a user runs between the items of an array.
  if (Array.isArray(source)) return source;
  const items = source as IterableItems;
  const begin = items[Symbol.asyncIterator] ?? items[Symbol.iterator];
  if (typeof begin !== "function") return source;
  const bound = () => new BoundIterator(here, here.runInAsyncScope(begin, items));
  return isIterator(source) ? bound() : { [Symbol.asyncIterator]: bound };
}

/** True for a value with a `next` method, like a generator. */
export function isIterator(source: unknown): boolean {
  return (
    typeof source === "object" && source !== null && typeof (source as IterableItems).next === "function"
  );
}

/** The results are those of the source: promises, or plain results of a synchronous source. */
class BoundIterator {
  readonly #here: AsyncResource;
  readonly #source: AnyIterator;

  constructor(here: AsyncResource, source: AnyIterator) {
    this.#here = here;
    this.#source = source;
  }

  next(): unknown {
    return this.#here.runInAsyncScope(this.#source.next, this.#source);
  }

  return(value?: unknown): unknown {
    const { return: end } = this.#source;
    return end === undefined ? { done: true, value } : this.#here.runInAsyncScope(end, this.#source, value);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  [Symbol.iterator](): this {
    return this;
  }
}
