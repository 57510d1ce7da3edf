import { Packr, pack, unpack } from "msgpackr";
import { describe, expect, it } from "vitest";
import {
  DecodeError,
  decodeAt,
  EncodeError,
  type EncodeTarget,
  encode,
  encodeAt,
  encodeSlack,
  type RegionCodec,
  registerRegionClass,
} from "./codec.ts";

const target = (bytes: number): EncodeTarget => Buffer.alloc(bytes, 0xee);
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** There and back, over plain bytes. */
function travel(value: unknown): unknown {
  const bytes = Uint8Array.from(encode(value));
  return decodeAt(bytes, 0, bytes.byteLength);
}

describe("encodeAt", () => {
  it("encodes in place, from the start it is given, and touches nothing before", () => {
    const room = target(4096);
    const { buffer, start, end } = encodeAt(room, 32, { a: 1 });
    expect(buffer).toBe(room);
    expect([start, hex(room.subarray(start, end))]).toEqual([32, "81a16101"]);
    expect(room.subarray(0, 32).every((byte) => byte === 0xee)).toBe(true);
  });

  it("uses a buffer of its own for a value that does not fit, and leaves the target's tail unsent", () => {
    const room = target(4096);
    const { buffer, start, end } = encodeAt(room, 16, "x".repeat(5000));
    expect(buffer).not.toBe(room);
    expect(decodeAt(buffer, start, end)).toBe("x".repeat(5000));
  });

  it("takes any binary up to the target's last bytes in place, and one that is longer elsewhere", () => {
    for (let length = 4000; length < 4100; length++) {
      const room = target(4096);
      const value = new Uint8Array(length).fill(length);
      const { buffer, start, end } = encodeAt(room, 16, value);
      if (buffer === room) expect(end).toBeLessThanOrEqual(4096);
      expect(hex(decodeAt(buffer, start, end) as Uint8Array)).toBe(hex(value));
    }
    expect(encodeAt(target(4096), 16, new Uint8Array(4000)).buffer.byteLength).toBe(4096);
  });

  it("encodes in place wherever encodeSlack is left", () => {
    const room = target(encodeSlack + 64);
    expect(encodeAt(room, 64, new Date(7)).buffer).toBe(room);
    expect(encodeAt(room, 64 + 16, new Date(7)).buffer).not.toBe(room);
    // What is plain needs no more than its own room.
    expect(encodeAt(room, 64 + 16, 7).buffer).toBe(room);
  });

  it("goes on after a failure as if nothing had been", () => {
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    for (let i = 0; i < 3; i++) {
      expect(() => encode(circular)).toThrow(EncodeError);
      expect(travel({ a: [1, "b"] })).toEqual({ a: [1, "b"] });
    }
  });

  it("refuses a value whose getter encodes another, and keeps both messages whole", () => {
    let inner: unknown;
    const meddler = {
      before: "b",
      get meddling() {
        try {
          encode("inner");
        } catch (error) {
          inner = error;
        }
        return "m";
      },
      after: "a",
    };
    expect(travel(meddler)).toEqual({ before: "b", meddling: "m", after: "a" });
    expect(inner).toBeInstanceOf(EncodeError);
    expect(travel("afterwards")).toBe("afterwards");
  });
});

