// The global one is a getter, which costs 8 ns each time.
import { Buffer } from "node:buffer";
import {
  isArrayBuffer,
  isDataView,
  isDate,
  isMap,
  isNativeError,
  isRegExp,
  isSet,
  isUint8Array,
} from "node:util/types";
import { isA, textOf } from "../base/errors/thrown.ts";
import { giveBodyMemory, takeBodyMemory } from "./body-memory.ts";
import {
  arrayBufferNumber,
  dataViewNumber,
  EncodeError,
  extension,
  maxBigIntBytes,
  maxDepth,
  packerOf,
  type RegionCodec,
  TooLongError,
  tooDeep,
  typedArrays,
} from "./extension.ts";
import { placeOfKeys, type Shape, ShapeTable } from "./shapes.ts";
import { type BufferWithView, type Utf8Buffer, viewOf } from "./utf8-buffer.ts";
import { cycleIn, pathIn } from "./value-path.ts";
import { maxWork, regExpWork, tableWork, tooMuchWork } from "./work.ts";

/**
 * Encodes values as msgpack, in place. It refuses what a receiver would refuse (docs/protocol.md, section 4). The fault
 * is then an error of the call and does not end the session.
 */

/** Longer strings are written by native code of Node. */
const shortString = 24;
/** The longest header of a value, and the longest number. */
const slack = 9;
/** The smallest size of a buffer that replaces one that was too short. */
const minGrownBytes = 16 * 1024;

// Encoding is synchronous: one value at a time.
let target: Utf8Buffer;
let view: DataView;
/** The last offset at which `slack` bytes fit. */
let room = 0;
let work = 0;
/** Where the value begins, and how many bytes it may have. */
let origin = 0;
let mostBytes = 0;
/** The value that is being encoded. */
let root: unknown;
/** See `value-path.ts`. */
const trail = new Int32Array(256);
let context: RegionCodec | undefined;

/** A Buffer over one send slot, with its DataView beside it. */
export type EncodeTarget = BufferWithView;

/**
 * The result of `encodeAt`: a buffer (the target, or a longer one when the target was too short) and the range in it.
 */
export interface Encoded {
  buffer: EncodeTarget;
  start: number;
  end: number;
}

const encoded: Encoded = { buffer: Buffer.alloc(0), start: 0, end: 0 };
/** True while a value is being encoded, which may run a getter or a toJSON of the user. */
let encoding = false;

/**
 * Encodes `value` into `into` from `start` on. It stops early at a value that needs more than `limit` bytes; a longer
 * value that still fits the buffer may be returned. If it does not fit, the bytes are in another buffer: compare
 * `buffer` with `into`. That buffer is body memory, and the caller gives it back. The result object is reused by the
 * next call.
 *
 * @throws EncodeError
 */
export function encodeAt(
  into: EncodeTarget,
  start: number,
  value: unknown,
  regions?: RegionCodec,
  limit = Number.POSITIVE_INFINITY,
): Encoded {
  if (encoding) throw new EncodeError("a getter or toJSON made a call while its value was being encoded");
  encoding = true;
  target = into as Utf8Buffer;
  view = into.dataView ?? viewOf(into);
  room = into.length - slack;
  work = 0;
  origin = start;
  mostBytes = limit;
  context = regions;
  root = value;
  try {
    encoded.end = write(value, start, 0);
  } catch (cause) {
    if (isA(cause, EncodeError)) throw cause;
    const why = isA(cause, RangeError) ? "it is too deep or too long" : textOf(cause);
    throw new EncodeError(`the value cannot be encoded: ${why}`, { cause });
  } finally {
    encoding = false;
    root = undefined;
  }
  encoded.buffer = target;
  encoded.start = start;
  return encoded;
}

const scratch: EncodeTarget = Buffer.allocUnsafeSlow(16 * 1024);

/** Encodes `value` into a new buffer. For cold paths: handshakes, errors, tests. */
export function encode(value: unknown, regions?: RegionCodec): Uint8Array {
  const { buffer, start, end } = encodeAt(scratch, 0, value, regions);
  const bytes = Uint8Array.prototype.slice.call(buffer, start, end);
  giveBodyMemory(buffer.buffer);
  return bytes;
}

/** Continues in body memory with room for `bytes` at `at`, and `slack` after them. */
function grow(at: number, bytes: number): void {
  if (at + bytes - origin > mostBytes) refuseLength(at + bytes - origin);
  const longer = takeBodyMemory(Math.max(2 * target.length, at + bytes + slack, minGrownBytes));
  target.copy(longer, 0, 0, at);
  giveBodyMemory(target.buffer);
  target = longer as Utf8Buffer;
  view = new DataView(longer.buffer, longer.byteOffset, longer.byteLength);
  room = longer.length - slack;
}

