import { inspect } from "node:util";
import fc from "fast-check";
import { Packr } from "msgpackr";
import { describe, expect, it, vi } from "vitest";
import { decodeAt } from "./decode-value.ts";
import { encode } from "./encode-value.ts";
import { extension } from "./extension.ts";

/**
 * Another implementation of the format, with the same extensions. Each reads what the other writes.
 */
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
  fc.uint8Array().map((bytes) => Buffer.from(bytes)),
  fc.oneof(fc.int8Array(), fc.uint8ClampedArray(), fc.int16Array(), fc.uint32Array(), fc.float64Array()),
  fc.bigInt({ min: -(2n ** 80n), max: 2n ** 80n }),
  fc.nat(2000).map((bits) => 2n ** BigInt(bits)),
  fc.nat(2000).map((bits) => -(2n ** BigInt(bits)) - 1n),
  fc.string({ unit: "binary", maxLength: 80 }),
  fc.string({ unit: "grapheme", maxLength: 40 }),
  fc.integer(),
  fc.maxSafeInteger(),
  // The other codec writes -0 as 0.
  fc.double().filter((number) => !Object.is(number, -0)),
  fc.boolean(),
  fc.constantFrom(
    null,
    undefined,
    "",
    0,
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
/** Any value that both know, with such dates as are given. */
const valueWith = (date: fc.Arbitrary<Date>) =>
  fc.letrec<{ value: unknown }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 5, withCrossShrink: true },
      scalar,
      date,
      fc.array(tie("value"), { maxLength: 20 }),
      fc.dictionary(key, tie("value"), { maxKeys: 40, noNullPrototype: true }),
      fc.array(tie("value"), { maxLength: 20 }).map((items) => new Set(items)),
      fc.tuple(fc.string(), tie("value")).map(([message, cause]) => new RangeError(message, { cause })),
    ),
  })).value;
const anyValue = valueWith(fc.date());
/** The other codec reads 48 of the 64 bits of a timestamp's seconds. Dates of our time need fewer, so they agree. */
const valueOfOurTime = valueWith(fc.date({ min: new Date(0), max: new Date("2106-01-01") }));

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const decode = (bytes: Uint8Array): unknown => decodeAt(bytes, 0, bytes.byteLength);

describe("beside another implementation", () => {
  it("writes the same bytes", () => {
    fc.assert(
      fc.property(anyValue, (value) => {
        expect(hex(encode(value))).toBe(hex(packr.pack(value)));
      }),
      { numRuns: 700 },
    );
  });

  it("reads the same value, whatever maps came before", () => {
    fc.assert(
      fc.property(anyValue, (value) => {
        const bytes = Buffer.from(packr.pack(value));
        expect(plain(decode(bytes))).toEqual(plain(packr.unpack(bytes)));
      }),
      { numRuns: 700 },
    );
  });

  it("reads the same value of changed bytes, or refuses them", () => {
    let read = 0;
    fc.assert(
      fc.property(
        valueOfOurTime,
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 3 }),
        fc.nat(4),
        (value, changes, cut) => {
          const whole = Buffer.from(packr.pack(value));
          for (const [at, byte] of changes) whole[at % whole.length] = byte;
          const bytes = whole.subarray(0, Math.max(1, whole.length - cut));
          let ours: unknown;
          try {
            ours = decode(bytes);
          } catch {
            return;
          }
          read++;
          let theirs: unknown;
          try {
            theirs = packr.unpack(bytes);
          } catch (error) {
            // A changed byte may name our extension for maps, which the other codec does not have.
            expect((error as Error).message).toBe(`Unknown extension ${extension.map}`);
            return;
          }
          // The other codec has different rules for broken UTF-8.
          if (!hasReplacement(ours)) expect(plain(ours)).toEqual(plain(theirs));
        },
      ),
      { numRuns: 3000 },
    );
    expect(read).toBeGreaterThan(300);
  });
});

