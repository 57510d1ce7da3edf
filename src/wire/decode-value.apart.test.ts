import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeAt } from "./decode-value.ts";
import { encode } from "./encode-value.ts";
import { DecodeError, EncodeError, maxDepth, type RegionCodec } from "./extension.ts";
import { registerHandleClass } from "./handle-descriptor.ts";
import { registerRegionClass } from "./region-descriptor.ts";

class Described {}
registerRegionClass(Described);
registerHandleClass(
  Described,
  () => new Uint8Array(0),
  () => new Described(),
);
const regions: RegionCodec = {
  encodeRegion: () => new Uint8Array(0),
  decodeRegion: () => new Described(),
};

/** Why bytes are refused, or "". */
function fault(bytes: Uint8Array, start = 0, end = bytes.byteLength): string {
  try {
    decodeAt(bytes, start, end, regions);
    return "";
  } catch (error) {
    expect(error).toBeInstanceOf(DecodeError);
    return (error as Error).message;
  }
}

const hex = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text.replaceAll(" ", ""), "hex"));
const cutOff = "value is cut off";

/** One of each format this protocol allows. */
const formats: Record<string, string> = {
  "positive fixint": "7f",
  "negative fixint": "e0",
  nil: "c0",
  false: "c2",
  true: "c3",
  "uint 8": "cc ff",
  "uint 16": "cd ffff",
  "uint 32": "ce ffffffff",
  "uint 64": "cf ffffffffffffffff",
  "int 8": "d0 80",
  "int 16": "d1 8000",
  "int 32": "d2 80000000",
  "int 64": "d3 8000000000000000",
  "float 32": "ca 3f800000",
  "float 64": "cb 3ff0000000000000",
  fixstr: "a3 616263",
  "str 8": "d9 03 616263",
  "str 16": "da 0003 616263",
  "str 32": "db 00000003 616263",
  "bin 8": "c4 03 616263",
  "bin 16": "c5 0003 616263",
  "bin 32": "c6 00000003 616263",
  fixarray: "92 01 c0",
  "array 16": "dc 0002 01 c0",
  "array 32": "dd 00000002 01 c0",
  fixmap: "82 a1 61 01 a1 62 c0",
  "map 16": "de 0002 a1 61 01 a1 62 c0",
  "map 32": "df 00000002 a1 61 01 a1 62 c0",
  undefined: "d4 00 00",
  "timestamp 32": "d6 ff 00000001",
  "timestamp 64": "d7 ff 0000000000000001",
  "timestamp 96": "c7 0c ff 000000000000000000000001",
  "invalid date": "d4 ff ff",
  "big integer": "c7 09 42 010000000000000000",
  "big integer of 8": "d7 42 0100000000000000",
  "big integer of 16": "d8 42 01000000000000000000000000000000",
  "typed array": "c7 03 74 01 0102",
  "typed array, ext 16": "c8 0003 74 01 0102",
  "typed array, ext 32": "c9 00000003 74 01 0102",
  "typed array, fixext 2": "d5 74 01 01",
  set: "d4 73 00 92 01 02",
  "map of any key": "d4 6d 00 94 01 02 c0 90",
  error: "d4 65 00 93 a5 4572726f72 a1 78 c0",
  "regular expression": "d4 78 00 92 a1 61 a1 67",
  "region of no segments": `d8 7d ${"00".repeat(16)}`,
  "region of one segment": `c7 28 7d ${"00".repeat(40)}`,
  "region of ten segments": `c8 0100 7d ${"00".repeat(256)}`,
};

