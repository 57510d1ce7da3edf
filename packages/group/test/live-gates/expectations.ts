/** What takes longer than this never happens. */
const patienceMs = 180_000;

/** Waits for conditions that events make true. */
export class Expectations {
  readonly #checks = new Set<() => void>();

  /** Resolves when it is so; rejects with an Error when it takes too long. */
  async until(what: string, isSo: () => boolean): Promise<void> {
    let check = () => {};
    let timer: NodeJS.Timeout | undefined;
    try {
      await new Promise<void>((resolve, reject) => {
        check = () => isSo() && resolve();
        this.#checks.add(check);
        timer = setTimeout(() => reject(new Error(`not after ${patienceMs} ms: ${what}`)), patienceMs);
        check();
      });
    } finally {
      clearTimeout(timer);
      this.#checks.delete(check);
    }
  }

  /** Looks at all that is waited for. */
  check(): void {
    for (const check of [...this.#checks]) check();
  }
}