describe("maps that come often", () => {
  it("are built by code of their own, and unlearnt when they come no more", () => {
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
      const [first, second] = [encode(a), encode(b)] as [Uint8Array, Uint8Array];
      for (let i = 0; i < 100; i++) {
        expect(decode(first)).toEqual(a);
        if (i % 3 === 0) expect(decode(second)).toEqual(b);
      }
      for (let i = 0; i < 100; i++) expect(decode(second)).toEqual(b);
      expect(Object.keys(decode(second) as object)).toEqual(Object.keys(b));
      expect(Object.getPrototypeOf(decode(second))).toBe(Object.prototype);
    }
  });

  it("leave nothing of a malformed one behind", () => {
    const good = encode({ id: 1, inner: { id: 2, name: "n" } });
    for (let i = 0; i < 100; i++) {
      for (let cut = 1; cut < good.length; cut++) expect(() => decode(good.subarray(0, cut))).toThrow();
      expect(decode(good)).toEqual({ id: 1, inner: { id: 2, name: "n" } });
    }
  });

  it("get code of their own after any number of others, which must come ever more often for that", async () => {
    const OwnFunction = Function;
    const made = vi.fn(function compile(...code: string[]) {
      return Reflect.construct(OwnFunction, code);
    });
    vi.stubGlobal("Function", made);
    vi.resetModules();
    try {
      const { decodeAt: decodeFresh } = await import("./decode-value.ts");
      const come = (times: number, value: object) => {
        const bytes = encode(value);
        for (let i = 0; i < times; i++) decodeFresh(bytes, 0, bytes.length);
      };
      for (let i = 0; i < 700; i++) come(50, { [`k${i}`]: 1 });
      // Shapes after 512 have not come often enough.
      expect(made).toHaveBeenCalledTimes(512);
      come(80, { frequent: 1 });
      expect(made).toHaveBeenCalledTimes(513);
    } finally {
      vi.unstubAllGlobals();
      // The modules of this test must not remain for other files of the process.
      vi.resetModules();
    }
  });

  it("do without code made from strings where that is forbidden", async () => {
    const made = vi.fn(function forbidden() {
      throw new EvalError("Code generation from strings disallowed for this context");
    });
    vi.stubGlobal("Function", made);
    vi.resetModules();
    try {
      const { decodeAt: decodeWithout } = await import("./decode-value.ts");
      const bytes = encode({ id: 1, name: "n" });
      for (let i = 0; i < 100; i++)
        expect(decodeWithout(bytes, 0, bytes.length)).toEqual({ id: 1, name: "n" });
      expect(made).toHaveBeenCalledOnce();
    } finally {
      vi.unstubAllGlobals();
      // The modules of this test must not remain for other files of the process.
      vi.resetModules();
    }
  });
});

describe("text that is no text", () => {
  it("goes as U+FFFD where a surrogate stands alone, in short strings as in long ones", () => {
    for (const text of ["\ud800", `${"x".repeat(100)}\udc00`])
      expect(decode(encode(text))).toBe(text.replace(/[\ud800-\udfff]/, "\ufffd"));
  });

  it("comes as U+FFFD where bytes are no UTF-8", () => {
    expect(decode(Buffer.from("a2ff41", "hex"))).toBe("\ufffdA");
    expect(decode(Buffer.from(`b4${"ff41".repeat(10)}`, "hex"))).toBe("\ufffdA".repeat(10));
  });
});

/** With a Uint8Array instead of each Buffer: the other codec's form of binary. */
function plain(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return Uint8Array.from(value);
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Set) return new Set([...value].map(plain));
  if (value instanceof Error) return [value.name, value.message, plain(value.cause)];
  if (value?.constructor !== Object) return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, plain(part)]));
}

/** Whether a value, or a key in it, contains the replacement character for invalid UTF-8. */
function hasReplacement(value: unknown): boolean {
  const whole = { depth: Number.POSITIVE_INFINITY, maxArrayLength: null, maxStringLength: null };
  return inspect(value, whole).includes("\ufffd");
}
