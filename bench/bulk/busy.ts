const stretchMs = 50;

/** Has this thread compute, 50 ms at a time; the event loop turns once in between. */
export class Busy {
  #next: NodeJS.Immediate | undefined;

  set(isBusy: boolean): void {
    clearImmediate(this.#next);
    this.#next = isBusy ? setImmediate(this.#stretch) : undefined;
  }

  readonly #stretch = (): void => {
    const until = performance.now() + stretchMs;
    while (performance.now() < until);
    this.#next = setImmediate(this.#stretch);
  };
}
