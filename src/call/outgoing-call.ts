import type { RpcError } from "../errors/rpc-error.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import { Timed } from "./deadline-wheel.ts";

/**
 * Where a call stands on the caller's side.
 *
 *   waiting   no request has left: validating, connecting, queued
 *   sent      the request has left (or waits in the outbox)
 *   pulling   the response is being pulled by RMA
 *   settled   the caller has its value or error
 *
 *   from      event                               to        effect
 *   waiting   request encoded                     sent      number taken
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
export type OutgoingPhase = "waiting" | "sent" | "pulling" | "settled";

/** Memory lent to the peer for the time of a call. */
export interface Loan {
  readonly bytes: number;
  /** The peer can no longer touch it. */
  release(): void;
}

const noLoans: readonly Loan[] = [];

/** One call as its caller has it. What the phases mean to the caller is the subclass's business. */
export abstract class OutgoingCall extends Timed {
  phase: OutgoingPhase = "waiting";
  /** Its number on its session, 0 while waiting. */
  id = 0;
  /** What makes it known again to the peer when it is tried once more; undefined for a call that stands for itself. */
  identity: CallIdentity | undefined = undefined;
  /** Regions and overflowed bodies that travelled with the request. */
  #loans: Loan[] | undefined;

  /** The response's value as decoded, not yet validated. Called at most once, in phase `sent` or `pulling`. */
  abstract onValue(value: unknown): void;
  /** The call failed. Called at most once and never after `onValue`. */
  abstract onFailure(error: RpcError): void;

  get settled(): boolean {
    return this.phase === "settled";
  }

  lend(loan: Loan): void {
    this.#loans ??= [];
    this.#loans.push(loan);
  }

  get lends(): boolean {
    return this.#loans !== undefined;
  }

  /** What it has lent, handed over to whoever sees to its end. */
  takeLoans(): readonly Loan[] {
    const loans = this.#loans ?? noLoans;
    this.#loans = undefined;
    return loans;
  }

  /** The peer has answered, or its process is gone for certain. */
  releaseLoans(): void {
    for (const loan of this.takeLoans()) loan.release();
  }
}
