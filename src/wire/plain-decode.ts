import { learn, placeOf, type Shape, shapeAt } from "./shapes.ts";
import type { Utf8Buffer } from "./utf8-buffer.ts";

/**
 * Decodes what most messages are made of, maps and arrays of strings, numbers and the like, in one pass that checks as it goes, in half of the time that the
 * check and msgpackr take. Whatever it does not know, and whatever is wrong, is for those two: it gives `notPlain`, and they say what it is.
 */
export const notPlain = Symbol("not plain");

/** Values are made before all bytes have been seen, so what a few bytes can claim is bounded by how many there are. */
const maxBytes = 64 * 1024;
const maxDepth = 64;
/** Longer strings are read by native code. */
const shortString = 16;

// Decoding is synchronous and runs nobody's code, so there is one at a time.
let bytes: Utf8Buffer;
let view: DataView;
let at = 0;
let end = 0;
/** Values of the maps that are being read, until each is complete. */
const values: unknown[] = [];
let top = 0;

/** The one value that fills `start` to `until`, or `notPlain`. */
export function decodePlain(from: Buffer, dataView: DataView, start: number, until: number): unknown {
  if (until - start > maxBytes) return notPlain;
  bytes = from as Utf8Buffer;
  view = dataView;
  at = start;
  end = until;
  top = 0;
  const value = read(0);
  return at === end ? value : notPlain;
}

function read(depth: number): unknown {
  if (at >= end) return notPlain;
  const tag = bytes[at++] as number;
  if (tag < 0x80) return tag;
  if (tag >= 0xe0) return tag - 0x100;
  if (tag >= 0xa0 && tag < 0xc0) return readString(tag & 0x1f);
  if (tag < 0x90) return readMap(tag & 0x0f, depth);
  if (tag < 0xa0) return readArray(tag & 0x0f, depth);
  const left = end - at;
  switch (tag) {
    case 0xc0:
      return null;
    case 0xc2:
      return false;
    case 0xc3:
      return true;
    case 0xcb:
      return left < 8 ? notPlain : view.getFloat64((at += 8) - 8);
    case 0xcc:
      return left < 1 ? notPlain : bytes[at++];
    case 0xcd:
      return left < 2 ? notPlain : view.getUint16((at += 2) - 2);
    case 0xce:
      return left < 4 ? notPlain : view.getUint32((at += 4) - 4);
    case 0xd0:
      return left < 1 ? notPlain : view.getInt8(at++);
    case 0xd1:
      return left < 2 ? notPlain : view.getInt16((at += 2) - 2);
    case 0xd2:
      return left < 4 ? notPlain : view.getInt32((at += 4) - 4);
    case 0xd9:
      return left < 1 ? notPlain : readString(bytes[at++] as number);
    case 0xda:
      return left < 2 ? notPlain : readString(view.getUint16((at += 2) - 2));
    case 0xdc:
      return left < 2 ? notPlain : readArray(view.getUint16((at += 2) - 2), depth);
    case 0xde:
      return left < 2 ? notPlain : readMap(view.getUint16((at += 2) - 2), depth);
    default:
      return notPlain;
  }
}

function readString(length: number): string | typeof notPlain {
  if (length > end - at) return notPlain;
  const start = at;
  at += length;
  if (length >= shortString) return bytes.utf8Slice(start, at);
  let text = "";
  let i = start;
  let all = 0;
  for (; i + 4 <= at; i += 4) {
    const a = bytes[i] as number;
    const b = bytes[i + 1] as number;
    const c = bytes[i + 2] as number;
    const d = bytes[i + 3] as number;
    all |= a | b | c | d;
    text += String.fromCharCode(a, b, c, d);
  }
  for (; i < at; i++) {
    const unit = bytes[i] as number;
    all |= unit;
    text += String.fromCharCode(unit);
  }
  return all < 0x80 ? text : bytes.utf8Slice(start, at);
}

function readArray(length: number, depth: number): unknown[] | typeof notPlain {
  // Each takes a byte at least.
  if (length > end - at || depth >= maxDepth) return notPlain;
  const array: unknown[] = [];
  for (let i = 0; i < length; i++) {
    const value = read(depth + 1);
    if (value === notPlain) return notPlain;
    array.push(value);
  }
  return array;
}

function readMap(count: number, depth: number): object | typeof notPlain {
  if (2 * count > end - at || depth >= maxDepth) return notPlain;
  if (count === 0) return {};
  const place = placeOf(bytes, at, end, count);
  const shape = place < 0 ? undefined : shapeAt(place, count);
  const object = shape === undefined ? readEntries({}, count, depth) : readShape(shape, place, count, depth);
  if (shape === undefined && place >= 0 && object !== notPlain) learn(place, object as object);
  return object;
}

function readShape(shape: Shape, place: number, count: number, depth: number): object | typeof notPlain {
  const base = top;
  top += count;
  for (let i = 0; i < count; i++) {
    const key = shape.keyBytes[i] as Uint8Array;
    if (!isNext(key)) {
      const object: Record<string, unknown> = {};
      for (let done = 0; done < i; done++) object[shape.keys[done] as string] = values[base + done];
      top = base;
      const other = readEntries(object, count - i, depth);
      if (other !== notPlain) learn(place, other as object);
      return other;
    }
    at += key.length;
    const value = read(depth + 1);
    if (value === notPlain) return notPlain;
    values[base + i] = value;
  }
  const object = shape.build(values, base);
  // Nothing of a message is kept longer than its receiver keeps it.
  for (let i = base; i < top; i++) values[i] = undefined;
  top = base;
  return object;
}

function isNext(key: Uint8Array): boolean {
  const { length } = key;
  if (length > end - at) return false;
  for (let i = 0; i < length; i++) if (bytes[at + i] !== key[i]) return false;
  return true;
}

function readEntries(
  object: Record<string, unknown>,
  count: number,
  depth: number,
): object | typeof notPlain {
  for (let i = 0; i < count; i++) {
    const tag = at < end ? (bytes[at] as number) : 0;
    // Other keys than short strings are rare.
    if (tag < 0xa0 || tag >= 0xc0) return notPlain;
    at++;
    const key = readString(tag & 0x1f);
    if (key === notPlain || key === "__proto__") return notPlain;
    const value = read(depth + 1);
    if (value === notPlain) return notPlain;
    object[key as string] = value;
  }
  return object;
}
