// The global one is a getter, which costs 8 ns each time.
import { Buffer } from "node:buffer";
import {
  DecodeError,
  extension,
  maxBigIntBytes,
  maxDepth,
  type RegionCodec,
  tooDeep,
  unpackerOf,
  ValueTooLargeError,
} from "./extension.ts";
import * as heapCost from "./heap-cost.ts";
import { makeDate, makeError, makeMap, makeTypedArray } from "./make-value.ts";
import { placeOfBytes, type Shape, ShapeTable } from "./shapes.ts";
import { type BufferWithView, type Utf8Buffer, viewOf } from "./utf8-buffer.ts";
import { maxWork, regExpWork, tableWork, tooMuchWork } from "./work.ts";

/**
 * Decodes msgpack and checks it in the same pass (docs/protocol.md, section 4): lengths lie inside the body, nesting
 * and work are bounded, extensions are known, and map keys can be property names. The memory that the value takes is
 * counted before it is taken.
 *
 * Values are made before all bytes have been read. A collection grows by the parts that were read, never by its claimed
 * length. Source: the msgpack specification's table of formats.
 */

/** Longer strings are read by native code of Node. V8 would keep the pieces of longer ones (`ConsString`). */
const shortString = 13;

// Decoding is synchronous and runs no user code, so only one value is decoded at a time.
let bytes: Utf8Buffer;
let view: DataView;
let at = 0;
let end = 0;
/** Bytes of the heap that the value takes so far, and how many it may take. */
let heapBytes = 0;

/** The same of the last value that was decoded, by estimate. */
export { heapBytes as decodedHeapBytes };

let maxHeapBytes = 0;
let work = 0;
let context: RegionCodec | undefined;
let views = false;

/** No limit. The highest that V8 holds without an object. */
export const mostHeapBytes = 2 ** 31 - 1;

/**
 * Decodes the one value that fills `start` to `until`. With `asViews`, binary inside the value is a view on `from`,
 * which must then belong to this value alone; otherwise it is copied. `decodedHeapBytes` is then the memory of the
 * value.
 *
 * @throws DecodeError on anything that is not exactly one well-formed value; ValueTooLargeError on one that takes more
 * than `maxBytes` of the heap.
 */
export function decodeAt(
  from: Uint8Array,
  start: number,
  until: number,
  regions?: RegionCodec,
  asViews = false,
  maxBytes = mostHeapBytes,
): unknown {
  const buffer: BufferWithView = Buffer.isBuffer(from)
    ? from
    : Buffer.from(from.buffer, from.byteOffset, from.byteLength);
  bytes = buffer as Utf8Buffer;
  view = buffer.dataView ?? viewOf(buffer);
  at = start;
  end = until;
  heapBytes = 0;
  maxHeapBytes = maxBytes;
  work = 0;
  context = regions;
  views = asViews;
  try {
    const value = read(0);
    if (at !== end) refuse(`${end - at} bytes follow the value`);
    spend(0);
    return value;
  } catch (cause) {
    if (cause instanceof DecodeError) throw cause;
    throw new DecodeError((cause as Error).message, { cause });
  }
}

function refuse(why: string): never {
  throw new DecodeError(why);
}

/** Skips `count` bytes and returns where they begin. */
function take(count: number): number {
  if (count > end - at) refuse("value is cut off");
  at += count;
  return at - count;
}