describe("what travels", () => {
  it.each([
    ["nothing", undefined],
    ["null", null],
    ["booleans", [true, false]],
    [
      "integers",
      [
        0,
        127,
        128,
        255,
        256,
        65_535,
        65_536,
        2 ** 32,
        Number.MAX_SAFE_INTEGER,
        -1,
        -32,
        -33,
        -(2 ** 31),
        -(2 ** 40),
      ],
    ],
    ["fractions", [0.1, -1.5, Number.MAX_VALUE, Number.MIN_VALUE, Number.NaN, Number.POSITIVE_INFINITY]],
    [
      "big integers",
      [0n, 5n, -5n, 2n ** 63n, 2n ** 64n - 1n, 2n ** 64n, -(2n ** 63n) - 1n, 2n ** 1000n, -(2n ** 1000n)],
    ],
    ["text", ["", "a", "ä€😀", "x".repeat(31), "x".repeat(32), "ö".repeat(300), "€".repeat(70_000)]],
    ["times", [new Date(0), new Date(1_700_000_000_123), new Date(-1), new Date(2 ** 42)]],
    ["sets", [new Set(), new Set([1, "a", null])]],
    ["holes of objects", { a: undefined, b: { c: undefined } }],
    [
      "typed arrays",
      [
        Int8Array.of(-1),
        Uint16Array.of(1),
        Float32Array.of(0.5),
        Float64Array.of(0.1),
        BigInt64Array.of(-1n),
      ],
    ],
    ["clamped bytes and raw buffers", [Uint8ClampedArray.of(9), Uint8Array.of(1, 2).buffer]],
    [
      "long collections",
      [
        Array.from({ length: 70_000 }, (_, i) => i),
        Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`k${i}`, i])),
      ],
    ],
  ])("keeps %s", (_, value) => expect(travel(value)).toEqual(value));

  it("takes plain bytes and Buffers for the same, as msgpack bin", () => {
    for (const length of [0, 1, 255, 256, 65_535, 65_536]) {
      const bytes = new Uint8Array(length).fill(7);
      expect(hex(encode(bytes))).toBe(hex(encode(Buffer.from(bytes))));
      expect(travel(bytes)).toEqual(bytes);
      expect(travel(Buffer.from(bytes))).toEqual(bytes);
    }
    expect(hex(encode(Uint8Array.of(1)))).toBe("c40101");
    const part = new Uint8Array(100).fill(1).subarray(40, 43);
    expect(travel({ part })).toEqual({ part: Uint8Array.of(1, 1, 1) });
  });

  it("takes a Map for an object, when its keys can be property names", () => {
    expect(
      travel(
        new Map<unknown, unknown>([
          ["a", 1],
          [2, "b"],
          [true, []],
        ]),
      ),
    ).toEqual({ a: 1, 2: "b", true: [] });
    expect(() => encode(new Map([[{ id: 1 }, 1]]))).toThrow(
      "the value cannot be encoded: map key begins with byte",
    );
    expect(() => encode(new Map([[new Date(0), 1]]))).toThrow(EncodeError);
  });

  it("takes an instance of a class for its fields, and what toJSON returns for the rest", () => {
    class Point {
      readonly x = 1;
      readonly #secret = 2;
      get y() {
        return this.#secret;
      }
    }
    expect(travel(new Point())).toEqual({ x: 1 });
    class Spoken extends Point {
      toJSON() {
        return { a: 1 };
      }
    }
    expect(travel(new Spoken())).toEqual({ a: 1 });
  });

  it("carries errors as name, message and cause, never their stack", () => {
    const error = travel(new TypeError("bad", { cause: 5 })) as Error;
    expect(error).toBeInstanceOf(TypeError);
    expect([error.message, error.cause]).toEqual(["bad", 5]);
    const bytes = Buffer.from(encode(new Error("x"))).toString("latin1");
    expect(bytes).not.toContain("codec.test");
  });

  it("refuses __proto__ as an own key instead of renaming it", () => {
    expect(() => encode(JSON.parse('{"a":{"__proto__":{"polluted":1}}}'))).toThrow(
      "map key __proto__ is not allowed",
    );
    expect(travel({ __proto__: { inherited: 1 }, own: 2 })).toEqual({ own: 2 });
    expect(travel("__proto__")).toBe("__proto__");
  });

  it.each([
    ["a function", { f() {} }],
    ["a symbol", [Symbol("s")]],
    ["a big integer of more than 1024 bytes", 2n ** 8200n],
    ["nesting beyond a hundred", Array.from({ length: 101 }).reduce((inner) => [inner], 0)],
    ["nesting beyond the stack", Array.from({ length: 100_000 }).reduce((inner) => [inner], 0)],
  ])("refuses %s", (_, value) => expect(() => encode(value)).toThrow(EncodeError));

  it("refuses what throws while it is read, naming what it said", () => {
    const value = {
      get bad() {
        throw new Error("no");
      },
    };
    expect(() => encode(value)).toThrow("the value cannot be encoded: no");
  });
});

