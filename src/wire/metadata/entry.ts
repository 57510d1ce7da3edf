/*
 * One entry of metadata: its name, its value, and the limits of both. Contracts use it, and contracts run in browsers,
 * so this module uses no class of Node.
 */

/** The value of an entry: a text, or bytes. */
export type MetadataValue = string | Uint8Array;

/** The value of a name: one value, or several in their order. */
export type MetadataValues = MetadataValue | readonly MetadataValue[];

/**
 * A typed entry, made by `metadataKey`. `read` returns the value of a call in the form of the schema.
 */
export interface MetadataKey<T> {
  readonly name: string;
  /** @throws RpcError `invalid_argument` if the value does not fit. */
  read(value: MetadataValue): T;
}

/** Fixed by the protocol. */
export const metadataLimits = { maxEntries: 64, maxBytes: 8192, maxNameLength: 128 } as const;

/** A name as in HTTP/2: a token of lower-case ASCII. */
export const namePattern = /^[a-z0-9!#$%&'*+\-.^_`|~]{1,128}$/;
/** Valid names. They are few in a program, and each is checked for each call. */
const goodNames = new Set<string>();
const maxGoodNames = 1024;

/** The fault of a name and its value or values, or "". */
export function entryFault(key: string, value: unknown): string {
  if (!isName(key))
    return `the name ${JSON.stringify(key)} is not 1 to ${metadataLimits.maxNameLength} lower-case ASCII characters as in HTTP`;
  if (!Array.isArray(value)) return valueFault(key, value);
  for (const each of value) {
    const fault = valueFault(key, each);
    if (fault !== "") return fault;
  }
  return "";
}

function valueFault(key: string, value: unknown): string {
  if (typeof value === "string")
    return hasControl(value) ? `the value of "${key}" has a control character` : "";
  return value instanceof Uint8Array
    ? ""
    : `the value of "${key}" must be a string or a Uint8Array, or an array of them`;
}

function isName(key: string): boolean {
  if (goodNames.has(key)) return true;
  if (!namePattern.test(key)) return false;
  if (goodNames.size < maxGoodNames) goodNames.add(key);
  return true;
}

/** A value may reach an HTTP header, where a line feed would begin another. */
function hasControl(value: string): boolean {
  for (let i = 0; i < value.length; i++) if (isControl(value.charCodeAt(i))) return true;
  return false;
}

/** Whether a character, by its code, is a control character other than a tab. */
export const isControl = (code: number): boolean => (code < 0x20 && code !== 0x09) || code === 0x7f;
