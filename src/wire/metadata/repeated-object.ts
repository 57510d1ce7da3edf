import type { MetadataValues } from "./entry.ts";

// The plain object of metadata that was packed last. Callers pass the same entries again and again. A comparison costs
// a tenth of checking and packing them.

/** Names and texts by turns. Bytes and arrays are not remembered: their owner may change them. */
let entries: string[] = [];
let block: Uint8Array | undefined;

/** The longest block that is kept: it may stay for a long time. */
const maxKeptBytes = 1024;

/** The block of an object with the same entries as the last one, in the same order; undefined if it differs. */
export function repeatedBlock(object: object): Uint8Array | undefined {
  if (block === undefined || Object.getPrototypeOf(object) !== Object.prototype) return undefined;
  const values = object as Readonly<Record<string, unknown>>;
  let at = 0;
  for (const name in values) {
    if (name !== entries[at] || values[name] !== entries[at + 1]) return undefined;
    at += 2;
  }
  return at === entries.length ? block : undefined;
}

/** The object has been checked, and packed into `packed`. */
export function rememberBlock(object: Readonly<Record<string, MetadataValues>>, packed: Uint8Array): void {
  if (packed.byteLength > maxKeptBytes) return;
  const kept: string[] = [];
  for (const [name, value] of Object.entries(object)) {
    if (typeof value !== "string") return;
    kept.push(name, value);
  }
  entries = kept;
  block = packed;
}