/** `depth`: of the part that is refused; 0 for the whole value. */
function refuse(why: string, depth = 0): never {
  const path = pathIn(root, depth, trail);
  throw new EncodeError(`the value cannot be encoded: ${why}${path === "" ? "" : ` at ${path}`}`);
}

function write(value: unknown, at: number, depth: number): number {
  if (at > room) grow(at, 0);
  switch (typeof value) {
    case "string":
      return writeString(value, at);
    case "number":
      return writeNumber(value, at);
    case "boolean":
      target[at] = value ? 0xc3 : 0xc2;
      return at + 1;
    case "undefined":
      return writeTag(extension.undefined, 0, at);
    case "object":
      if (value === null) {
        target[at] = 0xc0;
        return at + 1;
      }
      if (value.constructor === Object) return writeObject(value as Record<string, unknown>, at, depth);
      if (value.constructor === Array) return writeArray(value as readonly unknown[], at, depth);
      return writeOther(value, at, depth);
    case "bigint":
      return writeBigInt(value, at, depth);
    default:
      return refuse(`it holds a ${typeof value}`, depth);
  }
}

function writeObject(object: Record<string, unknown>, start: number, depth: number): number {
  const keys = Object.keys(object);
  if (keys.length === 0) return writeEmpty(object, start, depth);
  if (depth >= maxDepth) refuseDepth(depth);
  const place = placeOfKeys(keys);
  const shape = place < 0 ? undefined : shapes.at[place];
  if (shape?.code !== undefined && shape.keys.length === keys.length) {
    const end = shape.code(object, keys, start, depth);
    if (end >= 0) {
      shape.misses = 0;
      return end;
    }
  }
  let at = writeCount(keys.length, 0x80, 0xde, start);
  if (keys.includes("toJSON")) {
    const json = toJson(object);
    if (json !== object) return write(json, start, depth);
  }
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i] as string;
    if (key === "__proto__") refuse("map key __proto__ is not allowed", depth);
    if (at > room) grow(at, 0);
    at = writeString(key, at);
    trail[depth] = i;
    at = write(object[key], at, depth + 1);
  }
  if (place >= 0) noteShape(shape, place, keys);
  return at;
}

/** Writes an object without own fields as an empty object. Refuses an object that would lose content. */
function writeEmpty(object: object, at: number, depth: number): number {
  if (Object.getPrototypeOf(object) !== Object.prototype || Symbol.toStringTag in object)
    refuseHidden(object, depth);
  target[at] = 0x80;
  return at + 1;
}

/** Refuses an object that has no own fields and is not plain. */
function refuseHidden(object: object, depth: number): void {
  const kind = kindOf(object);
  if (kind !== "[object Object]") refuse(`it holds a ${nameOfKind(kind)}`, depth);
  if (!isPlain(object)) refuse(`it holds a ${classNameOf(object)} without fields of its own`, depth);
}

function classNameOf(object: object): string {
  const name: unknown = object.constructor?.name;
  return typeof name === "string" && name !== "" && name !== "Object" ? name : "nameless object";
}

/** Whether an object inherits only what all objects have. A dictionary may have an empty prototype. */
function isPlain(object: object): boolean {
  const parent: object | null = Object.getPrototypeOf(object);
  if (parent === null || parent === Object.prototype) return true;
  // The Object.prototype of another realm has this method, too.
  return (
    Object.getPrototypeOf(parent) === null &&
    (Object.hasOwn(parent, "isPrototypeOf") || Reflect.ownKeys(parent).length === 0)
  );
}

/** `[object Object]` for an object without its own kind. */
function kindOf(value: object): string {
  return Object.prototype.toString.call(value);
}

function nameOfKind(kind: string): string {
  return kind.slice("[object ".length, -1);
}

/** Counts an object with these keys that was written without generated code. */
function noteShape(shape: Shape<WriteCode> | undefined, place: number, keys: readonly string[]): void {
  const isOfShape = shape?.keys.length === keys.length && shape.keys.every((key, i) => key === keys[i]);
  if (isOfShape) shapes.count(shape);
  else shapes.learn(place, keys);
}

/**
 * The code of a shape: writes an object with these keys at `at`. Returns its end. Returns -1, with no byte written, if
 * the keys are others of the same number.
 */
type WriteCode = (object: object, keys: readonly string[], at: number, depth: number) => number;

