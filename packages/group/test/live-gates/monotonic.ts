/** Milliseconds of a clock that all processes of a host share, and that nobody sets. */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
