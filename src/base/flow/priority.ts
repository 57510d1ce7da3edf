/**
 * Priorities, the most urgent first. `control` is for what keeps a system alive (health checks, membership, elections).
 * It goes before all others, so it must be rare. The others share by weight, and none of them starves.
 */
export const priorities = ["control", "high", "normal", "low"] as const;

/** How urgent a call is: "control", "high", "normal" or "low". */
export type Priority = (typeof priorities)[number];

/** Turns of each priority in a round while several wait. `control` has none: it always goes first. */
export const turns: Readonly<Record<Exclude<Priority, "control">, number>> = { high: 8, normal: 4, low: 1 };

/** Whether `a` is more urgent than `b`. */
export function isMoreUrgent(a: Priority, b: Priority): boolean {
  return priorities.indexOf(a) < priorities.indexOf(b);
}

const shared = ["high", "normal", "low"] as const;

/** Weighted round robin over the priorities that wait. `control` always goes first, and none of the others starves. */
export class Turns {
  /** Turns that each priority has left in this round. */
  readonly #left: Record<Exclude<Priority, "control">, number> = { ...turns };

  /**
   * The next priority of those for which `waits` returns true, and takes one of its turns; undefined when none waits.
   */
  next(waits: (priority: Priority) => boolean): Priority | undefined {
    if (waits("control")) return "control";
    return this.#sharedNext(waits) ?? this.#newRound(waits);
  }

  /** All turns of those that wait are used up, or none waits. */
  #newRound(waits: (priority: Priority) => boolean): Priority | undefined {
    // One by one: each fourth call of a class that waits alone comes here.
    this.#left.high = turns.high;
    this.#left.normal = turns.normal;
    this.#left.low = turns.low;
    return this.#sharedNext(waits);
  }

  #sharedNext(waits: (priority: Priority) => boolean): Priority | undefined {
    for (const priority of shared) {
      if (this.#left[priority] === 0 || !waits(priority)) continue;
      this.#left[priority]--;
      return priority;
    }
    return undefined;
  }
}
