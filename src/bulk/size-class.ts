import { hugePageBytes } from "./slab-memory.ts";

const pageBytes = 4096;

/**
 * The length of the slab that serves `bytes` bytes: powers of two from a page on, with three more between each two, which keeps the waste below
 * a fifth where powers of two alone waste up to half. Whole pages, and whole huge pages above one.
 */
export function slabBytesFor(bytes: number): number {
  const power = 2 ** Math.floor(Math.log2(bytes));
  const step = Math.max(power / 4, bytes > hugePageBytes ? hugePageBytes : pageBytes);
  return Math.ceil(bytes / step) * step;
}