describe("decodeAt", () => {
  it.each(Object.entries(formats))("takes %s, cut off at no byte, with nothing behind", (_, text) => {
    const bytes = hex(text);
    expect(fault(bytes)).toBe("");
    for (let cut = 0; cut < bytes.byteLength; cut++)
      expect(fault(bytes.slice(0, cut)), `cut at ${cut}`).not.toBe("");
    expect(fault(hex(`${text} 01`))).toBe("1 bytes follow the value");
    expect(fault(hex(`92 ${text} 01`))).toBe("");
  });

  it("never looks outside its range", () => {
    const bytes = hex("ffff d9 03 616263 ffff");
    expect(fault(bytes, 2, 7)).toBe("");
    // The bytes that would complete the value are there, but belong to another value.
    for (let end = 2; end < 7; end++) expect(fault(bytes, 2, end)).toBe(cutOff);
  });

  it("refuses the byte that begins nothing", () =>
    expect(fault(hex("c1"))).toBe("byte 0xc1 begins no value"));

  it.each([
    ["str 8", "d9 05 61626364"],
    ["str 16", "da ffff 61"],
    ["str 32", "db ffffffff 61"],
    ["bin 8", "c4 05 61"],
    ["bin 16", "c5 ffff 61"],
    ["bin 32", "c6 ffffffff 61"],
    ["ext 8", "c7 ff 74 01"],
    ["ext 16", "c8 ffff 74 01"],
    ["ext 32", "c9 ffffffff 74 01"],
  ])("refuses a %s that claims more than there is", (_, text) => expect(fault(hex(text))).toBe(cutOff));

  it.each([
    ["fixarray", "9f", 15],
    ["array 16", "dc ffff", 65_535],
    ["array 32", "dd ffffffff", 4_294_967_295],
    ["fixmap", "8f", 30],
    ["map 16", "de ffff", 131_070],
    ["map 32", "df ffffffff", 8_589_934_590],
  ])("refuses a %s that claims more values than bytes", (_, text, claimed) => {
    expect(fault(hex(`${text} c0c0`))).toBe(`collection of ${claimed} values has 2 bytes`);
  });

  it.each([
    ["arrays", "91"],
    ["maps", "81 a1 61"],
    ["sets", "d4 73 00 91"],
  ])("takes %s 100 deep and refuses the next", (name, open) => {
    const levels = name === "sets" ? maxDepth / 2 : maxDepth;
    expect(fault(hex(`${open.repeat(levels)} c0`))).toBe("");
    expect(fault(hex(`${open.repeat(levels + 1)} c0`))).toBe(`nesting is deeper than ${maxDepth}`);
  });

  it("refuses a depth bomb after a hundred of its bytes", () => {
    expect(fault(new Uint8Array(1 << 20).fill(0x91))).toBe(`nesting is deeper than ${maxDepth}`);
  });

  it("refuses keys that may all fall into one bucket of a hash table", () => {
    const table = (tag: string, count: number, key: (i: number) => string, value = "") => {
      const parts = Array.from({ length: count }, (_, i) => key(i) + value).join("");
      const length = (value === "" ? count : 2 * count).toString(16).padStart(8, "0");
      return hex(`${tag} dd${length} ${parts}`);
    };
    const double = (i: number) => `cb${(2n ** 62n + BigInt(i)).toString(16)}`;
    const int = (i: number) => `ce${(i * 65_537).toString(16).padStart(8, "0")}`;
    const long = (i: number) => `d842${i.toString(16).padStart(16, "1")}${"0".repeat(16)}`;
    const digits = (i: number) => `aa${Buffer.from(String(1e9 + i)).toString("hex")}`;
    const text = (i: number) => `aa${Buffer.from(`x${String(1e8 + i)}`).toString("hex")}`;
    for (const key of [double, int, digits]) {
      expect(fault(table("d47300", 8192, key))).toBe("");
      expect(fault(table("d46d00", 8192, key, "c0"))).toBe("");
      expect(fault(table("d47300", 8193, key))).toContain("may have about 8,192 keys");
      expect(fault(table("d46d00", 8193, key, "c0"))).toContain("may have about 8,192 keys");
    }
    expect(fault(table("d47300", 1900, long))).toBe("");
    expect(fault(table("d47300", 2000, long))).toContain("cost more than 67108864 steps");
    // V8 hashes text with a secret. Values are not hashed.
    expect(fault(table("d47300", 20_000, text))).toBe("");
    expect(fault(table("d46d00", 20_000, text, "01"))).toBe("");
    // Many small tables cost no more than one large table.
    const small = Buffer.from(table("d47300", 1024, int)).toString("hex");
    expect(fault(hex(`dc0040 ${small.repeat(64)}`))).toBe("");
    expect(fault(hex(`dc0041 ${small.repeat(65)}`))).toContain("cost more than");
  });

  it("takes no longer for keys of objects that V8 could hash by their value", () => {
    const count = 60_000;
    const keys: Record<string, (i: number) => string> = {
      integers: (i) => `ce${(i * 65_536).toString(16).padStart(8, "0")}`,
      digits: (i) => `aa${Buffer.from(String(4_000_000_000 - i * 65_536).padStart(10, "0")).toString("hex")}`,
      "long integers": (i) => `cf${(2n ** 40n + BigInt(i) * 65_536n).toString(16).padStart(16, "0")}`,
      doubles: (i) => `cb${(2n ** 62n + BigInt(i) * 2n ** 20n).toString(16)}`,
    };
    for (const [name, key] of Object.entries(keys)) {
      const entries = Array.from({ length: count }, (_, i) => `${key(i)}c0`).join("");
      const bytes = hex(`df${count.toString(16).padStart(8, "0")}${entries}`);
      const before = process.cpuUsage();
      expect(fault(bytes)).toBe("");
      // It takes 20 to 60 ms of processor time. With all keys in one bucket it would take four seconds.
      expect(process.cpuUsage(before).user / 1000, name).toBeLessThan(1500);
    }
  });

  it("refuses regular expressions that take V8 long to compile", () => {
    const regExp = (source: string, flags: string) =>
      hex(
        `d47800 92 da${source.length.toString(16).padStart(4, "0")}${Buffer.from(source).toString("hex")} ` +
          `a1${Buffer.from(flags).toString("hex")}`,
      );
    expect(fault(regExp("a".repeat(60_000), "g"))).toBe("");
    expect(fault(regExp("\\p{L}".repeat(3000), "u"))).toBe("");
    expect(fault(regExp("\\p{L}".repeat(4000), "u"))).toContain("cost more than");
    expect(fault(regExp("\\p{RGI_Emoji}".repeat(158), "v"))).toContain("cost more than");
  });

  it.each([
    ["array", "81 90 01"],
    ["map", "81 80 01"],
    ["binary", "81 c4 01 61 01"],
    ["extension", "81 d4 00 00 01"],
    ["date", "81 d6 ff 00000001 01"],
  ])("refuses %s as the key of a map", (_, text) =>
    expect(fault(hex(text))).toContain("map key begins with byte"),
  );

  it.each(["01", "ff", "c0", "c3", "cc 01", "cb 3ff0000000000000", "cf 0000000000000001", "a0", "d9 01 61"])(
    "takes the scalar %s as the key of a map",
    (key) => expect(fault(hex(`82 ${key} 90 a1 7a 80`))).toBe(""),
  );

  const proto = Buffer.from("__proto__").toString("hex");

  it.each([`a9 ${proto}`, `d9 09 ${proto}`, `da 0009 ${proto}`, `db 00000009 ${proto}`])(
    "refuses the key __proto__ written as %s, at any depth and place",
    (key) => {
      const message = "map key __proto__ is not allowed";
      expect(fault(hex(`81 ${key} 80`))).toBe(message);
      expect(fault(hex(`82 a1 61 90 ${key} 01`))).toBe(message);
      expect(fault(hex(`91 de 0001 ${key} 80`))).toBe(message);
      // As a value it is a string like any other.
      expect(fault(hex(`81 a1 61 ${key}`))).toBe("");
    },
  );

  it("knows every extension type it allows, in its form only", () => {
    for (let type = 0; type < 256; type++) {
      const name = type.toString(16).padStart(2, "0");
      const known = ["00", "42", "65", "6d", "73", "78", "74", "7a", "7d", "ff"].includes(name);
      const verdict = fault(hex(`d6 ${name} 00000000`));
      if (!known) expect(verdict).toBe(`extension 0x${type.toString(16)} is unknown`);
      else if (name === "42" || name === "74" || name === "ff") expect(verdict).toBe("");
      else expect(verdict).toMatch(/has 4 bytes|has the wrong form/);
    }
  });

  it.each([
    ["a set in ext 8", "c7 01 73 00 90", "extension 0x73 has the wrong form"],
    ["an error in ext 8", "c7 01 65 00 93 c0 c0 c0", "extension 0x65 has the wrong form"],
    ["a map in ext 8", "c7 01 6d 00 90", "extension 0x6d has the wrong form"],
    ["a map of three keys and values", "d4 6d 00 93 01 02 03", "map has 3 keys and values"],
    ["a timestamp of 2", "d5 ff 0000", "timestamp has 2 bytes"],
    ["a timestamp of 16", `d8 ff ${"00".repeat(16)}`, "timestamp has 16 bytes"],
    ["a typed array of an unknown type", "d5 74 12 00", "typed array is of an unknown type"],
    ["a typed array of no type", "c7 00 74 00", "typed array is of an unknown type"],
    ["a region of 32 bytes", `c7 20 7d ${"00".repeat(32)}`, "region descriptor has 32 bytes"],
    [
      "a big integer of 1025 bytes",
      `c8 0401 42 ${"00".repeat(1025)}`,
      "big integer has 1025 bytes, not between 1 and 1024",
    ],
  ])("refuses %s", (_, text, message) => expect(fault(hex(text))).toBe(message));
});

