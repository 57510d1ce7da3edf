import type { MemberId } from "./message.ts";
import type { ResolvedOptions } from "./options.ts";
import { Suspicion, suspicionBounds } from "./suspicion.ts";

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
