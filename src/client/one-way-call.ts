import type { OneWayCallOptions } from "./call-options.ts";
import { ClientCall, type Resolve, resolveNone } from "./client-call.ts";
import type { ClientMethod } from "./client-method.ts";

/** Makes a one-way call. The promise resolves when the request lies with the outbox of an open session. */
export function sendOneWay(
  method: ClientMethod,
  input: unknown,
  options: OneWayCallOptions | undefined,
): Promise<void> {
  const call = new OneWayCall(method, resolveNone, options);
  call.begin(input, options);
  return call.left();
}

/**
 * A call whose caller waits until it has left. From then on the session alone has it: it takes a place in the window
 * until the peer has executed it, or has not. Thousands may be in flight, so none keeps the promise of its caller.
 */
class OneWayCall extends ClientCall {
  /** While it waits: what resolves the promise. When it has failed before that was made: the rejected promise. */
  #caller: Resolve | Promise<void> | undefined;

  /**
   * The promise of the caller, who asks once. Most calls have left by then: such a promise needs no functions that
   * settle it.
   */
  left(): Promise<void> {
    if (this.settled) return Promise.resolve(this.#caller as Promise<void> | undefined);
    return new Promise((resolve) => {
      this.#caller = resolve as Resolve;
    });
  }

  protected override resolve(value: unknown): void {
    const caller = this.#caller as Resolve | undefined;
    this.#caller = caller === undefined ? (value as Promise<void> | undefined) : undefined;
    caller?.(value);
  }

  override get isOneWay(): boolean {
    return true;
  }

  override onLeft(): void {
    this.succeed(undefined, this.startedMs + this.sentUs / 1000);
  }
}
