import { type Loan, OutgoingCall } from "../call/outgoing-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import type { ClientMethod } from "./client-method.ts";

/**
 * How an attempt failed: `failed` with an error, `late` by its own time limit, `closed` because its peer was.
 */
export type AttemptFailure = "failed" | "late" | "closed";

/** The call that an attempt is made for. */
export interface AttemptOwner {
  readonly method: ClientMethod;
  readonly deadlineMs: number;
  /** Who the request is in this session; undefined when it stands for itself. Throws RpcError when it may not be sent there. */
  identify(session: Session): CallIdentity | undefined;
  onAttemptValue(attempt: Attempt, value: unknown): void;
  onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void;
  /** The memory that the attempt had lent is ours again. */
  onLoansOver(attempt: Attempt): void;
}

/** One request of a call that may make several: it finds a session, is sent, and tells its call once what became of it. */
export class Attempt extends OutgoingCall {
  readonly #owner: AttemptOwner;
  /** 1 for a call's first. */
  readonly number: number;
  readonly #timeoutMs: number;
  #session: Session | undefined;
  /** How many regions travelled with it, and how many of them the peer may still touch. */
  #carried = 0;
  #lent = 0;

  constructor(owner: AttemptOwner, number: number, timeoutMs: number) {
    super();
    this.#owner = owner;
    this.number = number;
    this.#timeoutMs = timeoutMs;
  }

  /** Where it was sent; undefined when nothing has left. */
  get session(): Session | undefined {
    return this.id === 0 ? undefined : this.#session;
  }

  /** Whether the peer may still touch memory that this attempt lent it. */
  get lending(): boolean {
    return this.#lent > 0;
  }

  /** Whether memory went along. */
  get carries(): boolean {
    return this.#carried > 0;
  }

  start(input: unknown): void {
    const { source } = this.#owner.method;
    const { host } = source;
    const endMs = host.clock.now() + this.#timeoutMs;
    if (endMs < this.#owner.deadlineMs) host.wheel.arm(this, endMs);
    let session: Session | Promise<Session>;
    try {
      session = source.session();
    } catch (error) {
      return this.#fail(error as RpcError, "closed");
    }
    if (session instanceof Promise) {
      session.then(
        (opened) => this.#send(opened, input),
        (error: RpcError) => this.#fail(error, "failed"),
      );
    } else this.#send(session, input);
  }

  #send(session: Session, input: unknown): void {
    if (this.settled) return;
    const { method, deadlineMs } = this.#owner;
    const { service, name, path, source } = method;
    const number = session.methods.of(service, name);
    if (number < 0) {
      const what = session.methods.serves(service) ? `no method "${path}"` : `no service "${service}"`;
      const message = `${source.name} has ${what}`;
      return this.#fail(new RpcError({ code: "unimplemented", message, origin: "local" }), "failed");
    }
    this.#session = session;
    try {
      this.identity = this.#owner.identify(session);
      // Whoever is known again may be answered by a later attempt: the server is given all of the call's time.
      const endMs = this.#limited && this.identity === undefined ? this.deadlineMs : deadlineMs;
      session.request(this, number, endMs - source.host.clock.now(), input);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      this.#fail(
        error instanceof RpcError
          ? error
          : new RpcError({ code: "internal", message: "the request could not be sent", cause: error }),
        "failed",
      );
    }
  }

  /** Has a time limit of its own, shorter than its call's. */
  get #limited(): boolean {
    return this.wheelBucket >= 0;
  }

  override lend(loan: Loan): void {
    this.#carried++;
    this.#lent++;
    const release = () => {
      loan.release();
      if (--this.#lent === 0) this.#owner.onLoansOver(this);
    };
    super.lend({ bytes: loan.bytes, release });
  }

  override onValue(value: unknown): void {
    this.#end();
    this.#owner.onAttemptValue(this, value);
  }

  override onFailure(error: RpcError): void {
    // Both sides run a clock, and the server's verdict on the attempt's time may come first.
    const late = error.code === "deadline_exceeded" && this.#limited && this.identity === undefined;
    this.#fail(error, late ? "late" : "failed");
  }

  override onDeadline(): void {
    if (this.settled) return;
    // A server that knows the call again goes on with it: the next attempt joins what this one has begun.
    if (this.identity === undefined) this.#cancel();
    const message = `attempt ${this.number} has taken ${this.#timeoutMs} ms`;
    this.#fail(new RpcError({ code: "deadline_exceeded", message, origin: "local" }), "late");
  }

  /** Nobody waits for it any more. Tells the peer, if that may still be at it. */
  giveUp(): void {
    // What stands for itself was cancelled when it was late.
    if (this.settled && this.identity === undefined) return;
    this.#end();
    this.#cancel();
  }

  #cancel(): void {
    this.#session?.cancel(this);
  }

  #fail(error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    this.#end();
    this.#owner.onAttemptFailure(this, error, how);
  }

  #end(): void {
    this.phase = "settled";
    this.#owner.method.source.host.wheel.disarm(this);
  }
}