describe("decodeAt", () => {
  const message = Uint8Array.from([0xc0, ...encode({ bytes: Uint8Array.of(1, 2, 3) }), 0xc0]);
  const decode = (source: Uint8Array, views: boolean) =>
    (decodeAt(source, 1, source.byteLength - 1, undefined, views) as { bytes: Uint8Array }).bytes;

  it("copies binary out of a message that is used again", () => {
    const source = message.slice();
    const bytes = decode(source, false);
    source.fill(0);
    expect(bytes).toEqual(Uint8Array.of(1, 2, 3));
  });

  it("leaves binary where it is when the bytes belong to the value", () => {
    const source = message.slice();
    const bytes = decode(source, true);
    expect(bytes.buffer).toBe(source.buffer);
    expect(hex(bytes)).toBe("010203");
  });

  it("refuses an empty range, and more or less than one value", () => {
    expect(() => decodeAt(Uint8Array.of(1), 0, 0)).toThrow(DecodeError);
    expect(() => decodeAt(Uint8Array.of(1, 2), 0, 2)).toThrow("1 bytes follow the value");
    expect(() => decodeAt(Uint8Array.of(0x92, 1), 0, 2)).toThrow(DecodeError);
  });

  it.each([
    ["a set of a number", "d4730005"],
    ["an error of nothing", "d46500c0"],
    ["an expression that does not compile", "d4780092a128c0"],
    ["a typed array of half an element", "c7037409ffff".replace("09", "08")],
    ["a big integer without bytes", "d2c7004200".slice(2)],
  ])("refuses %s", (_, text) => {
    const bytes = Uint8Array.from(Buffer.from(text, "hex"));
    expect(() => decodeAt(bytes, 0, bytes.byteLength)).toThrow(DecodeError);
  });

  it("keeps every key an own property of a plain object", () => {
    const value = travel({ constructor: 1, toString: 2, prototype: 3, hasOwnProperty: 4 }) as object;
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(Object.keys(value)).toEqual(["constructor", "toString", "prototype", "hasOwnProperty"]);
  });
});

describe("regions", () => {
  class Lent {}
  class Remote {
    readonly descriptor: Uint8Array;
    constructor(descriptor: Uint8Array) {
      this.descriptor = descriptor;
    }
  }
  registerRegionClass(Lent);
  const descriptor = new Uint8Array(40).fill(5);
  const codec: RegionCodec = {
    encodeRegion: () => descriptor,
    decodeRegion: (bytes) => new Remote(Uint8Array.from(bytes)),
  };

  it("travel as extension 0x7d where a call carries them", () => {
    const bytes = encode({ into: new Lent() }, codec);
    expect(hex(bytes)).toBe(`81a4696e746fc7287d${"05".repeat(40)}`);
    const { into } = decodeAt(bytes, 0, bytes.byteLength, codec) as { into: Remote };
    expect(into).toBeInstanceOf(Remote);
    expect(into.descriptor).toEqual(descriptor);
  });

  it("are refused where no call carries them, both ways", () => {
    expect(() => encode(new Lent())).toThrow("a region cannot travel here");
    const bytes = encode(new Lent(), codec);
    expect(() => decodeAt(bytes, 0, bytes.byteLength)).toThrow("a region arrived where none is expected");
    expect(() => decodeAt(bytes, 0, bytes.byteLength)).toThrow(DecodeError);
  });

  it("leave the codec as it was when their owner refuses", () => {
    const refusing: RegionCodec = {
      ...codec,
      encodeRegion() {
        throw new EncodeError("too many");
      },
    };
    expect(() => encode([new Lent()], refusing)).toThrow("too many");
    expect(() => encode(new Lent())).toThrow("a region cannot travel here");
  });
});

describe("other users of msgpackr in the process", () => {
  it("keep their own forms of binary and of objects", () => {
    encode(Uint8Array.of(1));
    const value = { bytes: Uint8Array.of(1, 2), text: "t" };
    const typed = new Packr({ moreTypes: true });
    expect(typed.unpack(typed.pack(value))).toEqual(value);
    expect(typed.unpack(typed.pack(Buffer.of(1)))).toBeInstanceOf(Buffer);
    const records = new Packr({ useRecords: true });
    expect(records.unpack(records.pack(value))).toEqual({ bytes: Buffer.of(1, 2), text: "t" });
    expect(hex(pack(Uint8Array.of(1)))).toBe("c40101");
    expect(unpack(pack({ a: new Map([["b", 2]]) }))).toEqual({ a: { b: 2 } });
    expect(travel(value)).toEqual(value);
  });

  it("can be interleaved with ours", () => {
    const theirs = new Packr();
    const room = target(4096);
    const before = theirs.pack({ a: 1 });
    const { buffer, start, end } = encodeAt(room, 0, { b: 2 });
    theirs.pack({ c: "x".repeat(3000) });
    expect(decodeAt(buffer, start, end)).toEqual({ b: 2 });
    expect(theirs.unpack(before)).toEqual({ a: 1 });
  });
});
