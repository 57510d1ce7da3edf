/** A value that changes. A slow reader sees the newest one and misses those between. */
export class Newest<T> {
  readonly #readers = new Set<Reader<T>>();
  #value: T;
  #changes = 0;
  #end: { readonly error?: unknown } | undefined;

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  get ended(): boolean {
    return this.#end !== undefined;
  }

  /** Readers that have not ended. */
  get readers(): number {
    return this.#readers.size;
  }

  /** Ignored after the end. */
  set(value: T): void {
    if (this.#end !== undefined) return;
    this.#value = value;
    this.#changes += 1;
    for (const reader of this.#readers) reader.wake();
  }

  /** Readers end once they have read the newest value; with an error they throw it then. */
  end(error?: unknown): void {
    if (this.#end !== undefined) return;
    this.#end = error === undefined ? {} : { error };
    for (const reader of this.#readers) reader.wake();
  }

  /** From the present value on, or from the next one. `signal` ends it without an error. */
  read(from: "now" | "next", signal?: AbortSignal): AsyncIterableIterator<T> {
    const reader: Reader<T> = new Reader(
      {
        newest: () => ({ value: this.#value, changes: this.#changes }),
        end: () => this.#end,
        onDone: () => void this.#readers.delete(reader),
      },
      from === "now" ? -1 : this.#changes,
    );
    this.#readers.add(reader);
    if (signal !== undefined) reader.stopOn(signal);
    return reader;
  }
}

interface Source<T> {
  newest(): { readonly value: T; readonly changes: number };
  end(): { readonly error?: unknown } | undefined;
  onDone(): void;
}

class Reader<T> implements AsyncIterableIterator<T> {
  readonly #source: Source<T>;
  readonly #onAbort = () => void this.return();
  #signal: AbortSignal | undefined;
  #seen: number;
  #isDone = false;
  #wakes: (() => void)[] = [];

  constructor(source: Source<T>, seen: number) {
    this.#source = source;
    this.#seen = seen;
  }

  stopOn(signal: AbortSignal): void {
    this.#signal = signal;
    if (signal.aborted) this.#finish();
    else signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    while (!this.#isDone) {
      const { value, changes } = this.#source.newest();
      if (changes !== this.#seen) {
        this.#seen = changes;
        return { done: false, value };
      }
      const end = this.#source.end();
      if (end !== undefined) {
        this.#finish();
        if ("error" in end) throw end.error;
        break;
      }
      await new Promise<void>((resolve) => this.#wakes.push(resolve));
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    this.#finish();
    this.wake();
    return { done: true, value: undefined };
  }

  wake(): void {
    for (const wake of this.#wakes.splice(0)) wake();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #finish(): void {
    this.#isDone = true;
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#source.onDone();
  }
}
