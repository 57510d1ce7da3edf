/**
 * How urgent a call is, the most urgent first. `control` is for what keeps a system alive (health, membership, elections) and goes before all else, so
 * it must be rare; the others share what there is by weight, and none of them starves.
 */
export const priorities = ["control", "high", "normal", "low"] as const;

export type Priority = (typeof priorities)[number];

/** Turns that each class has in a round while several wait. `control` needs none: it always goes first. */
export const turns: Readonly<Record<Exclude<Priority, "control">, number>> = { high: 8, normal: 4, low: 1 };

/** Whether `a` is more urgent than `b`. */
export function isMoreUrgent(a: Priority, b: Priority): boolean {
  return priorities.indexOf(a) < priorities.indexOf(b);
}

/** @throws TypeError naming the option. */
export function assertPriority(where: string, value: unknown): void {
  if (value === undefined || (priorities as readonly unknown[]).includes(value)) return;
  throw new TypeError(`${where} must be one of ${priorities.join(", ")}; it is ${String(value)}`);
}
