import { type Priority, turns } from "./priority.ts";

const shared = ["high", "normal", "low"] as const;

/** Whose turn it is among the classes that wait: `control` always, the others by weight (weighted round robin), so that none of them starves. */
export class Turns {
  /** Turns that each class still has in this round. */
  readonly #left: Record<Exclude<Priority, "control">, number> = { ...turns };

  /** The class that is next of those for which `waits` holds, and one turn of it is taken; undefined when none waits. */
  next(waits: (priority: Priority) => boolean): Priority | undefined {
    if (waits("control")) return "control";
    return this.#sharedNext(waits) ?? this.#newRound(waits);
  }

  /** All turns of those that wait are used up, or nobody waits. */
  #newRound(waits: (priority: Priority) => boolean): Priority | undefined {
    Object.assign(this.#left, turns);
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
