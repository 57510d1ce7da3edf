import { randomBytes } from "node:crypto";
import type { RpcError } from "../errors/rpc-error.ts";
import type { CallIdentity } from "../wire/call-identity.ts";

/** A call between its first attempt and its end. */
export interface Retried {
  /** There will be no session any more to try it in. */
  onPeerClosed(error: RpcError): void;
}

/**
 * What a peer keeps for calls to it that may be tried more than once: who is calling, as the peer's replay cache knows us, and which of those calls
 * are open. A peer that is closed must not leave one waiting for its next attempt.
 */
export class RetriedCalls {
  /** Random, and told to this one peer: who knew it could ask for our answers. */
  #caller = 0n;
  #last = 0;
  /** Sequences in use, in the order they were given and so ascending. */
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

  /** A sequence that no call had before. Whoever takes it gives it back by `settle`. */
  takeSequence(): number {
    this.#sequences.add(++this.#last);
    return this.#last;
  }

  /** This sequence will not be asked for any more. */
  settle(sequence: number): void {
    this.#sequences.delete(sequence);
  }

  /** `incarnation`: of the peer that may have received this sequence before, else 0. */
  identify(sequence: number, incarnation: bigint): CallIdentity {
    while (this.#caller === 0n) this.#caller = randomBytes(8).readBigUInt64LE();
    let settled = sequence;
    for (const lowest of this.#sequences) {
      settled = lowest;
      break;
    }
    return { caller: this.#caller, sequence, settled, incarnation };
  }

  close(error: RpcError): void {
    for (const call of [...this.#open]) call.onPeerClosed(error);
  }
}