const shapes = new ShapeTable<WriteCode>(({ keys, keyBytes }) => {
  const tests = keys.map((key, i) => `keys[${i}] !== ${JSON.stringify(key)}`);
  const steps = keyBytes.map((key, i) => {
    const bytes = [...key].map((byte, offset) => `into[at + ${offset}] = ${byte};`);
    return `
      into = roomFor(at, ${key.length});
      ${bytes.join(" ")}
      at += ${key.length};
      trail[depth] = ${i};
      value = object[${JSON.stringify(keys[i])}];
      if (typeof value === "string") at = writeString(value, at);
      else if (typeof value === "number") at = writeNumber(value, at);
      else at = write(value, at, depth + 1);`;
  });
  const count = keys.length < 0x10 ? [0x80 | keys.length] : [0xde, 0, keys.length];
  const header = count.map((byte, offset) => `into[at + ${offset}] = ${byte};`);
  const make = new Function(
    "roomFor, writeString, writeNumber, write, trail",
    `"use strict";
    return (object, keys, at, depth) => {
      if (${tests.join(" || ")}) return -1;
      let into = roomFor(at, 0), value;
      ${header.join(" ")}
      at += ${count.length};${steps.join("")}
      return at;
    };`,
  );
  return make(roomFor, writeString, writeNumber, write, trail);
});

/** For generated code: the buffer, with room for `bytes` at `at`, and `slack` after them. */
function roomFor(at: number, bytes: number): Uint8Array {
  if (at + bytes > room) grow(at, bytes);
  return target;
}

function writeArray(array: readonly unknown[], start: number, depth: number): number {
  const { length } = array;
  // Each value takes at least one byte. A sparse array may be longer than any message.
  if (length > mostBytes) refuseLength(length);
  let at = writeCount(length, 0x90, 0xdc, start);
  // An empty array is no deeper than a number.
  if (depth >= maxDepth && length > 0) refuseDepth(depth);
  for (let i = 0; i < length; i++) {
    trail[depth] = i;
    at = write(array[i], at, depth + 1);
  }
  return at;
}

function refuseLength(bytes: number): never {
  throw new TooLongError(`the body has at least ${bytes} bytes, maxBodyBytes is ${mostBytes}`);
}

function refuseDepth(depth: number): never {
  const cycle = cycleIn(root, depth, trail);
  if (cycle !== "") refuse(`it is circular, ${cycle}`);
  refuse(tooDeep, depth);
}

function toil(steps: number, depth: number): void {
  work += steps;
  if (work > maxWork) refuse(tooMuchWork, depth);
}

/**
 * Writes the header of a collection: the count in one byte with `few`, in 2 bytes after `many`, or in 4 after `many` +
 * 1.
 */
function writeCount(count: number, few: number, many: number, at: number): number {
  if (count >= 0x10) return count < 0x10000 ? write16(many, count, at) : write32(many + 1, count, at);
  target[at] = few | count;
  return at + 1;
}

/** Writes a length in 1, 2 or 4 bytes, after the tag `first`, `first` + 1 or `first` + 2. */
function writeLength(length: number, first: number, at: number): number {
  if (length < 0x100) return write8(first, length, at);
  return length < 0x10000 ? write16(first + 1, length, at) : write32(first + 2, length, at);
}

function write8(tag: number, value: number, at: number): number {
  target[at] = tag;
  target[at + 1] = value;
  return at + 2;
}

function write16(tag: number, value: number, at: number): number {
  target[at] = tag;
  view.setUint16(at + 1, value);
  return at + 3;
}

function write32(tag: number, value: number, at: number): number {
  target[at] = tag;
  view.setUint32(at + 1, value);
  return at + 5;
}

function writeString(text: string, at: number): number {
  const { length } = text;
  // A unit takes at most three bytes. They are counted only if that bound does not fit.
  if (at + 3 * length > room) {
    const bytes = Buffer.byteLength(text);
    if (at + bytes > room) grow(at, bytes);
  }
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
  const { length } = text;
  if (length >= 0x20 && length < 0x100) {
    const bytes = target.utf8Write(text, at + 2, target.length - at - 2);
    if (bytes < 0x100) {
      target[at] = 0xd9;
      target[at + 1] = bytes;
      return at + 2 + bytes;
    }
  }
  // After the header that an ASCII string of this length has: most strings are ASCII.
  const header = headerBytes(length);
  const bytes = target.utf8Write(text, at + header, target.length - at - header);
  const needed = headerBytes(bytes);
  if (needed !== header) target.copyWithin(at + needed, at + header, at + header + bytes);
  if (needed === 1) target[at] = 0xa0 | bytes;
  else writeLength(bytes, 0xd9, at);
  return at + needed + bytes;
}

