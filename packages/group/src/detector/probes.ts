import type { MemberId } from "./message.ts";

/** A probe that waits for its answer. One begins in each period; of a member of bad health several wait at a time. */
export interface Probe {
  readonly target: MemberId;
  readonly sequence: number;
  /** When the direct ping counts as lost; Infinity once others were asked. */
  timeoutMs: number;
  /** When the probe has failed. */
  readonly endMs: number;
  /** How many others were asked to ping the target. */
  asked: number;
  /** How many of these said that they had no answer either. */
  nacks: number;
}

/**
 * Round robin over places in a random order that changes with each traversal. So between two turns of one place there
 * are at most 2N - 2 others. An order is an offset and a stride that has no divisor in common with N: it takes no
 * memory, however large the group.
 */
export class ProbeOrder {
  readonly #random: () => number;
  #size = 0;
  #taken = 0;
  #place = 0;
  #stride = 1;

  /** @param random from 0 to below 1 */
  constructor(random: () => number) {
    this.#random = random;
  }

  /** The next wanted place below `size`; undefined without one. Another `size` begins a new traversal. */
  next(size: number, isWanted: (place: number) => boolean): number | undefined {
    // The rest of this traversal, and a whole one after it.
    for (let tried = 0; tried < 2 * size; tried += 1) {
      if (this.#size !== size || this.#taken === size) this.#begin(size);
      else this.#place = (this.#place + this.#stride) % size;
      this.#taken += 1;
      if (isWanted(this.#place)) return this.#place;
    }
    return undefined;
  }

  #begin(size: number): void {
    this.#size = size;
    this.#taken = 0;
    this.#place = Math.floor(this.#random() * size);
    this.#stride = 1 + Math.floor(this.#random() * size);
    while (greatestCommonDivisor(this.#stride, size) !== 1) this.#stride = 1 + (this.#stride % size);
  }
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/** More are refused: others that ask for indirect probes must not make this member hold much. */
const maxRelays = 256;

interface Relay {
  readonly asker: MemberId;
  /** The number of the asker's request, which the answer repeats. */
  readonly sequence: number;
  readonly target: MemberId;
  /** When the asker is notified that no answer has come. */
  readonly nackMs: number;
}

/** Indirect probes on behalf of others, by the sequence of the ping to the target. */
export class Relays {
  readonly #waiting = new Map<number, Relay>();
  readonly #patienceMs: number;

  /** @param patienceMs how long a target is waited for */
  constructor(patienceMs: number) {
    this.#patienceMs = patienceMs;
  }

  /** All wait equally long, so the first is the next that is due. */
  get dueMs(): number {
    for (const { nackMs } of this.#waiting.values()) return nackMs;
    return Number.POSITIVE_INFINITY;
  }

  /** Whether there was room. */
  add(sequence: number, relay: Omit<Relay, "nackMs">, nowMs: number): boolean {
    if (this.#waiting.size >= maxRelays) return false;
    this.#waiting.set(sequence, { ...relay, nackMs: nowMs + this.#patienceMs });
    return true;
  }

  take(sequence: number): Relay | undefined {
    const relay = this.#waiting.get(sequence);
    this.#waiting.delete(sequence);
    return relay;
  }

  /** Takes one that is due. */
  takeDue(nowMs: number): Relay | undefined {
    for (const [sequence, { nackMs }] of this.#waiting)
      return nackMs <= nowMs ? this.take(sequence) : undefined;
    return undefined;
  }
}
