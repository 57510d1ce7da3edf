import type { MemberId } from "./message.ts";
import type { ResolvedOptions } from "./options.ts";

/** The suspicions that are under way, one for each suspect. */
export class Suspicions {
  readonly #options: ResolvedOptions;
  readonly #bySuspect = new Map<MemberId, Suspicion>();

  constructor(options: ResolvedOptions) {
    this.#options = options;
  }

  get dueMs(): number {
    let dueMs = Number.POSITIVE_INFINITY;
    for (const { endsMs } of this.#bySuspect.values()) dueMs = Math.min(dueMs, endsMs);
    return dueMs;
  }

  has(suspect: MemberId): boolean {
    return this.#bySuspect.has(suspect);
  }

  /** @param living how many members take part, the suspect included */
  begin(suspect: MemberId, accuser: MemberId, living: number, nowMs: number): void {
    this.#bySuspect.set(suspect, new Suspicion(nowMs, accuser, suspicionBounds(living, this.#options)));
  }

  /** Whether this accuser is one more that counts. */
  confirm(suspect: MemberId, accuser: MemberId): boolean {
    return this.#bySuspect.get(suspect)?.confirm(accuser) ?? false;
  }

  end(suspect: MemberId): void {
    this.#bySuspect.delete(suspect);
  }

  clear(): void {
    this.#bySuspect.clear();
  }

  /** Ends those that are not wanted any more. */
  keep(isWanted: (suspect: MemberId) => boolean): void {
    for (const suspect of this.#bySuspect.keys()) if (!isWanted(suspect)) this.#bySuspect.delete(suspect);
  }

  overdue(nowMs: number): [MemberId, Suspicion][] {
    return [...this.#bySuspect].filter(([, { endsMs }]) => endsMs <= nowMs);
  }

  restartAll(nowMs: number, accuser: MemberId): void {
    for (const suspicion of this.#bySuspect.values()) suspicion.restart(nowMs, accuser);
  }

  /** Takes the answer to a last ping, from the suspect or by way of another member. */
  onLastAnswer(sequence: number, nowMs: number, accuser: MemberId): void {
    for (const suspicion of this.#bySuspect.values())
      if (suspicion.lastChance?.sequence === sequence) suspicion.restart(nowMs, accuser);
  }
}

interface SuspicionBounds {
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