function headerBytes(bytes: number): number {
  return bytes < 0x20 ? 1 : bytes < 0x100 ? 2 : bytes < 0x10000 ? 3 : 5;
}

function writeNumber(value: number, at: number): number {
  if (value >>> 0 === value) {
    if (value >= 0x10000) return write32(0xce, value, at);
    if (value >= 0x100) return write16(0xcd, value, at);
    if (value >= 0x80) return write8(0xcc, value, at);
    // -0 equals 0, but no integer format has it.
    if (value === 0 && 1 / value < 0) return writeDouble(value, at);
    target[at] = value;
    return at + 1;
  }
  // Negative: two's complement of the same width.
  if (value >> 0 === value) {
    if (value < -0x8000) return write32(0xd2, value, at);
    if (value < -0x80) return write16(0xd1, value, at);
    if (value < -0x20) return write8(0xd0, value, at);
    target[at] = value;
    return at + 1;
  }
  return writeDouble(value, at);
}

function writeDouble(value: number, at: number): number {
  target[at] = 0xcb;
  view.setFloat64(at + 1, value);
  return at + 9;
}

/** Writes a 64-bit integer if it fits, otherwise two's complement in whole words of 8 bytes. */
function writeBigInt(value: bigint, at: number, depth: number): number {
  const signed = BigInt.asIntN(64, value) === value;
  if (signed || BigInt.asUintN(64, value) === value) {
    target[at] = signed ? 0xd3 : 0xcf;
    view.setBigUint64(at + 1, BigInt.asUintN(64, value));
    return at + 9;
  }
  // One bit for the sign.
  const digits = (value < 0n ? ~value : value).toString(16);
  const bits = 4 * digits.length - Math.clz32(Number.parseInt(digits.charAt(0), 16)) + 28 + 1;
  const bytes = Math.ceil(bits / 64) * 8;
  if (bytes > maxBigIntBytes) refuse(`big integer has ${bytes} bytes, more than ${maxBigIntBytes},`, depth);
  const start = openExtension(extension.bigInt, bytes, at);
  for (let word = bytes - 8, rest = value; word >= 0; word -= 8, rest >>= 64n)
    view.setBigUint64(start + word, BigInt.asUintN(64, rest));
  return start + bytes;
}

/** Writes an object that is neither plain nor an array of this realm. */
function writeOther(value: object, at: number, depth: number): number {
  if (value instanceof Uint8Array) return writeBinary(value, at);
  const packer = packerOf(value);
  if (packer !== undefined) {
    const bytes = packer.pack(value, context);
    const start = openExtension(packer.type, bytes.length, at);
    target.set(bytes, start);
    return start + bytes.length;
  }
  // Objects of other realms are instances of no class of this realm. Only these need a look-up of their kind.
  const isForeign = !(value instanceof Object) && kindOf(value) !== "[object Object]";
  if (isForeign && isUint8Array(value)) return writeBinary(value, at);
  const json = toJson(value);
  if (json !== value) return write(json, at, depth);
  if (Array.isArray(value)) return writeArray(value, at, depth);
  if (value instanceof Map || (isForeign && isMap(value)))
    return writeTable(extension.map, [...value].flat(), 2, at, depth);
  if (isDate(value)) return writeDate(value.getTime(), at);
  if (value instanceof Set || (isForeign && isSet(value)))
    return writeTable(extension.set, [...value], 1, at, depth);
  if (value instanceof RegExp || (isForeign && isRegExp(value))) {
    toil(regExpWork(value.source.length, value.flags), depth);
    return writeTagged(extension.regExp, [value.source, value.flags], at, depth);
  }
  if (value instanceof Error || (isForeign && isNativeError(value)))
    return writeTagged(extension.error, errorParts(value), at, depth);
  if (value instanceof ArrayBuffer || (isForeign && isArrayBuffer(value)))
    return writeElements(arrayBufferNumber, new Uint8Array(value), at);
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    return writeElements(numberOf(value, depth), bytes, at);
  }
  const kind = kindOf(value);
  if (kind !== "[object Object]" && unsendableKinds.has(kind))
    refuse(`it holds a ${nameOfKind(kind)}`, depth);
  return writeObject(value as Record<string, unknown>, at, depth);
}

/** Writes instances of classes with their own format. */
const builtIns = new Set<unknown>([Map, Date, Set, Error, RegExp, ArrayBuffer, DataView, ...typedArrays]);

