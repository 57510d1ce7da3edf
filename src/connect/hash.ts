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
