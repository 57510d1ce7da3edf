import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../../base/errors/rpc-error.ts";
import { OutgoingCall, type RequestTerms } from "../../call/outgoing-call.ts";
import type { ControlRequestOptions, ControlRequestSender, PeerLink, TransferScope } from "./peer-link.ts";

const defaultTimeoutMs = 10_000;
const controlTerms: RequestTerms = {
  priority: "normal",
  failsWhenFull: false,
  isOneWay: false,
  isBuiltin: true,
  key: undefined,
};

/** A request by a control method, from one engine to another. Users do not call these methods. */
export class ControlRequest extends OutgoingCall {
  override readonly terms = controlTerms;
  readonly promise: Promise<unknown>;
  readonly #sender: ControlRequestSender;
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
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.listen(signal);
    if (this.settled) return;
    const { clock, wheel } = sender.services;
    const nowMs = clock.now();
    wheel.arm(this, nowMs + timeoutMs + graceMs);
    try {
      sender.request(this, method, nowMs + timeoutMs, input, nowMs);
    } catch (error) {
      this.#fail(error as RpcError);
    }
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
      this.endEarly("deadline_exceeded", `${this.#sender.peerName} did not answer in the time there was`);
  }

  /** The served call of this request has ended with `reason`, or a user has stopped it. */
  override onAbort(reason: unknown): void {
    if (this.settled) return;
    if (reason instanceof RpcError) this.#giveUp(reason);
    else this.endEarly("cancelled", "the caller gave up", { cause: reason });
  }

  protected override endEarly(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#giveUp(new RpcError({ origin: "local", ...more, code, message }));
  }

  #giveUp(error: RpcError): void {
    this.#fail(error);
    this.#sender.cancel(this);
  }

  #fail(error: RpcError): void {
    this.#settle();
    this.#reject(error);
  }

  #settle(): void {
    this.phase = "settled";
    this.#sender.services.wheel.disarm(this);
    this.unlisten();
  }
}

/**
 * Sends a control request that belongs to `scope`, a call: it ends with the call.
 *
 * @throws RpcError the peer's answer; the error that ended the call; `failed_precondition` after the call was answered.
 */
export function requestInCall(
  scope: TransferScope,
  peer: PeerLink,
  method: number,
  input: readonly unknown[],
): Promise<unknown> {
  scope.assertOpen();
  const timeoutMs = Math.max(1, scope.deadlineMs - peer.clock.now());
  return peer.request(method, input, { timeoutMs, signal: scope.signal });
}

/** The error for an answer of a wrong form. */
export function unexpected(peer: PeerLink): RpcError {
  return new RpcError({
    code: "internal",
    message: `${peer.peerName} sent a malformed answer to a control request`,
    origin: "remote",
  });
}
