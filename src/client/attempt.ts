import { RpcError } from "../base/errors/rpc-error.ts";
import type { Callee } from "../call/outgoing-call.ts";
import { type Grant, withEnds } from "../memory/grant.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { RequestAttempt, type RequestOwner } from "./request-attempt.ts";
import { type CallSession, wasTurnedAway } from "./session-source.ts";

/**
 * How an attempt failed: `failed` with an error, `late` by its own time limit, `final` because there can be no other:
 * its peer was closed, or what it had granted was revoked.
 */
export type AttemptFailure = "failed" | "late" | "final";

/** The call that an attempt is made for. */
export interface AttemptOwner extends RequestOwner {
  readonly input: unknown;
  readonly deadlineMs: number;
  /** Where an attempt may have been executed that another can stand for. */
  readonly boundTo: Callee | undefined;
  /**
   * Who the request is in this session; undefined when it stands for itself. Throws RpcError when it may not be sent
   * there.
   */
  identify(session: CallSession): CallIdentity | undefined;
  onAttemptValue(attempt: Attempt, value: unknown): void;
  onAttemptFailure(attempt: Attempt, error: RpcError, how: AttemptFailure): void;
  /** The memory that an attempt had granted is ours again, or may never be. */
  onGrantsChanged(): void;
}

/**
 * One request of a call that may make several: it finds a session, is sent, and tells its call once what became of it.
 */
export class Attempt extends RequestAttempt<AttemptOwner> {
  /** 1 for a call's first. */
  readonly number: number;
  readonly #timeoutMs: number;
  #identity: CallIdentity | undefined;
  /** How many regions travelled with it, and how many of them the peer may still touch. */
  #carried = 0;
  #openGrants = 0;
  /** Its session was lost, and who may touch them may live on. */
  #held = false;

  constructor(owner: AttemptOwner, number: number, timeoutMs: number) {
    super(owner, owner.deadlineMs);
    this.number = number;
    this.#timeoutMs = timeoutMs;
  }

  override get identity(): CallIdentity | undefined {
    return this.#identity;
  }

  override get again(): boolean {
    return this.number > 1;
  }

  override get boundTo(): Callee | undefined {
    return this.owner.boundTo;
  }

  /** Whether the peer may still touch memory that this attempt granted it. */
  get hasOpenGrants(): boolean {
    return this.#openGrants > 0;
  }

  /** Whether that memory may never come back, nor anybody tell. */
  get grantsHeld(): boolean {
    return this.#held && this.hasOpenGrants;
  }

  /** Whether memory went along. */
  get carries(): boolean {
    return this.#carried > 0;
  }

  start(input: unknown): void {
    const { engine } = this.owner.method.source;
    const endMs = engine.clock.now() + this.#timeoutMs;
    if (endMs < this.owner.deadlineMs) engine.wheel.arm(this, endMs);
    this.find(input);
  }

  protected override endMsIn(session: CallSession): number {
    this.#identity = this.owner.identify(session);
    // Whoever is known again may be answered by a later attempt: the server is given all of the call's time.
    return this.#limited && this.identity === undefined ? this.deadlineMs : this.owner.deadlineMs;
  }

  /** Has a time limit of its own, shorter than its call's. */
  get #limited(): boolean {
    return this.wheelBucket >= 0;
  }

  override addGrant(grant: Grant): void {
    this.#carried++;
    this.#openGrants++;
    const release = (onReleased?: () => void) => {
      grant.release(() => {
        onReleased?.();
        if (--this.#openGrants === 0) this.owner.onGrantsChanged();
      });
    };
    const onHeld = () => {
      this.#held = true;
      this.owner.onGrantsChanged();
    };
    super.addGrant(withEnds(grant, { release, onHeld }));
  }

  override onValue(value: unknown): void {
    this.settle();
    this.owner.onAttemptValue(this, value);
  }

  override onFailure(error: RpcError): void {
    if (!this.observed && wasTurnedAway(this.target, this.id, error))
      return this.onUnsent(error, this.owner.input);
    // Both sides run a clock, and the server's verdict on the attempt's time may come first.
    const late = error.code === "deadline_exceeded" && this.#limited && this.identity === undefined;
    this.#fail(error, late ? "late" : "failed");
  }

  override onUnsent(error: RpcError, input: unknown): void {
    // It stands for itself again until it is sent elsewhere.
    this.#identity = undefined;
    super.onUnsent(error, input);
  }

  override onDeadline(): void {
    if (this.settled) return;
    // A server that knows the call again goes on with it: the next attempt joins what this one has begun. What waits to
    // be sent has begun nothing.
    if (this.identity === undefined || this.id === 0) this.cancel();
    const message = `attempt ${this.number} took longer than attemptTimeoutMs ${this.#timeoutMs}`;
    this.#fail(new RpcError({ code: "deadline_exceeded", message, origin: "local" }), "late");
  }

  /** Nobody waits for it any more. Tells the peer, if that may still be at it. */
  giveUp(): void {
    // What stands for itself was cancelled when it was late.
    if (this.settled && this.identity === undefined) return;
    if (!this.settled)
      this.settle(new RpcError({ code: "cancelled", message: "the call was cancelled", origin: "local" }));
    this.cancel();
  }

  protected override failWith(error: RpcError, isFinal: boolean): void {
    this.#fail(error, isFinal ? "final" : "failed");
  }

  #fail(error: RpcError, how: AttemptFailure): void {
    if (this.settled) return;
    // Whatever goes along has had its one try, and is told now.
    const isFinal = how === "final" || this.observed;
    this.settle(error);
    this.owner.onAttemptFailure(this, error, isFinal ? "final" : how);
  }

  protected override settle(error?: RpcError): void {
    this.owner.method.source.engine.wheel.disarm(this);
    super.settle(error);
  }
}
