import type { Utf8Buffer } from "../utf8-buffer.ts";
import { isControl, type MetadataValue, type MetadataValues, metadataLimits, namePattern } from "./entry.ts";

/*
 * Metadata of a request or of its terminal frame: a block before the body, in a frame with the flag `metadata`. It
 * follows the identity where there is one.
 *
 *   0  u16  length of the block, with this header and the padding; a multiple of eight
 *   2  u16  number of entries
 *   4       entries, one after the other: u8 length of the name, u8 form (0 text, 1 bytes), u16 length of the value,
 *           the name in ASCII, the value; then zeros up to the length
 *
 * A block may lie in a receive buffer, whose bytes are used again: it is checked there and copied.
 */

const headerBytes = 4;
const entryHeaderBytes = 4;
const form = { text: 0, bytes: 1 } as const;

const scratch = Buffer.allocUnsafeSlow(metadataLimits.maxBytes) as Utf8Buffer;

/** The offset of the next entry in the block that is being written; the number of entries; their fault. */
let nextAt = headerBytes;
let count = 0;
let fault = "";

/**
 * The block of entries without a fault, or a sentence that names the exceeded limit. Undefined without entries.
 */
export function writeMetadata(
  entries: ReadonlyMap<string, MetadataValues> | Readonly<Record<string, MetadataValues>>,
): Buffer | string | undefined {
  nextAt = headerBytes;
  count = 0;
  fault = "";
  if (entries instanceof Map) for (const [key, value] of entries) addAll(key, value);
  // Avoids an array for each entry.
  else for (const key in entries) if (Object.hasOwn(entries, key)) addAll(key, (entries as never)[key]);
  if (fault !== "") return fault;
  if (count === 0) return undefined;
  const length = (nextAt + 7) & ~7;
  for (let i = nextAt; i < length; i++) scratch[i] = 0;
  setUint16(0, length);
  setUint16(2, count);
  const block = Buffer.allocUnsafe(length);
  scratch.copy(block, 0, 0, length);
  return block;
}

function addAll(key: string, value: MetadataValues): void {
  if (typeof value === "string" || value instanceof Uint8Array) add(key, value);
  else for (const each of value) add(key, each);
}

function add(key: string, value: MetadataValue): void {
  if (++count > metadataLimits.maxEntries) {
    fault = `there are more than the ${metadataLimits.maxEntries} entries that a call may carry`;
    return;
  }
  const at = nextAt;
  const valueAt = at + entryHeaderBytes + key.length;
  const isText = typeof value === "string";
  const end =
    valueAt > metadataLimits.maxBytes ? -1 : isText ? writeText(value, valueAt) : writeBytes(value, valueAt);
  if (end < 0) {
    fault = `the entries take more than the ${metadataLimits.maxBytes} bytes that a call may carry`;
    return;
  }
  scratch[at] = key.length;
  scratch[at + 1] = isText ? form.text : form.bytes;
  setUint16(at + 2, end - valueAt);
  for (let i = 0; i < key.length; i++) scratch[at + entryHeaderBytes + i] = key.charCodeAt(i);
  nextAt = end;
}

/**
 * The end of the text, or -1 where it does not fit. Most text is short and ASCII: a loop is quicker than a native call.
 */
function writeText(text: string, at: number): number {
  if (at + text.length > metadataLimits.maxBytes) return -1;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code > 0x7f) {
      const bytes = Buffer.byteLength(text);
      if (at + bytes > metadataLimits.maxBytes) return -1;
      return at + scratch.utf8Write(text, at, bytes);
    }
    scratch[at + i] = code;
  }
  return at + text.length;
}

function writeBytes(bytes: Uint8Array, at: number): number {
  if (at + bytes.byteLength > metadataLimits.maxBytes) return -1;
  scratch.set(bytes, at);
  return at + bytes.byteLength;
}

function setUint16(at: number, value: number): void {
  scratch[at] = value;
  scratch[at + 1] = value >> 8;
}

