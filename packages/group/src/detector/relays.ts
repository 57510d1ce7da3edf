import type { MemberId } from "./message.ts";

/** More are refused: others that ask for indirect probes must not make this member hold much. */
const maxRelays = 256;

export interface Relay {
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
