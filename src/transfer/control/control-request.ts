import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { OutgoingCall, regionRevoked } from "../../call/outgoing-call.ts";
import type { ControlRequestOptions, ControlRequestSender, PeerLink } from "./peer-link.ts";
import type { TransferScope } from "./transfer-route.ts";

const defaultTimeoutMs = 10_000;

/** A request by a control method: what one engine asks another, beyond what users call. */
export class ControlRequest extends OutgoingCall {
  readonly promise: Promise<unknown>;
  readonly #sender: ControlRequestSender;
  readonly #signal: AbortSignal | undefined;
  #resolve!: (value: unknown) => void;
  #reject!: (error: RpcError) => void;

  constructor(
    sender: ControlRequestSender,
    method: number,
    input: unknown,
    { timeoutMs = defaultTimeoutMs, graceMs = 0, signal }: ControlRequestOptions = {},
  ) {
    super();
    this.#sender = sender;
    this.#signal = signal;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (signal?.aborted === true) {
      this.#onAbort();
      return;
    }
    signal?.addEventListener("abort", this.#onAbort);
    const { clock, wheel } = sender.services;
    const nowMs = clock.now();
    wheel.arm(this, nowMs + timeoutMs + graceMs);
    try {
      sender.request(this, method, nowMs + timeoutMs, input, nowMs);
    } catch (error) {
      this.#fail(error as RpcError);
    }
  }

  override get builtin(): boolean {
    return true;
  }

  override onValue(value: unknown): void {
    this.#settle();
    this.#resolve(value);
  }

  override onFailure(error: RpcError): void {
    this.#fail(error);
  }

  override onDeadline(): void {
    if (!this.settled)
      this.#giveUp("deadline_exceeded", `${this.#sender.peerName} did not answer in the time there was`);
  }

  override onRevoked(): void {
    if (!this.settled) this.#giveUp("aborted", regionRevoked);
  }

  readonly #onAbort = (): void => {
    if (this.settled) return;
    const reason: unknown = this.#signal?.reason;
    if (!(reason instanceof RpcError)) return this.#giveUp("cancelled", "the caller gave up", reason);
    this.#fail(reason);
    this.#sender.cancel(this);
  };

  #giveUp(code: RpcCode, message: string, cause?: unknown): void {
    this.#fail(new RpcError({ code, message, origin: "local", ...(cause === undefined ? {} : { cause }) }));
    this.#sender.cancel(this);
  }

  #fail(error: RpcError): void {
    this.#settle();
    this.#reject(error);
  }

  #settle(): void {
    this.phase = "settled";
    this.#sender.services.wheel.disarm(this);
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }
}

/**
 * Sends a control request that belongs to `scope`, a call: it ends with the call.
 *
 * @throws RpcError the peer's answer; what the call ended with; `failed_precondition` after the call was answered.
 */
export function requestInCall(
  scope: TransferScope,
  session: PeerLink,
  method: number,
  input: readonly unknown[],
): Promise<unknown> {
  scope.assertOpen();
  const timeoutMs = Math.max(1, scope.deadlineMs - session.clock.now());
  return session.request(method, input, { timeoutMs, signal: scope.signal });
}

/** The error for an answer of a wrong form. */
export function unexpected(session: PeerLink): RpcError {
  return new RpcError({
    code: "internal",
    message: `${session.peerName} sent a malformed answer to a control request`,
    origin: "remote",
  });
}
