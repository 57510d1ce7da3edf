import type { Clock } from "../../base/time/clock.ts";
import type { Identity } from "../../security/identity.ts";
import type { SecurityMeter } from "../../security/security-meter.ts";
import type { TlsEndpoint } from "../../security/tls-endpoint.ts";
import { certificateEnded, notTrusted } from "../opening/end-reasons.ts";
import type { Session } from "./session.ts";

/** The longest time between reads of the time of day: it may be set, and machines sleep. */
const mostWaitMs = 60_000;

/**
 * Ends sessions when the proofs of their peers are no longer valid: the certificate has expired, or this engine no
 * longer trusts it. Clients connect again by themselves, if they can.
 */
export class PeerProofs {
  readonly #clock: Clock;
  readonly #meter: SecurityMeter;
  /** The sessions that have not ended. Undefined: none has this index. */
  readonly #sessions: readonly (Session | undefined)[];
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock, meter: SecurityMeter, sessions: readonly (Session | undefined)[]) {
    this.#clock = clock;
    this.#meter = meter;
    this.#sessions = sessions;
  }

  /** A peer has proven its identity: its certificate may be the next to end. Sets the timer for the next end. */
  arm(): void {
    this.close();
    let soonest = Number.POSITIVE_INFINITY;
    for (const session of this.#sessions) soonest = Math.min(soonest, endOf(session?.identity));
    if (soonest === Number.POSITIVE_INFINITY) return;
    const waitMs = Math.min(mostWaitMs, Math.max(1, soonest - Date.now() + 1));
    this.#cancelTimer = this.#clock.timer(waitMs, () => this.#look(), true);
  }

  /** The certificates were read again: ends the sessions whose peers they no longer prove. */
  judge(tls: TlsEndpoint): void {
    for (const session of [...this.#sessions]) {
      const { identity, chain = [] } = session ?? {};
      if (session === undefined || (identity?.kind !== "certificate" && identity?.kind !== "psk")) continue;
      const why = tls.faultOf({ identity, chain });
      if (why === "") continue;
      const refusal = identity.kind === "psk" ? "key" : "certificate";
      this.#meter.onRefused({ refusal, peer: session.peerName, identity, why });
      session.end(notTrusted(session.peerName, why));
    }
  }

  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #look(): void {
    for (const session of [...this.#sessions]) {
      const endMs = endOf(session?.identity);
      if (Date.now() > endMs) session?.end(certificateEnded(session.peerName, new Date(endMs)));
    }
    this.arm();
  }
}

/** A key does not expire. */
const endOf = (identity: Identity | undefined): number =>
  identity?.kind === "certificate" ? identity.validTo.getTime() : Number.POSITIVE_INFINITY;
