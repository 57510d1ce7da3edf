/**
 * Priorities, the more urgent first. `control` is for calls that keep a system alive (health checks, membership,
 * elections). It goes before all others, so it must be rare.
 */
export const priorities = ["control", "normal"] as const;

/** How urgent a call is: "control" or "normal". */
export type Priority = (typeof priorities)[number];
