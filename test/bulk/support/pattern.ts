/** Writes a pattern without a short period, so that bytes from the wrong place show. */
export function fill(bytes: Uint8Array, seed: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = byteAt(i, seed);
}

/** Where the pattern is broken first, or -1. */
export function firstWrong(bytes: Uint8Array, seed: number): number {
  for (let i = 0; i < bytes.length; i++) if (bytes[i] !== byteAt(i, seed)) return i;
  return -1;
}

function byteAt(index: number, seed: number): number {
  return (Math.imul(index + seed, 0x9e3779b1) >>> 24) & 0xff;
}
