import { handleExtension, maxHandleBytes, minHandleBytes } from "./handle-descriptor.ts";
import { regionExtension, regionSizeFault } from "./region-descriptor.ts";
import { streamExtension, streamHeaderBytes } from "./stream-descriptor.ts";

/**
 * Walks one msgpack value without building anything and says whether it can be decoded safely: every length lies inside
 * the body, nesting and the number of values are bounded, extension types are those this protocol knows, map keys can be
 * property names. Runs before the decoder, so that hostile bytes never reach code that allocates by what they claim.
 *
 * Source: the msgpack specification's table of formats.
 */
export const maxDepth = 100;

/**
 * One byte can stand for an object of fifty bytes and more, so a body within its limit could still fill the heap. Each value costs one;
 * binary and extensions, which become objects of hundreds of bytes, cost `objectCost` more.
 */
export const maxCost = 2 ** 24;
const objectCost = 15;

const ext = {
  /** msgpackr's `undefined`. */
  undefined: 0x00,
  bigInt: 0x42,
  /** msgpackr's tags, each a fixext 1 before the array that holds the parts: Error, Set, RegExp. */
  error: 0x65,
  set: 0x73,
  regExp: 0x78,
  typedArray: 0x74,
  timestamp: 0xff,
} as const;

/** A big integer longer than this is a decoding cost, not data. */
const maxBigIntBytes = 1024;
/** msgpackr numbers typed arrays 0…10 (Int8Array…BigUint64Array), 0x10 ArrayBuffer, 0x11 DataView. */
const maxTypedArray = 0x11;

/** Values still owed at each nesting level. Module state is safe: the walk never yields. */
const owed = new Uint32Array(maxDepth + 1);
/** Whether the level is a map: then an odd number of values still owed means that a key comes next. */
const isMap = new Uint8Array(maxDepth + 1);

/** Why the bytes from `start` to `end` are not one well-formed value, or "" if they are. */
export function msgpackFault(bytes: Uint8Array, view: DataView, start: number, end: number): string {
  let at = start;
  let depth = 0;
  let cost = 0;
  owed[0] = 1;
  for (;;) {
    while (owed[depth] === 0) {
      if (depth === 0) return at === end ? "" : `${end - at} bytes follow the value`;
      depth--;
    }
    const left = (owed[depth] as number) - 1;
    owed[depth] = left;
    if (at >= end) return "value is cut off";

    const tag = bytes[at++] as number;
    if (isMap[depth] === 1 && (left & 1) === 1) {
      const fault = keyFault(bytes, view, tag, at, end);
      if (fault !== "") return fault;
    }
    let skip = 0;
    let children = 0;
    if (tag < 0x80 || tag >= 0xe0) continue;
    if (tag < 0x90) children = (tag & 0x0f) * 2;
    else if (tag < 0xa0) children = tag & 0x0f;
    else if (tag < 0xc0) skip = tag & 0x1f;
    else {
      const room = end - at;
      switch (tag) {
        case 0xc0: // nil
        case 0xc2: // false
        case 0xc3: // true
          continue;
        case 0xc4: // bin 8
        case 0xd9: // str 8
          if (room < 1) return "value is cut off";
          skip = 1 + (bytes[at] as number);
          break;
        case 0xc5: // bin 16
        case 0xda: // str 16
          if (room < 2) return "value is cut off";
          skip = 2 + view.getUint16(at);
          break;
        case 0xc6: // bin 32
        case 0xdb: // str 32
          if (room < 4) return "value is cut off";
          skip = 4 + view.getUint32(at);
          break;
        case 0xcc: // uint 8
        case 0xd0: // int 8
          skip = 1;
          break;
        case 0xcd: // uint 16
        case 0xd1: // int 16
          skip = 2;
          break;
        case 0xca: // float 32
        case 0xce: // uint 32
        case 0xd2: // int 32
          skip = 4;
          break;
        case 0xcb: // float 64
        case 0xcf: // uint 64
        case 0xd3: // int 64
          skip = 8;
          break;
        case 0xdc: // array 16
        case 0xde: // map 16
          if (room < 2) return "value is cut off";
          children = view.getUint16(at) * (tag === 0xde ? 2 : 1);
          at += 2;
          break;
        case 0xdd: // array 32
        case 0xdf: // map 32
          if (room < 4) return "value is cut off";
          children = view.getUint32(at) * (tag === 0xdf ? 2 : 1);
          at += 4;
          break;
        case 0xd4: // fixext 1, 2, 4, 8, 16
        case 0xd5:
        case 0xd6:
        case 0xd7:
        case 0xd8: {
          if (room < 2) return "value is cut off";
          const size = 1 << (tag - 0xd4);
          const type = bytes[at] as number;
          const fault = extensionFault(type, size, bytes[at + 1] as number);
          if (fault !== "") return fault;
          skip = 1 + size;
          if (isTag(type)) children = 1;
          break;
        }
        case 0xc7: // ext 8, 16, 32
        case 0xc8:
        case 0xc9: {
          const width = 1 << (tag - 0xc7);
          if (room < width + 2) return "value is cut off";
          const size =
            width === 1 ? (bytes[at] as number) : width === 2 ? view.getUint16(at) : view.getUint32(at);
          const type = bytes[at + width] as number;
          if (isTag(type)) return `extension 0x${type.toString(16)} has the wrong form`;
          const fault = extensionFault(type, size, bytes[at + width + 1] as number);
          if (fault !== "") return fault;
          skip = width + 1 + size;
          break;
        }
        default:
          return `byte 0x${tag.toString(16)} begins no value`;
      }
    }

    if (skip > end - at) return "value is cut off";
    at += skip;
    if (makesObject(tag) && (cost += objectCost) > maxCost) return tooMuch;
    if (children > 0) {
      // Each child takes at least one byte, so a count beyond what is left is a lie told before any allocation.
      if (children > end - at) return `collection of ${children} values has ${end - at} bytes`;
      if ((cost += children) > maxCost) return tooMuch;
      if (++depth > maxDepth) return `nesting is deeper than ${maxDepth}`;
      owed[depth] = children;
      isMap[depth] = (tag & 0xf0) === 0x80 || tag === 0xde || tag === 0xdf ? 1 : 0;
    }
  }
}

