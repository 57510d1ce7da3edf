import type { RpcError } from "../errors/rpc-error.ts";
import type { Clock } from "../time/clock.ts";
import { certificateEnded } from "./end-reasons.ts";

/** How often the time of day is looked at: it may be set, and machines sleep. */
const mostWaitMs = 60_000;

interface Certified {
  readonly peerName: string;
  readonly state: string;
  end(reason: RpcError): void;
}

/** Ends sessions when the certificates of their peers end. Clients connect anew by themselves. */
export class CertificateExpiry {
  readonly #clock: Clock;
  readonly #validTo = new Map<Certified, Date>();
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  watch(session: Certified, validTo: Date): void {
    this.#validTo.set(session, validTo);
    this.#arm();
  }

  forget(session: Certified): void {
    if (this.#validTo.delete(session) && this.#validTo.size === 0) this.#disarm();
  }

  #arm(): void {
    this.#disarm();
    let soonest = Number.POSITIVE_INFINITY;
    for (const validTo of this.#validTo.values()) soonest = Math.min(soonest, validTo.getTime());
    if (soonest === Number.POSITIVE_INFINITY) return;
    const waitMs = Math.min(mostWaitMs, Math.max(1, soonest - Date.now() + 1));
    this.#cancelTimer = this.#clock.timer(waitMs, () => this.#look(), true);
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #look(): void {
    for (const [session, validTo] of [...this.#validTo]) {
      if (Date.now() <= validTo.getTime()) continue;
      this.#validTo.delete(session);
      session.end(certificateEnded(session.peerName, validTo));
    }
    this.#arm();
  }
}
