/** Calls that wait for the answer of their number: what one writes by hand where a library only carries messages. */
export class Waiting<Answer> {
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  #last = 0;

  /** `send` is given the number that the answer will have. */
  call(send: (id: number) => void): Promise<Answer> {
    return new Promise((resolve) => {
      this.#last = (this.#last + 1) >>> 0;
      this.#waiting.set(this.#last, resolve);
      send(this.#last);
    });
  }

  answer(id: number, answer: Answer): void {
    const resolve = this.#waiting.get(id);
    this.#waiting.delete(id);
    resolve?.(answer);
  }
}