const key = fc.string().filter((name) => name !== "__proto__");

/** Text that UTF-8 can encode: without half surrogates, which strings of other languages cannot hold. */
const text = fc.string({ unit: "grapheme" });

const scalar = fc.oneof(
  fc.constantFrom(null, undefined, true, false),
  fc.integer(),
  fc.maxSafeInteger(),
  // Zero has no sign in msgpack's integers.
  fc.double().map((number) => (Object.is(number, -0) ? 0 : number)),
  fc.bigInt({ min: -(2n ** 200n), max: 2n ** 200n }),
  text,
  fc.date({ noInvalidDate: true, min: new Date("1900-01-01"), max: new Date("2300-01-01") }),
  fc.uint8Array(),
  fc.float64Array(),
  fc.int16Array(),
);

/** Any value that travels and comes back equal. */
const anyValue: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, depthSize: "small" },
    scalar,
    ...[tie("array"), tie("object"), tie("set"), tie("map")],
  ),
  array: fc.array(tie("value"), { maxLength: 20 }),
  object: fc.dictionary(key, tie("value"), { maxKeys: 20, noNullPrototype: true }),
  set: fc.array(tie("value"), { maxLength: 5 }).map((items) => new Set(items)),
  map: fc.array(fc.tuple(tie("value"), tie("value")), { maxLength: 5 }).map((entries) => new Map(entries)),
})).value;

