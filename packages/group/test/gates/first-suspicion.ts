/** How often a detector that works may miss a limit, when the random numbers change. */
const chance = 0.001;

/**
 * Limits of the first suspicion, in periods. The members' periods and orders are independent, so the first ping of a crashed member
 * is waited for as for an event that comes once a period: exponentially. The probe fails a period later. So one crash
 * takes 1 + Exp(1). The mean of many has a tail like the gamma distribution's (the bound is Laurent and Massart's).
 */
export function firstSuspicionLimits(crashes: number): { readonly mean: number; readonly max: number } {
  const tail = Math.log(1 / chance);
  const max = 1 + Math.log(crashes) + tail;
  return {
    mean: Math.min(max, 2 + Math.sqrt((2 * tail) / crashes) + tail / crashes),
    max,
  };
}
