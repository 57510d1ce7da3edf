import { crc32 } from "node:zlib";

/**
 * The number of the lane that a key belongs to: highest random weight hashing (Thaler and Ravishankar 1998) over the
 * numbers below `lanes`. It depends on the two arguments alone, so every client gives the same. When `lanes` grows by
 * one, only the keys move that go to the new number.
 */
export function laneOfKey(key: string, lanes: number): number {
  const hash = crc32(key);
  let best = 0;
  let bestScore = -1;
  for (let number = 0; number < lanes; number++) {
    const score = mix(hash ^ mix(number + 1));
    if (score <= bestScore) continue;
    best = number;
    bestScore = score;
  }
  return best;
}

/** The finalizer of MurmurHash3: every bit of the result depends on every bit of the input. */
function mix(value: number): number {
  let hash = value | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
