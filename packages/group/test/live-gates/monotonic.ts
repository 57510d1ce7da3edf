/** Milliseconds of the monotonic clock, which all processes of a host share. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
