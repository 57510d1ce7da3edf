/** Bytes that may be under way at the same time. Callers are served in order. */
export class Credit {
  /** How many bytes there are in all. */
  readonly most: number;
  #free: number;
  readonly #waiting: { readonly bytes: number; readonly resolve: () => void }[] = [];

  constructor(bytes: number) {
    this.most = bytes;
    this.#free = bytes;
  }

  /** Bytes that are taken. */
  get taken(): number {
    return this.most - this.#free;
  }

  /** Takes bytes, at most all, or resolves when they are free and taken. The caller gives them back. */
  take(bytes: number): Promise<void> | undefined {
    if (this.#waiting.length === 0 && this.#free >= bytes) {
      this.#free -= bytes;
      return undefined;
    }
    return new Promise<void>((resolve) => this.#waiting.push({ bytes, resolve }));
  }

  giveBack(bytes: number): void {
    this.#free += bytes;
    for (
      let next = this.#waiting[0];
      next !== undefined && this.#free >= next.bytes;
      next = this.#waiting[0]
    ) {
      this.#waiting.shift();
      this.#free -= next.bytes;
      next.resolve();
    }
  }
}
