import fc from "fast-check";
import { Packr } from "msgpackr";
import { describe, expect, it, vi } from "vitest";
import { decodeAt, encode } from "./codec.ts";
import { msgpackFault } from "./msgpack-check.ts";
import { decodePlain, notPlain } from "./plain-decode.ts";
import { encodePlain } from "./plain-encode.ts";

/** As `codec.ts` has it. */
const packr = new Packr({
  useRecords: false,
  mapsAsObjects: true,
  variableMapSize: true,
  moreTypes: true,
  copyBuffers: true,
} as ConstructorParameters<typeof Packr>[0]);

const key = fc
  .oneof(fc.constantFrom("id", "ip", "name", "text", "toString", "10", "2"), fc.string())
  .filter((text) => text !== "__proto__" && text !== "constructor");
const scalar = fc.oneof(
  fc.string({ unit: "binary", maxLength: 80 }),
  fc.string({ unit: "grapheme", maxLength: 40 }),
  fc.integer(),
  fc.maxSafeInteger(),
  fc.double(),
  fc.boolean(),
  fc.constantFrom(
    null,
    undefined,
    "",
    0,
    -0,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    2 ** 32 - 1,
    2 ** 32,
    -32,
    -33,
    -128,
    -129,
    -32_768,
    -32_769,
    -(2 ** 31),
  ),
);
const { value: plainValue } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    scalar,
    fc.array(tie("value"), { maxLength: 20 }),
    fc.dictionary(key, tie("value"), { maxKeys: 20, noNullPrototype: true }),
  ),
}));

function bytesOf(value: unknown): Buffer | undefined {
  const target = Buffer.alloc(64 * 1024);
  const end = encodePlain(target, new DataView(target.buffer), 0, value);
  return end < 0 ? undefined : target.subarray(0, end);
}

function readBack(bytes: Buffer): unknown {
  return decodePlain(bytes, new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), 0, bytes.length);
}

/** What msgpackr makes of bytes that have passed the check; `notPlain` for others. */
function checkedValueOf(bytes: Buffer): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (msgpackFault(bytes, view, 0, bytes.length) !== "") return notPlain;
  try {
    return packr.unpack(bytes);
  } catch {
    return notPlain;
  }
}

describe("the path of plain values", () => {
  it("writes the bytes that msgpackr writes", () => {
    fc.assert(
      fc.property(plainValue, (value) => {
        expect(bytesOf(value)).toEqual(Buffer.from(packr.pack(value)));
      }),
      { numRuns: 700 },
    );
  });

  it("reads what msgpackr reads, whatever maps came before", () => {
    fc.assert(
      fc.property(plainValue, (value) => {
        const bytes = Buffer.from(packr.pack(value));
        const read = readBack(bytes);
        // What it leaves to msgpackr: `undefined`, and keys that are no short strings.
        if (read !== notPlain) expect(read).toEqual(packr.unpack(bytes));
      }),
      { numRuns: 700 },
    );
  });

  it("gives nothing for bytes that the check refuses, and the same value for others", () => {
    fc.assert(
      fc.property(
        plainValue,
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 3 }),
        fc.nat(4),
        (value, changes, cut) => {
          const bytes = Buffer.from(packr.pack(value));
          for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
          const changed = bytes.subarray(0, Math.max(1, bytes.length - cut));
          const read = readBack(changed);
          if (read === notPlain) return;
          const view = new DataView(changed.buffer, changed.byteOffset, changed.byteLength);
          expect(msgpackFault(changed, view, 0, changed.length)).toBe("");
          const checked = checkedValueOf(changed);
          // msgpackr reads broken UTF-8 by rules of its own.
          if (!hasReplacement(read)) expect(read).toEqual(checked);
        },
      ),
      { numRuns: 3000 },
    );
  });

  it("learns shapes, builds them by their own code when they come often, and unlearns what comes no more", () => {
    for (const [a, b] of [
      [
        { id: 1, name: "a", nested: { id: 2, name: "b" } },
        { id: 1, nome: "a", nested: [] },
      ],
      [
        { x: 1.5, y: [{ x: 2, y: [] }] },
        { x: 1, z: 2 },
      ],
    ] as [object, object][]) {
      const [first, second] = [encode(a), encode(b)].map((bytes) => Buffer.from(bytes)) as [Buffer, Buffer];
      for (let i = 0; i < 100; i++) {
        expect(readBack(first)).toEqual(a);
        if (i % 3 === 0) expect(readBack(second)).toEqual(b);
      }
      for (let i = 0; i < 100; i++) expect(readBack(second)).toEqual(b);
      expect(Object.keys(readBack(second) as object)).toEqual(Object.keys(b));
      expect(Object.getPrototypeOf(readBack(second))).toBe(Object.prototype);
    }
  });

  it("leaves to msgpackr what is not plain", () => {
    class Point {
      x = 1;
    }
    const deep = Array.from({ length: 80 }).reduce((inner) => [inner], 1);
    for (const value of [
      new Date(0),
      new Map(),
      new Uint8Array(3),
      new Point(),
      1n,
      deep,
      { at: [new Date(1)] },
    ])
      expect(bytesOf(value)).toBeUndefined();
    const own = JSON.parse('{ "__proto__": 1 }') as object;
    expect(bytesOf(own)).toBeUndefined();
    // To msgpackr no plain object either.
    expect(bytesOf({ constructor: 1 })).toBeUndefined();
    const bytes = Buffer.from(encode({ at: new Date(1) }));
    expect(decodeAt(bytes, 0, bytes.length)).toEqual({ at: new Date(1) });
  });

  it("sends half of a surrogate pair as U+FFFD, in short strings as in long ones", () => {
    for (const text of ["\ud800", `${"x".repeat(100)}\udc00`])
      expect(readBack(Buffer.from(encode(text)))).toBe(text.replace(/[\ud800-\udfff]/, "\ufffd"));
  });

  it("refuses what lies to be long, and takes no prototype from the wire", () => {
    for (const lie of [
      "df ff ff ff ff",
      "dc ff ff 01",
      "9f",
      "81 a9 5f 5f 70 72 6f 74 6f 5f 5f 01",
      "a5 61",
      "c1",
    ])
      expect(readBack(Buffer.from(lie.replaceAll(" ", ""), "hex"))).toBe(notPlain);
    const proto = Buffer.from("81a95f5f70726f746f5f5f01", "hex");
    expect(() => decodeAt(proto, 0, proto.length)).toThrow("__proto__");
  });

  it("does without code made from strings where that is forbidden", async () => {
    const made = vi.fn(function forbidden() {
      throw new EvalError("Code generation from strings disallowed for this context");
    });
    vi.stubGlobal("Function", made);
    vi.resetModules();
    try {
      const { decodePlain: decodeWithout } = await import("./plain-decode.ts");
      const bytes = Buffer.from(encode({ id: 1, name: "n" }));
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      for (let i = 0; i < 100; i++)
        expect(decodeWithout(bytes, view, 0, bytes.length)).toEqual({ id: 1, name: "n" });
      expect(made).toHaveBeenCalledOnce();
    } finally {
      vi.unstubAllGlobals();
    }
  });
});

/** Whether a value holds, or has keys with, what stands for bytes that are no UTF-8. */
function hasReplacement(value: unknown): boolean {
  return JSON.stringify(value)?.includes("\ufffd") === true;
}
