/** What was done in a stretch of time. */
export interface Measured {
  readonly transfers: number;
  readonly elapsedMs: number;
}

/** Until when to go on: for a time, or for so many transfers. Each lane does at least one. */
export type Stretch = { readonly durationMs: number } | { readonly transfers: number };

/**
 * Runs transfers with so many in flight; a lane begins its next when its last has ended. The clock stops with the last
 * of all.
 */
export async function runLanes(
  inFlight: number,
  stretch: Stretch,
  transfer: (lane: number) => Promise<unknown>,
): Promise<Measured> {
  const started = performance.now();
  const goesOn =
    "durationMs" in stretch
      ? () => performance.now() - started < stretch.durationMs
      : () => begun < stretch.transfers;
  let begun = 0;
  const lane = async (index: number) => {
    do {
      begun++;
      await transfer(index);
    } while (goesOn());
  };
  await Promise.all(Array.from({ length: inFlight }, (_, index) => lane(index)));
  return { transfers: begun, elapsedMs: performance.now() - started };
}
