/** What a value counts for that is no string and no binary, and each entry of a collection besides. */
const bytesOfValue = 16;
/** Values looked at. The rest of a longer input counts as if it were like what has been seen. */
const maxLooked = 256;

/**
 * About how many bytes an input holds while its call waits: strings and binaries by their length, everything else by a
 * constant. An estimate, for a bound on memory: at most 256 values are looked at, so that a long input costs no more
 * than a short one. Never throws, though it may run getters of the input's.
 */
export function inputBytes(input: unknown): number {
  const look = { left: maxLooked };
  try {
    return bytesOf(input, look);
  } catch {
    // It will not be encoded either.
    return bytesOfValue;
  }
}

function bytesOf(value: unknown, look: { left: number }): number {
  look.left--;
  if (typeof value === "string") return bytesOfValue + value.length;
  if (typeof value !== "object" || value === null) return bytesOfValue;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof SharedArrayBuffer)
    return bytesOfValue + value.byteLength;
  if (Array.isArray(value)) return bytesOfAll(value, value.length, look);
  if (value instanceof Set) return bytesOfAll(value, value.size, look);
  if (value instanceof Map) return bytesOfAll(value.values(), value.size, look);
  return bytesOfFields(value as Record<string, unknown>, look);
}

/** As `bytesOfAll`, without an iterator: most inputs are plain objects. */
function bytesOfFields(value: Record<string, unknown>, look: { left: number }): number {
  const names = Object.keys(value);
  let bytes = 0;
  let looked = 0;
  while (looked < names.length && look.left > 0) bytes += bytesOf(value[names[looked++] as string], look);
  return estimate(bytes, looked, names.length);
}

function bytesOfAll(values: Iterable<unknown>, count: number, look: { left: number }): number {
  let bytes = 0;
  let looked = 0;
  for (const value of values) {
    if (look.left <= 0) break;
    bytes += bytesOf(value, look);
    looked++;
  }
  return estimate(bytes, looked, count);
}

/** Estimates the bytes of a collection of `count` entries, of which `looked` have `bytes` bytes. */
function estimate(bytes: number, looked: number, count: number): number {
  const like = looked === 0 ? bytesOfValue : bytes / looked;
  return Math.ceil(bytesOfValue + bytes + like * (count - looked));
}
