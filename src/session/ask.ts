import { OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "./session.ts";

export interface AskOptions {
  /** How long to wait for the answer, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
  /** How much longer than the peer is told this side waits, so that the peer's own clock ends it first; in milliseconds. Default 0. */
  readonly graceMs?: number;
  /** Gives the question up; the promise rejects with the reason where that is an RpcError, else with `cancelled` and the reason as its cause. */
  readonly signal?: AbortSignal | undefined;
}

const defaultTimeoutMs = 10_000;

/** A request to a built-in method: what one engine asks another, beyond what users call. */
export class Ask extends OutgoingCall {
  readonly promise: Promise<unknown>;
  readonly #session: Session;
  readonly #signal: AbortSignal | undefined;
  #resolve!: (value: unknown) => void;
  #reject!: (error: RpcError) => void;

  constructor(
    session: Session,
    method: number,
    input: unknown,
    { timeoutMs = defaultTimeoutMs, graceMs = 0, signal }: AskOptions = {},
  ) {
    super();
    this.#session = session;
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
    const { clock, wheel } = session.host;
    const nowMs = clock.now();
    wheel.arm(this, nowMs + timeoutMs + graceMs);
    try {
      session.request(this, method, nowMs + timeoutMs, input, nowMs);
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
      this.#giveUp("deadline_exceeded", `${this.#session.peerName} did not answer in the time there was`);
  }

  override onRevoked(): void {
    if (!this.settled) this.#giveUp("aborted", regionRevoked);
  }

  readonly #onAbort = (): void => {
    if (this.settled) return;
    const reason: unknown = this.#signal?.reason;
    if (!(reason instanceof RpcError)) return this.#giveUp("cancelled", "the caller gave up", reason);
    this.#fail(reason);
    this.#session.cancel(this);
  };

  #giveUp(code: RpcCode, message: string, cause?: unknown): void {
    this.#fail(new RpcError({ code, message, origin: "local", ...(cause === undefined ? {} : { cause }) }));
    this.#session.cancel(this);
  }

  #fail(error: RpcError): void {
    this.#settle();
    this.#reject(error);
  }

  #settle(): void {
    this.phase = "settled";
    this.#session.host.wheel.disarm(this);
    this.#signal?.removeEventListener("abort", this.#onAbort);
  }
}
