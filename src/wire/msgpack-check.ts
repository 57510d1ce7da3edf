import { regionDescriptorBytes, regionExtension } from "./region-descriptor.ts";

/**
 * Walks one msgpack value without building anything and says whether it can be decoded safely: every length lies inside
 * the body, nesting is bounded, extension types are those this protocol knows. Runs before the decoder, so that hostile
 * bytes never reach code that allocates by what they claim.
 *
 * Source: the msgpack specification's table of formats.
 */
export const maxDepth = 100;

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

/** Why the bytes from `start` to `end` are not one well-formed value, or "" if they are. */
export function msgpackFault(bytes: Uint8Array, view: DataView, start: number, end: number): string {
  let at = start;
  let depth = 0;
  owed[0] = 1;
  for (;;) {
    while (owed[depth] === 0) {
      if (depth === 0) return at === end ? "" : `${end - at} bytes follow the value`;
      depth--;
    }
    owed[depth] = (owed[depth] as number) - 1;
    if (at >= end) return "value is cut off";

    const tag = bytes[at++] as number;
    let skip = 0;
    let children = 0;
    if (tag < 0x80 || tag >= 0xe0) continue;
    if (tag < 0x90) children = (tag & 0x0f) * 2;
    else if (tag < 0xa0) children = tag & 0x0f;
    else if (tag < 0xc0) skip = tag & 0x1f;
    else {
      const left = end - at;
      switch (tag) {
        case 0xc0: // nil
        case 0xc2: // false
        case 0xc3: // true
          continue;
        case 0xc4: // bin 8
        case 0xd9: // str 8
          if (left < 1) return "value is cut off";
          skip = 1 + (bytes[at] as number);
          break;
        case 0xc5: // bin 16
        case 0xda: // str 16
          if (left < 2) return "value is cut off";
          skip = 2 + view.getUint16(at);
          break;
        case 0xc6: // bin 32
        case 0xdb: // str 32
          if (left < 4) return "value is cut off";
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
          if (left < 2) return "value is cut off";
          children = view.getUint16(at) * (tag === 0xde ? 2 : 1);
          at += 2;
          break;
        case 0xdd: // array 32
        case 0xdf: // map 32
          if (left < 4) return "value is cut off";
          children = view.getUint32(at) * (tag === 0xdf ? 2 : 1);
          at += 4;
          break;
        case 0xd4: // fixext 1, 2, 4, 8, 16
        case 0xd5:
        case 0xd6:
        case 0xd7:
        case 0xd8: {
          if (left < 2) return "value is cut off";
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
          if (left < width + 2) return "value is cut off";
          const size = width === 1 ? (bytes[at] as number) : width === 2 ? view.getUint16(at) : view.getUint32(at);
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
    if (children > 0) {
      // Each child takes at least one byte, so a count beyond what is left is a lie told before any allocation.
      if (children > end - at) return `collection of ${children} values has ${end - at} bytes`;
      if (++depth > maxDepth) return `nesting is deeper than ${maxDepth}`;
      owed[depth] = children;
    }
  }
}

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
      return size === regionDescriptorBytes ? "" : `region descriptor has ${size} bytes`;
    default:
      return `extension 0x${type.toString(16)} is unknown`;
  }
}
