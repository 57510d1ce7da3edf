import { createHash, randomBytes } from "node:crypto";
import type { RpcError } from "../base/errors/rpc-error.ts";
import type { CallIdentity } from "../wire/call-identity.ts";
import type { Callee } from "./outgoing-call.ts";

/** A call between its first attempt and its end. */
export interface Retried {
  /** The peer was closed: no session for another attempt will open. */
  onPeerClosed(error: RpcError): void;
}

/** The most remembered numbers. Other numbers are computed again. */
const maxCallers = 256;

/**
 * The state of a peer, or a balanced peer, for calls that may make several attempts: the caller's number for each
 * replay cache, and the open calls. When the peer is closed, no call may wait for its next attempt.
 */
export class RetriedCalls {
  /**
   * Never sent. A balanced peer's calls go to several peers, and each peer receives its own number made from the
   * secret.
   */
  readonly #secret = randomBytes(32);
  /** The numbers of recent callees. */
  readonly #callers = new Map<string, bigint>();
  #last = 0;
  /** Sequences in use, in the order of use and so ascending. */
  readonly #sequences = new Set<number>();
  readonly #open = new Set<Retried>();

  get size(): number {
    return this.#open.size;
  }

  add(call: Retried): void {
    this.#open.add(call);
  }

  delete(call: Retried): void {
    this.#open.delete(call);
  }

  /** A sequence that no call had before. The call returns it by `settle`. */
  takeSequence(): number {
    this.#sequences.add(++this.#last);
    return this.#last;
  }

  /** The sequence will not be sent again. */
  settle(sequence: number): void {
    this.#sequences.delete(sequence);
  }

  /** The call's identity for `callee`. `again`: the callee may have received this sequence before. */
  identify(sequence: number, callee: Callee, again: boolean): CallIdentity {
    const caller = this.#callerFor(callee);
    let settled = sequence;
    for (const lowest of this.#sequences) {
      settled = lowest;
      break;
    }
    return { caller, sequence, settled, incarnation: again ? callee.incarnation : 0n };
  }

  /**
   * A peer with the number could ask for this caller's answers, so each peer receives its own number. That also holds
   * for a peer that pretends to be another: it cannot choose the address at which this side has reached it.
   */
  #callerFor({ url, incarnation }: Callee): bigint {
    const callee = `${incarnation} ${url}`;
    let caller = this.#callers.get(callee);
    if (caller === undefined) {
      const digest = createHash("sha256").update(this.#secret).update(callee).digest();
      caller = digest.readBigUInt64LE();
      if (this.#callers.size >= maxCallers) this.#callers.clear();
      this.#callers.set(callee, caller);
    }
    return caller;
  }

  close(error: RpcError): void {
    for (const call of [...this.#open]) call.onPeerClosed(error);
  }
}
