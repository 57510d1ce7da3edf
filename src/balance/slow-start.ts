const least = 0.1;

/**
 * The weight of a peer that is there since `sinceMs`: from a tenth to 1, growing evenly over `slowStartMs`. A process that has just started has cold caches and unoptimised code, and with the fewest calls
 * in flight it would be given all that come (Envoy's slow start mode).
 */
export function slowStartWeight(nowMs: number, sinceMs: number, slowStartMs: number): number {
  if (slowStartMs <= 0) return 1;
  return Math.min(1, Math.max(least, (nowMs - sinceMs) / slowStartMs));
}
