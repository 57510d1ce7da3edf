import type { OneWayOptions } from "./call-options.ts";
import { beginCall, ClientCall } from "./client-call.ts";
import type { ClientMethod } from "./client-method.ts";

/** Makes a one-way call. The promise resolves when the request lies with the outbox of an open session. */
export function sendOneWay(
  method: ClientMethod,
  input: unknown,
  options: OneWayOptions | undefined,
): Promise<void> {
  return beginCall(OneWayCall, method, input, options) as Promise<void>;
}

/**
 * A call whose caller waits until it has left. From then on the session alone has it: it takes a place in the window
 * until the peer has executed it, or has not.
 */
class OneWayCall extends ClientCall {
  override get isOneWay(): boolean {
    return true;
  }

  override onLeft(): void {
    this.succeed(undefined, this.startedMs + this.sentUs / 1000);
  }
}
