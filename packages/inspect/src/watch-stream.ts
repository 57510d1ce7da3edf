/**
 * A stream that sends an item now, if there is one, and then whenever there is another. It ends with its call. A slow
 * reader delays nothing: items are made when they can be sent. No generator: one that waits cannot be ended.
 */
export abstract class WatchStream<T> implements AsyncIterable<T>, AsyncIterator<T, undefined> {
  #stop: (() => void) | undefined;
  #isOver = false;
  #error: Error | undefined;
  #onWoken: (() => void) | undefined;

  constructor(signal: AbortSignal) {
    if (signal.aborted) this.#isOver = true;
    else signal.addEventListener("abort", () => this.#end(), { once: true });
  }

  /** Called once, before the first item is taken. The returned function is called at the end. */
  protected abstract start(): () => void;
  /** The next item. Undefined: no item is ready, and `wake` is called when one may be ready. */
  protected abstract take(): T | undefined;

  /** Ends the stream with this error. */
  fail(error: Error): void {
    this.#error = error;
    this.#end();
  }

  protected wake(): void {
    this.#onWoken?.();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    for (;;) {
      if (this.#error !== undefined) throw this.#error;
      if (this.#isOver) return { done: true, value: undefined };
      this.#stop ??= this.start();
      const item = this.take();
      if (item !== undefined) return { done: false, value: item };
      await new Promise<void>((resolve) => {
        this.#onWoken = resolve;
      });
      this.#onWoken = undefined;
    }
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    this.#end();
    return { done: true, value: undefined };
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#stop?.();
    this.wake();
  }
}
