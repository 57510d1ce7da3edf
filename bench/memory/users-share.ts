import { footprint } from "../echo/usage.ts";

/** What `make` leaves on the heap, in bytes: mean over so many, after as many that pay for what is made once. */
export function usersShare(count: number, make: () => unknown): number {
  const held: unknown[] = new Array(2 * count);
  for (let i = 0; i < count; i++) held[i] = make();
  const before = footprint().heapBytes;
  for (let i = count; i < 2 * count; i++) held[i] = make();
  const after = footprint().heapBytes;
  // Whatever is held lives until here.
  if (held.length !== 2 * count) throw new Error("what is measured was dropped");
  return (after - before) / count;
}
