/** A change of a range that has begun or waits. */
export interface Change {
  readonly offset: number;
  readonly end: number;
  readonly isExclusive: boolean;
  /** Resolves when every earlier change that conflicts with this one has ended. Undefined: no change conflicts. */
  readonly turn: Promise<unknown> | undefined;
  /** Called when it ends. */
  readonly waiting: (() => void)[];
}

/**
 * The changes of a device that are under way. An exclusive change is alone on its range: it waits for earlier changes
 * that overlap, and later ones wait for it. Other changes may overlap.
 */
export class Changes {
  readonly #underWay = new Set<Change>();
  #exclusive = 0;

  /** The caller waits for the turn of the change, and ends it. */
  begin(offset: number, bytes: number, isExclusive: boolean): Change {
    const end = offset + bytes;
    const turn = isExclusive || this.#exclusive > 0 ? this.#turnOf(offset, end, isExclusive) : undefined;
    const change = { offset, end, isExclusive, turn, waiting: [] };
    this.#underWay.add(change);
    if (isExclusive) this.#exclusive++;
    return change;
  }

  end(change: Change): void {
    this.#underWay.delete(change);
    if (change.isExclusive) this.#exclusive--;
    for (const wake of change.waiting) wake();
  }

  #turnOf(offset: number, end: number, isExclusive: boolean): Promise<unknown> | undefined {
    const before = [...this.#underWay].filter(
      (one) => one.offset < end && offset < one.end && (isExclusive || one.isExclusive),
    );
    if (before.length === 0) return undefined;
    return Promise.all(before.map((one) => new Promise<void>((resolve) => one.waiting.push(resolve))));
  }
}
