import type { MemberId } from "./message.ts";

export interface SuspicionBounds {
  readonly minMs: number;
  readonly maxMs: number;
  /** How many independent confirmations bring the timeout from `maxMs` to `minMs`. */
  readonly confirmations: number;
}

/**
 * How long a suspicion lasts in a group of `living` members: min = factor · max(1, log10 N) · period, max = min ·
 * maxFactor. Fewer confirmations do where there are fewer members to confirm.
 */
export function suspicionBounds(
  living: number,
  options: {
    readonly periodMs: number;
    readonly suspicionFactor: number;
    readonly suspicionMaxFactor: number;
    readonly confirmations: number;
  },
): SuspicionBounds {
  const minMs = options.suspicionFactor * Math.max(1, Math.log10(living)) * options.periodMs;
  const confirmations = Math.max(0, Math.min(options.confirmations, living - 2));
  return { minMs, maxMs: confirmations === 0 ? minMs : minMs * options.suspicionMaxFactor, confirmations };
}

/** A suspicion against one incarnation of a member. It lasts shorter the more members share it. */
export class Suspicion {
  /** The sequence of a last ping, and until when its answer is waited for. */
  lastChance: { readonly sequence: number; readonly untilMs: number } | undefined;
  readonly #bounds: SuspicionBounds;
  readonly #accusers = new Set<MemberId>();
  #sinceMs: number;

  constructor(sinceMs: number, accuser: MemberId, bounds: SuspicionBounds) {
    this.#sinceMs = sinceMs;
    this.#bounds = bounds;
    this.#accusers.add(accuser);
  }

  /** When it ends: max - (max - min) · log(c + 1) / log(k + 1), with c confirmations of the k that count. */
  get endsMs(): number {
    if (this.lastChance !== undefined) return this.lastChance.untilMs;
    const { minMs, maxMs, confirmations } = this.#bounds;
    if (confirmations === 0) return this.#sinceMs + minMs;
    const share = Math.log(this.#accusers.size) / Math.log(confirmations + 1);
    return this.#sinceMs + maxMs - (maxMs - minMs) * share;
  }

  /** Whether this accuser is one more that counts. */
  confirm(accuser: MemberId): boolean {
    if (this.#accusers.size > this.#bounds.confirmations || this.#accusers.has(accuser)) return false;
    this.#accusers.add(accuser);
    return true;
  }

  /** Begins anew, with one accuser: the suspect has answered. */
  restart(nowMs: number, accuser: MemberId): void {
    this.lastChance = undefined;
    this.#sinceMs = nowMs;
    this.#accusers.clear();
    this.#accusers.add(accuser);
  }
}
