import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { Identity } from "../../security/identity.ts";
import type { SecurityMeter } from "../../security/security-meter.ts";
import type { CertificateChain } from "../../security/trust.ts";
import { certificateEnded, notTrusted } from "./end-reasons.ts";

/** The longest time between reads of the time of day: it may be set, and machines sleep. */
const mostWaitMs = 60_000;

interface ProvenSession {
  readonly peerName: string;
  readonly state: string;
  end(reason: RpcError): void;
}

/** The proof of a session's peer. */
export interface PeerProof {
  readonly identity: Identity;
  /** Empty for a pre-shared key. */
  readonly chain: CertificateChain;
}

/**
 * Ends sessions when the proofs of their peers are no longer valid: the certificate has expired, or this engine no
 * longer trusts it. Clients connect again by themselves, if they can.
 */
export class PeerProofs {
  readonly #clock: Clock;
  readonly #meter: SecurityMeter;
  readonly #proofs = new Map<ProvenSession, PeerProof>();
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock, meter: SecurityMeter) {
    this.#clock = clock;
    this.#meter = meter;
  }

  watch(session: ProvenSession, { identity, chain }: PeerProof): void {
    this.#proofs.set(session, { identity, chain });
    if (identity.kind === "certificate") this.#arm();
  }

  forget(session: ProvenSession): void {
    if (this.#proofs.delete(session) && this.#proofs.size === 0) this.#disarm();
  }

  /** Ends the sessions with a faulty proof. `faultOf` returns the fault as a message, or "". */
  judge(faultOf: (proof: PeerProof) => string): void {
    for (const [session, proof] of [...this.#proofs]) {
      const why = faultOf(proof);
      if (why === "") continue;
      const { identity } = proof;
      const refusal = identity.kind === "psk" ? "key" : "certificate";
      this.#meter.onRefused({ refusal, peer: session.peerName, identity, why });
      session.end(notTrusted(session.peerName, why));
    }
  }

  #arm(): void {
    this.#disarm();
    let soonest = Number.POSITIVE_INFINITY;
    for (const { identity } of this.#proofs.values()) soonest = Math.min(soonest, endOf(identity));
    if (soonest === Number.POSITIVE_INFINITY) return;
    const waitMs = Math.min(mostWaitMs, Math.max(1, soonest - Date.now() + 1));
    this.#cancelTimer = this.#clock.timer(waitMs, () => this.#look(), true);
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #look(): void {
    for (const [session, { identity }] of [...this.#proofs]) {
      const endMs = endOf(identity);
      if (Date.now() <= endMs) continue;
      this.#proofs.delete(session);
      session.end(certificateEnded(session.peerName, new Date(endMs)));
    }
    this.#arm();
  }
}

/** A key does not expire. */
const endOf = (identity: Identity): number =>
  identity.kind === "certificate" ? identity.validTo.getTime() : Number.POSITIVE_INFINITY;