function errorParts(error: Error): unknown[] {
  const parts: unknown[] = [`${error.name}`, `${error.message}`, error.cause];
  if (error instanceof AggregateError || error.name === "AggregateError")
    parts.push((error as AggregateError).errors);
  return parts;
}

/** Kinds of objects without content for a receiver, or with other content than their fields show. */
const unsendableKinds = new Set(
  [
    ...["Promise", "WeakMap", "WeakSet", "WeakRef", "Number", "String", "Boolean", "Symbol", "BigInt"],
    ...["Generator", "AsyncGenerator"],
  ].map((name) => `[object ${name}]`),
);

/** The result of the value's `toJSON`, or the value itself. */
function toJson(value: object): unknown {
  if (builtIns.has(value.constructor) || Array.isArray(value)) return value;
  const { toJSON } = value as { toJSON?: unknown };
  return typeof toJSON !== "function" || isOfDates(toJSON, value) ? value : toJSON.call(value);
}

/** Whether it is the method of all dates. Dates of another realm, as of `node:vm`, have another function. */
function isOfDates(toJSON: unknown, value: object): boolean {
  const ours = Date.prototype.toJSON;
  return toJSON === ours || (isDate(value) && `${toJSON}` === `${ours}`);
}

function writeBinary(bytes: Uint8Array, at: number): number {
  const { length } = bytes;
  if (at + length > room) grow(at, length);
  const start = writeLength(length, 0xc4, at);
  target.set(bytes, start);
  return start + length;
}

/** Writes the header of an extension of `bytes` bytes, makes room for them, and returns where they begin. */
function openExtension(type: number, bytes: number, at: number): number {
  if (at + bytes > room) grow(at, bytes);
  let end = at + 1;
  // 1, 2, 4, 8 and 16 bytes have separate tags.
  if (bytes > 0 && bytes <= 16 && (bytes & (bytes - 1)) === 0) target[at] = 0xd4 + 31 - Math.clz32(bytes);
  else end = writeLength(bytes, 0xc7, at);
  target[end] = type;
  return end + 1;
}

/** Writes the number and the bytes of a typed array, always with an explicit length. */
function writeElements(number: number, bytes: Uint8Array, at: number): number {
  const { length } = bytes;
  if (at + length > room) grow(at, length);
  const start = writeLength(length + 1, 0xc7, at);
  target[start] = extension.typedArray;
  target[start + 1] = number;
  target.set(bytes, start + 2);
  return start + 2 + length;
}

/** The name of a typed array. Arrays of all realms inherit the getter, and a user's class may hide it. */
const typedArrayName = Object.getOwnPropertyDescriptor(
  Object.getPrototypeOf(Uint8Array.prototype),
  Symbol.toStringTag,
)?.get as () => string;

function numberOf(view: ArrayBufferView, depth: number): number {
  if (isDataView(view)) return dataViewNumber;
  const name = Reflect.apply(typedArrayName, view, []);
  const number = typedArrays.findIndex((Class) => Class.name === name);
  return number < 0 ? refuse(`it holds a ${name}`, depth) : number;
}

function writeDate(time: number, at: number): number {
  if (Number.isNaN(time)) return writeTag(extension.timestamp, 0xff, at);
  const seconds = Math.floor(time / 1000);
  const nanoseconds = (time - 1000 * seconds) * 1_000_000;
  const bytes = time < 0 || seconds >= 2 ** 32 ? 12 : nanoseconds === 0 ? 4 : 8;
  const start = openExtension(extension.timestamp, bytes, at);
  if (bytes === 12) {
    view.setUint32(start, nanoseconds);
    view.setBigInt64(start + 4, BigInt(seconds));
  } else {
    if (bytes === 8) view.setUint32(start, nanoseconds * 4);
    view.setUint32(start + bytes - 4, seconds);
  }
  return start + bytes;
}

/** Writes an extension of one byte. */
function writeTag(type: number, byte: number, at: number): number {
  target[at + 2] = byte;
  return write8(0xd4, type, at) + 1;
}

/** Writes a set or a map. The keys of its hash table are every `stride`-th of its parts. */
function writeTable(
  type: number,
  parts: readonly unknown[],
  stride: number,
  at: number,
  depth: number,
): number {
  toil(tableWork(parts, stride), depth);
  return writeTagged(type, parts, at, depth);
}

/** Writes a tag and its array. */
function writeTagged(type: number, parts: readonly unknown[], at: number, depth: number): number {
  if (depth >= maxDepth) refuseDepth(depth);
  const start = writeTag(type, 0, at);
  if (start > room) grow(start, 0);
  return writeArray(parts, start, depth + 1);
}
