import type { RpcError } from "../errors/rpc-error.ts";
import type { Priority } from "../flow/priority.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { MadeCall, type UnsentPhase } from "./made-call.ts";

/**
 * Where a call stands on the caller's side.
 *
 *   waiting     no request has left: validating, queued
 *   connecting  the same, and a session is being opened
 *   sent        the request has left (or waits in the outbox)
 *   pulling     the response is being pulled by RMA
 *   settled     the caller has its value or error
 *
 *   from      event                               to        effect
 *   waiting   no session is open                  connecting
 *   waiting, connecting
 *             the session's window is full        waiting   queued there
 *             request encoded                     sent      number taken
 *   waiting   session lost or drains              waiting   may ask for another session, else settled
 *   sent      response                            settled   released
 *   sent      response, overflowed                pulling   pull begins
 *   pulling   pulled                              settled   released
 *   sent      error                               settled   released
 *   any open  abort, deadline                     settled   cancel sent if a request had left; released when the terminal frame comes
 *   any open  session lost or closed              settled   released
 *
 * The server answers every request with exactly one terminal frame, cancelled or not. Until it comes the number, and whatever memory
 * the request lent to the peer, stay taken: nothing the peer may still touch is used again.
 */
export type OutgoingPhase = "waiting" | "connecting" | "sent" | "pulling" | "settled";

/** Memory lent to the peer for the time of a call. */
export interface Loan {
  readonly bytes: number;
  /** The session ended, and whether the peer still touches it is not known: it is released when that is, if ever. */
  onHeld?(): void;
  /**
   * The peer has no more right to it. `onReleased` hears when nobody can be in the middle of touching it, now or later; where the port cannot tell
   * that (tcp), the peer's own word must have been the reason to call this.
   */
  release(onReleased?: () => void): void;
}

/** Never filled: a call's own array takes its place with the first loan. */
const noLoans: Loan[] = [];

/** One life of a peer. */
export interface Callee {
  readonly url: string;
  readonly incarnation: bigint;
}

/** Told once when the call that it goes along with has settled for its caller: with the error, if there was one. */
export type Companion = (error: RpcError | undefined) => void;

/** What goes along with a call, which most do without. */
interface Along {
  /** Regions and overflowed bodies that travelled with the request. */
  loans: Loan[];
  readonly companions: Companion[];
}

/** Why a call ends whose region was revoked: the message of its `aborted`. */
export const regionRevoked = "a region that the call had lent was revoked";

/** One call as its caller has it. What the phases mean to the caller is the subclass's business. */
export abstract class OutgoingCall extends MadeCall {
  phase: OutgoingPhase = "waiting";
  /** Its number on its session, 0 while waiting. */
  id = 0;
  /** Where it stands among those that wait, here and at the peer. */
  priority: Priority = "normal";
  /** It fails at once when it would have to wait for a place in its session's window. */
  failsWhenFull = false;
  /** How long after its start it began to connect, left, began to pull, in whole microseconds; -1 when it has not. Small integers need no memory of their own. */
  connectingUs = -1;
  sentUs = -1;
  pullingUs = -1;
  #along: Along | undefined;

  /** The response's value as decoded, not yet validated. Called at most once, in phase `sent` or `pulling`. */
  abstract onValue(value: unknown): void;
  /** The call failed. Called at most once and never after `onValue`. */
  abstract onFailure(error: RpcError): void;
  /** It waited in a session that will not send it any more, and has certainly not been executed. */
  onUnsent(error: RpcError, _input: unknown): void {
    this.onFailure(error);
  }

  /**
   * A region it has lent was revoked: if it has not settled, it fails with `regionRevoked` and is cancelled at the peer, as if its caller had aborted it.
   * Its loans end as always.
   */
  abstract onRevoked(): void;

  override get unsentPhase(): UnsentPhase | undefined {
    return this.id === 0 && this.phase === "connecting"
      ? "connecting"
      : this.id === 0
        ? "waiting"
        : undefined;
  }

  /** What makes it known again to the peer when it is tried once more; undefined for a call that stands for itself. */
  get identity(): CallIdentity | undefined {
    return undefined;
  }

  /** Another try of a call that was let in when it began: a draining engine still sends it. */
  get again(): boolean {
    return false;
  }

  /** Where it must go, because an attempt that it stands for may have been executed there. Undefined: anywhere. */
  get boundTo(): Callee | undefined {
    return undefined;
  }

  get settled(): boolean {
    return this.phase === "settled";
  }

  /** Time since its start, in whole microseconds. */
  elapsedUs(nowMs: number): number {
    return Math.round((nowMs - this.startedMs) * 1000);
  }

  /** Lets `companion` hear when the call settles. It must not have settled. */
  accompany(companion: Companion): void {
    this.#along ??= { loans: noLoans, companions: [] };
    this.#along.companions.push(companion);
  }

  /** Whether anything goes along with it. */
  get accompanied(): boolean {
    return this.#along !== undefined && this.#along.companions.length > 0;
  }

  /** For subclasses, when they have settled. */
  protected tellCompanions(error: RpcError | undefined): void {
    const companions = this.#along?.companions.splice(0);
    if (companions === undefined) return;
    for (const companion of companions) companion(error);
  }

  lend(loan: Loan): void {
    this.#along ??= { loans: noLoans, companions: [] };
    if (this.#along.loans === noLoans) this.#along.loans = [loan];
    else this.#along.loans.push(loan);
  }

  get lends(): boolean {
    return this.#along !== undefined && this.#along.loans !== noLoans;
  }

  get lentBytes(): number {
    let bytes = 0;
    for (const loan of this.#along?.loans ?? noLoans) bytes += loan.bytes;
    return bytes;
  }

  /** What it has lent, handed over to whoever sees to its end. */
  takeLoans(): readonly Loan[] {
    const loans = this.#along?.loans ?? noLoans;
    if (this.#along !== undefined) this.#along.loans = noLoans;
    return loans;
  }

  /** The peer has answered, or its process is gone for certain. */
  releaseLoans(): void {
    for (const loan of this.takeLoans()) loan.release();
  }
}