/** The length of the block at `offset` of a body that ends at `end`, or a sentence that names the fault. */
export function metadataLength(bytes: Uint8Array, offset: number, end: number): number | string {
  if (end - offset < headerBytes) return `metadata has ${end - offset} bytes, less than its header`;
  const length = uint16(bytes, offset);
  const count = uint16(bytes, offset + 2);
  if (length % 8 !== 0 || length < headerBytes) return `metadata states a length of ${length}`;
  if (length > metadataLimits.maxBytes)
    return `metadata of ${length} bytes exceeds the limit of ${metadataLimits.maxBytes}`;
  if (length > end - offset) return `metadata of ${length} bytes runs past the end of its frame`;
  if (count > metadataLimits.maxEntries)
    return `metadata has ${count} entries, more than the limit of ${metadataLimits.maxEntries}`;
  const blockEnd = offset + length;
  let at = offset + headerBytes;
  for (let i = 0; i < count; i++) {
    if (blockEnd - at < entryHeaderBytes) return "metadata is cut off";
    const nameLength = bytes[at] as number;
    const valueForm = bytes[at + 1] as number;
    const valueAt = at + entryHeaderBytes + nameLength;
    const next = valueAt + uint16(bytes, at + 2);
    if (next > blockEnd) return "metadata is cut off";
    if (nameLength === 0 || nameLength > metadataLimits.maxNameLength)
      return `metadata has a name of ${nameLength} bytes`;
    if (valueForm > form.bytes) return `metadata has a value of the unknown form ${valueForm}`;
    for (let k = at + entryHeaderBytes; k < valueAt; k++)
      if (!nameByte[bytes[k] as number]) return "metadata has a name that is not a lower-case HTTP token";
    if (valueForm === form.text)
      for (let k = valueAt; k < next; k++)
        if (isControl(bytes[k] as number)) return "metadata has a control character in a value";
    at = next;
  }
  return blockEnd - at < 8 ? length : `metadata has ${blockEnd - at} bytes behind its last entry`;
}

/** Adds a value after the former values of a name. One value is kept as it is, several as an array. */
export function addValue(
  entries: Map<string, MetadataValue | MetadataValue[]>,
  key: string,
  value: MetadataValue,
): void {
  const before = entries.get(key);
  if (Array.isArray(before)) before.push(value);
  else entries.set(key, before === undefined ? value : [before, value]);
}

/** The values of a block that has passed `metadataLength`, by their names. */
export function readMetadata(block: Buffer): Map<string, MetadataValue | MetadataValue[]> {
  const entries = new Map<string, MetadataValue | MetadataValue[]>();
  const count = uint16(block, 2);
  let at = headerBytes;
  for (let i = 0; i < count; i++) {
    const nameLength = block[at] as number;
    addValue(entries, (block as Utf8Buffer).utf8Slice(at + 4, at + 4 + nameLength), valueAt(block, at));
    at += entryHeaderBytes + nameLength + uint16(block, at + 2);
  }
  return entries;
}

/** The first value of a name in a block that has passed `metadataLength`, without the others. */
export function findMetadata(block: Buffer, key: string): MetadataValue | undefined {
  let at = headerBytes;
  for (let i = uint16(block, 2); i > 0; i--) {
    const nameLength = block[at] as number;
    if (nameLength === key.length && isNameAt(block, at + entryHeaderBytes, key)) return valueAt(block, at);
    at += entryHeaderBytes + nameLength + uint16(block, at + 2);
  }
  return undefined;
}

/** Whether a block that has passed `metadataLength` contains a value of bytes. */
export function hasBytes(block: Buffer): boolean {
  let at = headerBytes;
  for (let i = uint16(block, 2); i > 0; i--) {
    if (block[at + 1] === form.bytes) return true;
    at += entryHeaderBytes + (block[at] as number) + uint16(block, at + 2);
  }
  return false;
}

function isNameAt(block: Buffer, at: number, key: string): boolean {
  for (let i = 0; i < key.length; i++) if (block[at + i] !== key.charCodeAt(i)) return false;
  return true;
}

/** The value of the entry at `at`. */
function valueAt(block: Buffer, at: number): MetadataValue {
  const start = at + entryHeaderBytes + (block[at] as number);
  const end = start + uint16(block, at + 2);
  if (block[at + 1] === form.text) return (block as Utf8Buffer).utf8Slice(start, end);
  return Uint8Array.from(block.subarray(start, end));
}

const nameByte: readonly boolean[] = Array.from({ length: 256 }, (_, code) =>
  namePattern.test(String.fromCharCode(code)),
);

function uint16(bytes: Uint8Array, at: number): number {
  return (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
}
