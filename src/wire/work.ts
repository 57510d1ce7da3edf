/**
 * Bounds the work that a value costs its receiver beyond its memory (docs/protocol.md, section 4). Both sides apply the
 * same rule, so a sender knows the receiver's limit.
 *
 * V8 hashes numbers and big integers without a secret, and in some versions also strings that are array indices. A peer
 * can therefore choose thousands of keys for one bucket of a hash table. Each insertion visits all former keys of its
 * bucket. No code outside V8 can see the buckets, so the bound assumes the worst: n such keys cost n * n steps of 1 to
 * 3 ns.
 */

/** A table of 8,192 numbers reaches it. The worst value with this work takes about 0.2 s. */
export const maxWork = 2 ** 26;

/** Big integers of more than 64 bits collide if their last 64 bits are equal, and are compared word by word. */
const longBigIntSteps = 17;
/** Longer strings are not array indices. */
const longestIndex = 16;

/** Steps for each byte of a regular expression's source. `u` and `v` make V8 build tables of Unicode properties. */
const sourceSteps = 64;
const unicodeSourceSteps = 4096;
const setNotationSourceSteps = 32_768;

/** The work of a hash table with these keys: every `stride`-th value from the first on. */
export function tableWork(values: readonly unknown[], stride: number): number {
  let keys = 0;
  let steps = 0;
  for (let i = 0; i < values.length; i += stride) {
    const key = values[i];
    if (typeof key === "number" || (typeof key === "string" && isLikeIndex(key))) steps++;
    else if (typeof key === "bigint") steps += isLong(key) ? longBigIntSteps : 1;
    else continue;
    keys++;
  }
  return keys * steps;
}

function isLikeIndex(text: string): boolean {
  const unit = text.charCodeAt(0);
  return unit >= 0x30 && unit <= 0x39 && text.length <= longestIndex;
}

function isLong(value: bigint): boolean {
  return BigInt.asIntN(64, value) !== value && BigInt.asUintN(64, value) !== value;
}

/** The work of compiling a regular expression with `sourceUnits` UTF-16 code units in its source. */
export function regExpWork(sourceUnits: number, flags: string): number {
  if (flags.includes("v")) return setNotationSourceSteps * sourceUnits;
  return (flags.includes("u") ? unicodeSourceSteps : sourceSteps) * sourceUnits;
}

export const tooMuchWork =
  `the keys of its sets and maps, or its regular expressions, cost more than ${maxWork} steps: ` +
  "a set or map may have about 8,192 keys that are numbers, big integers or begin with a digit";
