/** FNV-1a over the UTF-16 code units, 32 bits. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ (text.charCodeAt(i) & 0xff), 0x01000193);
    hash = Math.imul(hash ^ (text.charCodeAt(i) >>> 8), 0x01000193);
  }
  return hash >>> 0;
}

/** The finalizer of MurmurHash3: every bit of the result depends on every bit of the input. */
export function mix(value: number): number {
  let hash = value | 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/**
 * The number below `count` that has the highest score with the key: highest random weight hashing (Thaler and
 * Ravishankar 1998), as `consistentHash` does it for names. It depends on the two arguments alone, so every process and
 * every version gives the same. When `count` grows by one, only the keys move that go to the new number.
 */
export function hashToNumber(key: string, count: number): number {
  const hash = hashOf(key);
  let best = 0;
  let bestScore = -1;
  for (let number = 0; number < count; number++) {
    const score = mix(hash ^ mix(number + 1));
    if (score <= bestScore) continue;
    best = number;
    bestScore = score;
  }
  return best;
}