function makesObject(tag: number): boolean {
  return (tag >= 0xc4 && tag <= 0xc9) || (tag >= 0xd4 && tag <= 0xd8);
}

const tooMuch = `value has more than ${maxCost} parts`;

/** Keys become property names: strings, and scalars that turn into one. `__proto__` is none, whoever sends it. */
function keyFault(bytes: Uint8Array, view: DataView, tag: number, at: number, end: number): string {
  if (tag < 0x80 || tag >= 0xe0) return "";
  let length = -1;
  let start = at;
  if (tag >= 0xa0 && tag < 0xc0) length = tag & 0x1f;
  else if (tag === 0xd9 && at < end) {
    length = bytes[at] as number;
    start = at + 1;
  } else if (tag === 0xda && end - at >= 2) {
    length = view.getUint16(at);
    start = at + 2;
  } else if (tag === 0xdb && end - at >= 4) {
    length = view.getUint32(at);
    start = at + 4;
  } else if (tag < 0xc0 || (tag >= 0xc4 && tag <= 0xc9) || (tag >= 0xd4 && tag <= 0xd8) || tag >= 0xdc) {
    return `map key begins with byte 0x${tag.toString(16)}`;
  }
  if (length !== forbiddenKey.length || length > end - start) return "";
  for (let i = 0; i < length; i++) if (bytes[start + i] !== forbiddenKey.charCodeAt(i)) return "";
  return `map key ${forbiddenKey} is not allowed`;
}

const forbiddenKey = "__proto__";

function isTag(type: number): boolean {
  return type === ext.set || type === ext.error || type === ext.regExp;
}

function extensionFault(type: number, size: number, first: number): string {
  switch (type) {
    case ext.undefined:
    case ext.set:
    case ext.error:
    case ext.regExp:
      return size === 1 ? "" : `extension 0x${type.toString(16)} has ${size} bytes`;
    case ext.timestamp:
      return size === 1 || size === 4 || size === 8 || size === 12 ? "" : `timestamp has ${size} bytes`;
    case ext.bigInt:
      return size <= maxBigIntBytes ? "" : `big integer has ${size} bytes, more than ${maxBigIntBytes}`;
    case ext.typedArray:
      return size >= 1 && first <= maxTypedArray ? "" : "typed array is of an unknown type";
    case regionExtension:
      return regionSizeFault(size);
    // What is in these shows when they are decoded.
    case streamExtension:
      return size > streamHeaderBytes ? "" : `stream descriptor has ${size} bytes`;
    case handleExtension:
      return size >= minHandleBytes && size <= maxHandleBytes ? "" : `handle has ${size} bytes`;
    default:
      return `extension 0x${type.toString(16)} is unknown`;
  }
}
