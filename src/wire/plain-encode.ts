import type { Utf8Buffer } from "./utf8-buffer.ts";

/**
 * Encodes what most messages are made of, plain objects and arrays of strings, numbers and the like, in half of the time that msgpackr takes, into the very bytes that
 * it would write. What else there is (binary, dates, instances of classes, what is nested very deep or does not fit) is left to msgpackr from the start.
 */

/** What is nested deeper is for msgpackr, and for `msgpackFault` to judge. */
const maxDepth = 64;
/** Longer strings are written by native code. */
const shortString = 24;
/** The longest header of a value, and the longest number. */
const slack = 9;
const notPlain = -1;

// Encoding is synchronous, one value at a time: `encodeAt` sees to that.
let target: Utf8Buffer;
let view: DataView;
let room = 0;

/** Writes `value` from `start` on; where it ends, or -1 when it is not plain or the target too short, and then any bytes after `start` may have been written. */
export function encodePlain(into: Buffer, dataView: DataView, start: number, value: unknown): number {
  target = into as Utf8Buffer;
  view = dataView;
  room = into.length - slack;
  return write(value, start, 0);
}

function write(value: unknown, at: number, depth: number): number {
  if (at > room) return notPlain;
  switch (typeof value) {
    case "string":
      return writeString(value, at);
    case "number":
      return writeNumber(value, at);
    case "boolean":
      target[at] = value ? 0xc3 : 0xc2;
      return at + 1;
    case "undefined":
      target[at] = 0xd4;
      target[at + 1] = 0;
      target[at + 2] = 0;
      return at + 3;
    case "object":
      if (value === null) {
        target[at] = 0xc0;
        return at + 1;
      }
      if (depth >= maxDepth) return notPlain;
      if (value.constructor === Object) return writeObject(value as Record<string, unknown>, at, depth);
      if (value.constructor === Array) return writeArray(value as readonly unknown[], at, depth);
      return notPlain;
    default:
      return notPlain;
  }
}

function writeObject(object: Record<string, unknown>, start: number, depth: number): number {
  const keys = Object.keys(object);
  let at = writeCount(keys.length, 0x80, 0xde, start);
  for (let i = 0; i < keys.length && at >= 0; i++) {
    const key = keys[i] as string;
    if (key === "__proto__") return notPlain;
    at = writeString(key, at);
    if (at >= 0) at = write(object[key], at, depth + 1);
  }
  return at;
}

function writeArray(array: readonly unknown[], start: number, depth: number): number {
  const { length } = array;
  let at = writeCount(length, 0x90, 0xdc, start);
  for (let i = 0; i < length && at >= 0; i++) at = write(array[i], at, depth + 1);
  return at;
}

/** The header of a collection. */
function writeCount(count: number, few: number, many: number, at: number): number {
  if (count < 0x10) {
    target[at] = few | count;
    return at + 1;
  }
  if (count >= 0x10000) return notPlain;
  target[at] = many;
  view.setUint16(at + 1, count);
  return at + 3;
}

function writeString(text: string, at: number): number {
  const { length } = text;
  // Not more than three bytes for each of its units, and its header.
  if (at + 3 * length > room) return notPlain;
  if (length >= shortString) return writeLongString(text, at);
  for (let i = 0; i < length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0x80) return writeLongString(text, at);
    target[at + 1 + i] = unit;
  }
  target[at] = 0xa0 | length;
  return at + 1 + length;
}

function writeLongString(text: string, at: number): number {
  // Behind the header that it would have if it were ASCII: most are.
  const header = headerBytes(text.length);
  const bytes = target.utf8Write(text, at + header, target.length - at - header);
  const needed = headerBytes(bytes);
  if (needed !== header) target.copyWithin(at + needed, at + header, at + header + bytes);
  if (needed === 1) target[at] = 0xa0 | bytes;
  else if (needed === 2) {
    target[at] = 0xd9;
    target[at + 1] = bytes;
  } else if (needed === 3) {
    target[at] = 0xda;
    view.setUint16(at + 1, bytes);
  } else {
    target[at] = 0xdb;
    view.setUint32(at + 1, bytes);
  }
  return at + needed + bytes;
}

function headerBytes(bytes: number): number {
  return bytes < 0x20 ? 1 : bytes < 0x100 ? 2 : bytes < 0x10000 ? 3 : 5;
}

function writeNumber(value: number, at: number): number {
  if (value >>> 0 === value) {
    if (value < 0x80) {
      target[at] = value;
      return at + 1;
    }
    if (value < 0x100) {
      target[at] = 0xcc;
      target[at + 1] = value;
      return at + 2;
    }
    if (value < 0x10000) {
      target[at] = 0xcd;
      view.setUint16(at + 1, value);
      return at + 3;
    }
    target[at] = 0xce;
    view.setUint32(at + 1, value);
    return at + 5;
  }
  if (value >> 0 === value) {
    if (value >= -0x20) {
      target[at] = 0x100 + value;
      return at + 1;
    }
    if (value >= -0x80) {
      target[at] = 0xd0;
      target[at + 1] = value;
      return at + 2;
    }
    if (value >= -0x8000) {
      target[at] = 0xd1;
      view.setInt16(at + 1, value);
      return at + 3;
    }
    target[at] = 0xd2;
    view.setInt32(at + 1, value);
    return at + 5;
  }
  target[at] = 0xcb;
  view.setFloat64(at + 1, value);
  return at + 9;
}
