import { RpcError } from "cinnabar/contract/standard";
import { type CallErrors, rpcError } from "./call-errors.ts";

/** The options of one call. */
export interface HttpCallOptions {
  /** The deadline of this call, in milliseconds; of a stream, until its end. Default: the client's. */
  readonly timeoutMs?: number | undefined;
  /** Cancels the call or the stream. It fails with `cancelled`, or with `deadline_exceeded` for `AbortSignal.timeout`. */
  readonly signal?: AbortSignal | undefined;
  /** Headers of this call, beside the client's. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /** Receives the headers of the answer. A page of another origin sees those that the server exposes. */
  readonly onHeaders?: ((headers: Headers) => void) | undefined;
  /** Receives the trailers of the answer, the error or the stream. */
  readonly onTrailers?: ((trailers: Headers) => void) | undefined;
}

/** One call while it runs: its deadline, the caller's signal, and what its failure means. */
export class Attempt {
  readonly timeoutMs: number | undefined;
  readonly #stop = new AbortController();
  readonly #errors: CallErrors;
  readonly #caller: AbortSignal | undefined;
  readonly #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(errors: CallErrors, { signal }: HttpCallOptions, timeoutMs: number | undefined) {
    this.#errors = errors;
    this.#caller = signal;
    this.timeoutMs = timeoutMs;
    if (timeoutMs !== undefined)
      this.#timer = setTimeout(
        () => this.#stop.abort(this.#error("deadline_exceeded", `no answer within ${timeoutMs} ms`)),
        timeoutMs,
      );
    if (signal?.aborted === true) this.#onAbort();
    else signal?.addEventListener("abort", this.#onAbort);
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Ends the request, where it has not ended. */
  cancel(): void {
    this.#stop.abort(this.#error("cancelled", "the caller gave up"));
    this.end();
  }

  /** Ends the request with an error that is the caller's own. */
  fail(error: unknown): void {
    this.#stop.abort(error);
  }

  /** The timer and the listener are not needed any more. */
  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#onAbort);
  }

  /** What a failure of the request means. `fetch` says nothing more than that there is no answer. */
  errorOf(thrown: unknown): unknown {
    if (thrown instanceof RpcError) return thrown;
    if (this.signal.aborted) return this.signal.reason;
    if (thrown instanceof TypeError || thrown instanceof DOMException)
      return this.#error("unavailable", "the server cannot be reached", thrown);
    if (thrown instanceof Error && thrown.name !== "Error")
      return this.#error("internal", "the answer is no message of the contract", thrown);
    return thrown;
  }

  readonly #onAbort = (): void => {
    const reason: unknown = this.#caller?.reason;
    const isTimeout = (reason as Error | undefined)?.name === "TimeoutError";
    this.#stop.abort(
      this.#error(isTimeout ? "deadline_exceeded" : "cancelled", "the caller gave up", reason),
    );
  };

  #error(code: RpcError["code"], message: string, cause?: unknown): RpcError {
    return rpcError(code, message, this.#errors.path, cause);
  }
}