function read(depth: number): unknown {
  if (at >= end) refuse("value is cut off");
  const tag = bytes[at++] as number;
  if (tag < 0x80) return tag;
  if (tag >= 0xe0) return tag - 0x100;
  if (tag >= 0xa0 && tag < 0xc0) return readString(tag & 0x1f);
  if (tag < 0x90) return readMap(tag & 0x0f, depth);
  if (tag < 0xa0) return readArray(tag & 0x0f, depth);
  switch (tag) {
    case 0xc0:
      return null;
    case 0xc2:
      return false;
    case 0xc3:
      return true;
    case 0xc4: // bin 8, 16, 32
    case 0xc5:
    case 0xc6:
      return readBinary(readCount(tag - 0xc4));
    case 0xc7: // ext 8, 16, 32
    case 0xc8:
    case 0xc9:
      return readExtension(readCount(tag - 0xc7), false, depth);
    case 0xca:
      heapBytes += heapCost.double;
      return view.getFloat32(take(4));
    case 0xcb:
      heapBytes += heapCost.double;
      return view.getFloat64(take(8));
    case 0xcc: // uint 8, 16, 32
    case 0xcd:
    case 0xce:
      return readCount(tag - 0xcc);
    case 0xcf:
      spend(heapCost.bigInt + 8);
      return view.getBigUint64(take(8));
    case 0xd0:
      return view.getInt8(take(1));
    case 0xd1:
      return view.getInt16(take(2));
    case 0xd2:
      return view.getInt32(take(4));
    case 0xd3:
      spend(heapCost.bigInt + 8);
      return view.getBigInt64(take(8));
    case 0xd4: // fixext 1, 2, 4, 8, 16
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
      return readExtension(1 << (tag - 0xd4), tag === 0xd4, depth);
    case 0xd9: // str 8, 16, 32
    case 0xda:
    case 0xdb:
      return readString(readCount(tag - 0xd9));
    case 0xdc: // array 16, 32
    case 0xdd:
      return readArray(readCount(tag - 0xdb), depth);
    case 0xde: // map 16, 32
    case 0xdf:
      return readMap(readCount(tag - 0xdd), depth);
    default:
      return refuse(`byte 0x${tag.toString(16)} begins no value`);
  }
}

/** An unsigned integer of 1, 2 or 4 bytes, for a `width` of 0, 1 or 2. */
function readCount(width: number): number {
  const start = at;
  at += 1 << width;
  if (at > end) refuse("value is cut off");
  if (width === 0) return bytes[start] as number;
  return width === 1 ? view.getUint16(start) : view.getUint32(start);
}