describe("any value", () => {
  it("encodes to bytes that pass and decode to an equal value", () => {
    fc.assert(
      fc.property(anyValue, (value) => {
        const bytes = Uint8Array.from(encode(value));
        expect(fault(bytes)).toBe("");
        expect(decodeAt(bytes, 0, bytes.byteLength)).toEqual(value);
      }),
      { numRuns: 400 },
    );
  });

  it("is either refused before sending or taken by the peer, whatever JavaScript makes of it", () => {
    const odd = fc.anything({
      withBigInt: true,
      withDate: true,
      withMap: true,
      withSet: true,
      withTypedArray: true,
      withNullPrototype: true,
    });
    fc.assert(
      fc.property(odd, (value) => {
        let bytes: Uint8Array;
        try {
          bytes = encode(value);
        } catch (error) {
          expect(error).toBeInstanceOf(EncodeError);
          return;
        }
        decodeAt(bytes, 0, bytes.byteLength);
      }),
      { numRuns: 1000 },
    );
  });

  it("mutated, is refused as a DecodeError or decoded, and pollutes no prototype", () => {
    const change = fc.record({
      at: fc.nat(),
      byte: fc.integer({ min: 0, max: 255 }),
      kind: fc.constantFrom("set", "cut", "insert"),
    });
    fc.assert(
      fc.property(anyValue, fc.array(change, { minLength: 1, maxLength: 4 }), (value, changes) => {
        let bytes = [...encode(value)];
        for (const { at, byte, kind } of changes) {
          const index = at % (bytes.length + 1);
          if (kind === "set" && index < bytes.length) bytes[index] = byte;
          else if (kind === "cut") bytes = bytes.slice(0, index);
          else bytes.splice(index, 0, byte);
        }
        decodeOrRefuse(Uint8Array.from(bytes));
      }),
      { numRuns: 2000 },
    );
    expect(Object.keys(Object.prototype)).toEqual([]);
  });

  it("of random bytes is refused as a DecodeError or decoded", () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), decodeOrRefuse), { numRuns: 3000 });
  });
});

function decodeOrRefuse(bytes: Uint8Array): void {
  try {
    decodeAt(bytes, 0, bytes.byteLength);
  } catch (error) {
    expect(error).toBeInstanceOf(DecodeError);
  }
}
