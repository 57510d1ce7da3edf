import type { RpcError } from "cinnabar/standard";

/** The answer to a question. */
export type Answer<T> = { readonly value: T; readonly error?: undefined } | { readonly error: RpcError };

/**
 * A request of the side that moves the bytes. It stays unanswered while this side must wait for room, or for bytes. The
 * end of the stream's call answers it at the latest.
 */
export class Question<T> {
  #answer: Answer<T> | undefined;
  #resolve: ((value: T) => void) | undefined;
  #reject: ((error: RpcError) => void) | undefined;

  /** Whether an answer is still expected. */
  get open(): boolean {
    return this.#answer === undefined;
  }

  settle(answer: Answer<T>): void {
    if (this.#answer !== undefined) return;
    this.#answer = answer;
    if (answer.error === undefined) this.#resolve?.(answer.value);
    else this.#reject?.(answer.error);
  }

  /** The answer as the handler of the request returns it: at once if it is known. Throws the error. */
  get answer(): T | Promise<T> {
    const answer = this.#answer;
    if (answer === undefined)
      return new Promise((resolve, reject) => {
        this.#resolve = resolve;
        this.#reject = reject;
      });
    if (answer.error !== undefined) throw answer.error;
    return answer.value;
  }
}