function readString(length: number): string {
  if (length > end - at) refuse("value is cut off");
  const start = at;
  at += length;
  if (length >= shortString) return readLongString(start, length);
  if (length > 1) spend(heapCost.string + length);
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

function readLongString(start: number, length: number): string {
  // Checked before the string is made. It is at most as long as its bytes. V8 stores one byte for each character, or
  // two for each.
  spend(heapCost.string + length);
  const text = bytes.utf8Slice(start, at);
  if (text.length !== length) spend(Math.max(0, 2 * text.length - length));
  return text;
}

function readBinary(length: number): Uint8Array {
  spend(heapCost.binary + Math.min(length, heapCost.inHeap));
  const start = take(length);
  if (views) return new Uint8Array(bytes.buffer, bytes.byteOffset + start, length);
  const copy = new Uint8Array(length);
  copy.set(bytes.subarray(start, at));
  return copy;
}

/** Refuses a collection with more parts than bytes, as each part takes at least one, or one that lies too deep. */
function refuseCollection(parts: number): never {
  return refuse(parts > end - at ? `collection of ${parts} values has ${end - at} bytes` : tooDeep);
}

/** Counts memory that the value is about to take. Doubles, which take no more than their places, are counted later. */
function spend(count: number): void {
  heapBytes += count;
  if (heapBytes > maxHeapBytes)
    throw new ValueTooLargeError(`value takes more than ${maxHeapBytes} bytes of memory once decoded`);
}

function toil(steps: number): void {
  work += steps;
  if (work > maxWork) refuse(tooMuchWork);
}

function readArray(length: number, depth: number): unknown[] {
  if (length === 0) {
    spend(heapCost.exactArray(0));
    return [];
  }
  if (length > end - at || depth >= maxDepth) refuseCollection(length);
  const inner = depth + 1;
  // Points and pairs are frequent. An array that is filled by `push` would have room for 17.
  if (length <= 3) {
    spend(heapCost.exactArray(length));
    if (length === 1) return [read(inner)];
    if (length === 2) return [read(inner), read(inner)];
    return [read(inner), read(inner), read(inner)];
  }
  spend(heapCost.array(length));
  const array: unknown[] = [];
  for (let i = 0; i < length; i++) array.push(read(inner));
  return array;
}

function readMap(count: number, depth: number): object {
  if (count === 0) {
    spend(heapCost.emptyObject);
    return {};
  }
  if (2 * count > end - at || depth >= maxDepth) refuseCollection(2 * count);
  const place = placeOfBytes(bytes, at, end, count);
  if (place < 0) return readEntries({}, count, depth);
  const shape = shapes.at[place];
  if (shape?.keys.length !== count) return readNewShape({}, place, count, depth);
  spend(heapCost.shaped + heapCost.slot * count);
  if (shape.code === undefined) return readShape(shape, place, depth);
  const object = shape.code(bytes, at, end, place, depth + 1);
  at = position[0] as number;
  return object;
}

/** Reads the last `count` entries of an object with another shape than the one at its place. */
function readNewShape(object: Record<string, unknown>, place: number, count: number, depth: number): object {
  readEntries(object, count, depth);
  const learned = shapes.learn(place, Object.keys(object));
  if (learned !== undefined) learned.kept = withObjects(learned.keys);
  return object;
}

/** Reads a map with the keys of a shape without code. Other keys lead to `readNewShape`. */
function readShape(shape: Shape<ReadCode>, place: number, depth: number): object {
  const { keys, keyBytes } = shape;
  const object: Record<string, unknown> = {};
  for (let i = 0; i < keys.length; i++) {
    const key = keyBytes[i] as Uint8Array;
    if (!isNext(key)) return readNewShape(object, place, keys.length - i, depth);
    at += key.length;
    object[keys[i] as string] = read(depth + 1);
  }
  shapes.count(shape);
  return object;
}

/**
 * An object with objects in all properties, made as `readShape` makes them. V8 keeps a box of 16 bytes for each integer
 * in a property that has only had doubles and integers. It keeps no box in a property that has had an object. This
 * object is kept, because V8 forgets a property's history with its last object.
 */
function withObjects(keys: readonly string[]): object {
  const object: Record<string, unknown> = {};
  for (const key of keys) object[key] = keys;
  return object;
}

/** Decodes a map of a shape. Its first key is at `start`. `inner`: the depth of its values. */
type ReadCode = (from: Uint8Array, start: number, end: number, place: number, inner: number) => object;

/** A byte that is not the value of a small integer: `read` decides its meaning. */
const noSmallInteger = 0xff;

const shapes = new ShapeTable<ReadCode>((shape) => {
  const { keys, keyBytes } = shape;
  const names = keys.map((_, i) => `v${i}`);
  const steps = keyBytes.map((key, i) => {
    const tests = [...key].map((byte, offset) => `from[at + ${offset}] !== ${byte}`);
    return `
      if (end - at < ${key.length} || ${tests.join(" || ")})
        return readRest(keys, [${names.slice(0, i).join(", ")}], at, place, inner);
      at += ${key.length};
      let v${i} = at < end ? from[at] : ${noSmallInteger};
      if (v${i} < 0x80) at++;
      else {
        v${i} = readAt(at, inner);
        at = position[0];
      }`;
  });
  const properties = keys.map((key, i) => `${JSON.stringify(key)}: v${i}`);
  const make = new Function(
    "shape, keys, readAt, position, readRest",
    `"use strict";
    const build = (${names.join(", ")}) => ({ ${properties.join(", ")} });
    const decode = (from, at, end, place, inner) => {${steps.join("")}
      position[0] = at;
      shape.misses = 0;
      return build(${names.join(", ")});
    };
    return { decode, build };`,
  );
  const { decode, build } = make(shape, keys, readAt, position, readRest);
  // As `withObjects`, for the objects of this code.
  shape.kept = build(...keys.map(() => keys));
  return decode;
});

/** The position of generated code, and of its calls: it cannot see the variables of this module. */
const position = new Uint32Array(1);

/** For generated code: reads the value at `start`; it ends at `position[0]`. */
function readAt(start: number, depth: number): unknown {
  at = start;
  const value = read(depth);
  position[0] = at;
  return value;
}

/** For generated code: the map has these values, followed by another key than its shape. */
function readRest(
  keys: readonly string[],
  values: readonly unknown[],
  start: number,
  place: number,
  inner: number,
): object {
  at = start;
  const object: Record<string, unknown> = {};
  for (let i = 0; i < values.length; i++) object[keys[i] as string] = values[i];
  readNewShape(object, place, keys.length - values.length, inner - 1);
  position[0] = at;
  return object;
}

function isNext(key: Uint8Array): boolean {
  const { length } = key;
  if (length > end - at) return false;
  for (let i = 0; i < length; i++) if (bytes[at + i] !== key[i]) return false;
  return true;
}

function readEntries(object: Record<string, unknown>, count: number, depth: number): object {
  spend(heapCost.object + heapCost.entry * count);
  let capacity = 0;
  for (let i = 0; i < count; i++) {
    const key = readKey();
    const unit = key.charCodeAt(0);
    if (unit >= 0x30 && unit <= 0x39) {
      const grown = heapCost.elementCapacity(capacity, Number(key));
      spend(heapCost.slot * (grown - capacity));
      capacity = grown;
    }
    object[key] = read(depth + 1);
  }
  return object;
}

/** A map key: a string, or a scalar that becomes one. `__proto__` is refused. */
function readKey(): string {
  if (at >= end) refuse("value is cut off");
  const tag = bytes[at] as number;
  if (tag < 0x80 || tag >= 0xe0 || (tag >= 0xc0 && tag < 0xc4) || (tag >= 0xca && tag < 0xd4))
    return `${read(0)}`;
  if (tag < 0xa0 || (tag >= 0xc0 && tag < 0xd9) || tag >= 0xdc)
    refuse(`map key begins with byte 0x${tag.toString(16)}`);
  const key = read(0) as string;
  if (key === "__proto__") refuse("map key __proto__ is not allowed");
  return key;
}

/** Reads an extension of `size` bytes. Its type comes next. */
function readExtension(size: number, isTag: boolean, depth: number): unknown {
  const type = bytes[take(1)] as number;
  switch (type) {
    case extension.undefined:
      if (size !== 1) refuse(`extension 0x0 has ${size} bytes`);
      take(1);
      return undefined;
    case extension.set:
    case extension.map:
    case extension.error:
    case extension.regExp:
      if (!isTag) refuse(`extension 0x${type.toString(16)} has the wrong form`);
      take(1);
      return readTagged(type, depth);
    case extension.timestamp:
      return readDate(size);
    case extension.bigInt:
      return readBigInt(size);
    case extension.typedArray:
      return readTypedArray(size);
    default:
      return readRegistered(type, size);
  }
}

/** Reads an extension of a registered class. */
function readRegistered(type: number, size: number): object {
  const unpacker = unpackerOf(type) ?? refuse(`extension 0x${type.toString(16)} is unknown`);
  const fault = unpacker.sizeFault(size);
  if (fault !== "") refuse(fault);
  // Regions and handles become a few objects, and those of their segments.
  spend(heapCost.object + 8 * size);
  const start = take(size);
  return unpacker.unpack(bytes.subarray(start, at), context);
}

/** Reads the array after a tag. It counts as nested inside the tag. */
function readTagged(type: number, depth: number): object {
  if (at >= end || depth >= maxDepth) refuseCollection(1);
  const parts = read(depth + 1);
  if (!Array.isArray(parts)) refuse(`extension 0x${type.toString(16)} has no array`);
  if (type === extension.set || type === extension.map) {
    spend(heapCost.table(parts.length));
    toil(tableWork(parts, type === extension.set ? 1 : 2));
    return type === extension.set ? new Set(parts) : makeMap(parts);
  }
  const [first, second, cause, errors] = parts as readonly unknown[];
  if (typeof first !== "string" || typeof second !== "string")
    refuse(`extension 0x${type.toString(16)} does not begin with two strings`);
  if (type === extension.error) {
    spend(heapCost.error);
    return makeError(first, second, cause, errors);
  }
  spend(heapCost.regExp);
  toil(regExpWork(first.length, second));
  return new RegExp(first, second);
}

function readDate(size: number): Date {
  if (size !== 1 && size !== 4 && size !== 8 && size !== 12) refuse(`timestamp has ${size} bytes`);
  spend(heapCost.date);
  return makeDate(view, take(size), size);
}

function readBigInt(size: number): bigint {
  if (size < 1 || size > maxBigIntBytes)
    refuse(`big integer has ${size} bytes, not between 1 and ${maxBigIntBytes}`);
  spend(heapCost.bigInt + size + 8);
  const start = take(size);
  return BigInt.asIntN(8 * size, BigInt(`0x${bytes.toString("hex", start, at)}`));
}

function readTypedArray(size: number): object {
  if (size === 0) refuse("typed array is of an unknown type");
  spend(heapCost.binary);
  const start = take(size);
  const { buffer, byteOffset } = bytes;
  // Separate, aligned memory.
  const memory = buffer.slice(byteOffset + start + 1, byteOffset + at) as ArrayBuffer;
  return makeTypedArray(bytes[start] as number, memory) ?? refuse("typed array is of an unknown type");
}
