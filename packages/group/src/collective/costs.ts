import { Histogram } from "cinnabar/standard";
import type { MessageCost } from "../tree/choose.ts";

/** The margin of a hop never falls below this many milliseconds: timers and event loops are late by as much. */
const leastMarginMs = 20;
/** After this many messages the older half of the measurements is forgotten. */
const generation = 1024;
/** Before anything is measured: what a message costs over shared memory. */
const unmeasured: MessageCost = { overheadMs: 0.02, latencyMs: 0.05 };
/** The share of a new measurement in the mean. */
const weight = 1 / 16;

/** What messages cost on the way between members, as measured by those that are sent. */
export class Costs {
  #current = new Histogram();
  #former = new Histogram();
  #overheadMs = unmeasured.overheadMs;

  /** A message kept this process busy for so long. */
  noteSent(busyMs: number): void {
    this.#overheadMs += (busyMs - this.#overheadMs) * weight;
  }

  /** An answer came after so long, without the time that the other side had the call. */
  noteRoundTrip(ms: number): void {
    this.#current.record(Math.max(0, ms));
    if (this.#current.count < generation) return;
    this.#former = this.#current;
    this.#current = new Histogram();
  }

  /** For the choice of a tree. */
  get message(): MessageCost {
    if (this.#measured.count === 0) return { ...unmeasured, overheadMs: this.#overheadMs };
    const wayMs = this.#measured.percentile(50) / 2 - this.#overheadMs;
    return { overheadMs: this.#overheadMs, latencyMs: Math.max(0.001, wayMs) };
  }

  /** How much earlier than its parent a node gives up, so that its answer arrives in time. */
  get marginMs(): number {
    if (this.#measured.count === 0) return leastMarginMs;
    return Math.max(leastMarginMs, 2 * this.#measured.percentile(99));
  }

  /** A generation that is just begun says little. */
  get #measured(): Histogram {
    return this.#current.count < 64 && this.#former.count > 0 ? this.#former : this.#current;
  }
}
