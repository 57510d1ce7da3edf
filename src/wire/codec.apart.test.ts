import { parse } from "node:querystring";
import { runInNewContext } from "node:vm";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { decodeAt } from "./decode-value.ts";
import { type EncodeTarget, encode, encodeAt } from "./encode-value.ts";
import { DecodeError, EncodeError, type RegionCodec, TooLongError, typedArrays } from "./extension.ts";
import { registerRegionClass } from "./region-descriptor.ts";

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

  it("encodes in place what fits, to the last byte but eight, and grows in the midst of a value", () => {
    const parts = [new Date(7), "text", { a: 1n }, Uint8Array.of(1, 2), new Set([1.5]), [null, true, 70_000]];
    const whole = Buffer.from(encode(parts));
    for (let bytes = 16; bytes < 16 + whole.length + 20; bytes++) {
      const room = target(bytes);
      const { buffer, start, end } = encodeAt(room, 16, parts);
      expect([start, hex(buffer.subarray(start, end))]).toEqual([16, hex(whole)]);
      if (bytes >= 16 + whole.length + 9) expect(buffer).toBe(room);
    }
  });

  it("names where a circular value holds itself, in one line, and a deep one as deep", () => {
    const tree: { rows: { up?: unknown }[] } = { rows: [{}] };
    (tree.rows[0] as { up?: unknown }).up = tree;
    const refused = "the value cannot be encoded: ";
    expect(() => encode(tree)).toThrow(`${refused}it is circular, .rows[0].up is the whole value again`);
    const map = new Map<string, unknown>();
    map.set("self", { map });
    expect(() => encode([map])).toThrow(`${refused}it is circular, [0][value 0].map is [0] again`);
    const error = new Error("own cause");
    error.cause = error;
    expect(() => encode({ error })).toThrow(`${refused}it is circular, .error.cause is .error again`);
    let deep: unknown = 0;
    for (let i = 0; i <= 100; i++) deep = [deep];
    expect(() => encode(deep)).toThrow(`${refused}nesting is deeper than 100 at [0]`);
  });

  it("ends where a value needs more than the limit, however long an array says it is", () => {
    const limited = (value: unknown, limit: number) => () =>
      encodeAt(target(64), 16, value, undefined, limit);
    const tooLong = (bytes: number) => `the body has at least ${bytes} bytes, maxBodyBytes is `;
    for (const length of [2 ** 32 - 1, 2 ** 29 + 1]) {
      const sparse = new Array(length);
      for (const value of [sparse, { rows: [sparse] }, new Map([["a", { sparse }]]), new Set([sparse])])
        expect(limited(value, 2 ** 29)).toThrow(new TooLongError(`${tooLong(length)}${2 ** 29}`));
    }
    // Many short ones, and one with parts that are not read to their end.
    let read = 0;
    const counted = Array.from({ length: 5000 }, () => ({
      get text() {
        read++;
        return "x".repeat(1000);
      },
    }));
    expect(limited(counted, 100_000)).toThrow(TooLongError);
    expect(read).toBeLessThan(200);
    expect(
      limited(
        Array.from({ length: 1000 }, () => new Array(1000)),
        100_000,
      ),
    ).toThrow(TooLongError);
    expect(limited(["x".repeat(101)], 100)).toThrow(`${tooLong(102)}100`);
    const { buffer, start, end } = encodeAt(target(64), 16, ["x".repeat(97)], undefined, 100);
    expect(decodeAt(buffer, start, end)).toEqual(["x".repeat(97)]);
    expect(travel(new Array(3))).toEqual([undefined, undefined, undefined]);
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
    ["the first and the last time", [new Date(-8.64e15), new Date(8.64e15)]],
    [
      "invalid times",
      { at: new Date(Number.NaN), list: [new Date(Number.NaN)], set: new Set([new Date("")]) },
    ],
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

  it("keeps the sign of zero: alone, in collections, in typed arrays and in maps that come often", () => {
    expect(hex(encode(-0))).toBe("cb8000000000000000");
    expect(hex(encode([0, 1]))).toBe("920001");
    const value = () => ({
      x: -0,
      y: 0,
      list: [-0, 0, 1, -1],
      map: new Map([["a", -0]]),
      typed: Float64Array.of(-0, 0),
      nested: { x: -0, y: 0 },
    });
    // More often than such maps need before code is generated for them.
    for (let i = 0; i < 100; i++) expect(travel(value())).toStrictEqual(value());
  });

  it("keeps a Map with keys of any kind", () => {
    const map = new Map<unknown, unknown>([
      ["a", 1],
      [2, "b"],
      [true, []],
      [undefined, undefined],
      ["__proto__", { id: 1 }],
      [{ id: 1 }, new Map([[2n ** 64n, new Set([1])]])],
    ]);
    expect(travel(map)).toEqual(map);
    expect(travel(new Map())).toEqual(new Map());
    expect(hex(encode(new Map([["a", 1]])))).toBe("d46d0092a16101");
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

  it("makes errors by name of nothing but errors, whatever the name", () => {
    for (const name of [
      ...["Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"],
      ...["AggregateError", "Odd", "valueOf", "toString", "constructor", "hasOwnProperty", "__proto__"],
    ]) {
      const parts = Buffer.from(encode([name, "bad", { code: 5 }]));
      const bytes = Buffer.concat([Buffer.from("d46500", "hex"), parts]);
      const error = decodeAt(bytes, 0, bytes.length) as Error;
      expect(Object.prototype.toString.call(error)).toBe("[object Error]");
      expect([error.name, error.message, error.cause]).toEqual([name, "bad", { code: 5 }]);
    }
    expect(travel(new RangeError("r"))).toBeInstanceOf(RangeError);
    expect(travel(new AggregateError([1], "a"))).toBeInstanceOf(AggregateError);
    expect((travel(new AggregateError([new TypeError("t")], "a")) as AggregateError).errors).toEqual([
      new TypeError("t"),
    ]);
    expect(travel(new Error("e", { cause: new Error("inner") }))).toHaveProperty("cause.message", "inner");
    expect(Object.hasOwn(travel(new Error("e")) as Error, "cause")).toBe(false);
  });

  it("makes errors without a stack, and leaves the limit of stacks as it is", () => {
    const { stackTraceLimit } = Error;
    expect((travel(new RangeError("r")) as Error).stack).toBe("RangeError: r");
    expect(Error.stackTraceLimit).toBe(stackTraceLimit);
    const bytes = encode([new Error("e")]);
    const limit = Object.getOwnPropertyDescriptor(Error, "stackTraceLimit") as PropertyDescriptor;
    Object.defineProperty(Error, "stackTraceLimit", { ...limit, writable: false });
    try {
      expect((decodeAt(bytes, 0, bytes.length) as Error[])[0]?.message).toBe("e");
    } finally {
      Object.defineProperty(Error, "stackTraceLimit", limit);
    }
  });

  it("sends an error whose name or message is no text as the text that it prints", () => {
    const error = Object.assign(new Error("x"), { name: undefined, message: 5 });
    expect(travel(error)).toMatchObject({ name: "undefined", message: "5" });
  });

  it("takes a class of the user's that extends a built-in for what its toJSON makes, else for the built-in", () => {
    class Tags extends Set<string> {}
    class Spoken extends Set<string> {
      toJSON() {
        return [...this];
      }
    }
    class Instant extends Date {}
    class Pairs extends Map<string, number> {}
    class Row extends Array<number> {}
    class Bytes extends Uint8Array {}
    class Same {
      readonly kept = 1;
      toJSON() {
        return this;
      }
    }
    expect(travel(new Tags(["a"]))).toEqual(new Set(["a"]));
    expect(travel(new Spoken(["a"]))).toEqual(["a"]);
    expect(travel(new Instant(5))).toEqual(new Date(5));
    expect(travel(new Pairs([["a", 1]]))).toEqual(new Map([["a", 1]]));
    expect(travel(Row.of(1, 2))).toEqual([1, 2]);
    expect(travel(Bytes.of(1, 2))).toEqual(Uint8Array.of(1, 2));
    expect(travel(new Same())).toEqual({ kept: 1 });
  });

  it("takes the dates of another realm for dates, invalid ones too", () => {
    const [valid, invalid] = runInNewContext("[new Date(5), new Date(NaN)]");
    expect(travel({ valid, invalid })).toEqual({ valid: new Date(5), invalid: new Date(Number.NaN) });
    // A date with its own toJSON is sent as the result of that.
    expect(travel(Object.assign(valid, { toJSON: () => "five" }))).toBe("five");
  });

  it.each([
    ["a Map", "new Map([['a', new Map([[1, 2]])]])", new Map([["a", new Map([[1, 2]])]])],
    ["a Set", "new Set([1, 'a'])", new Set([1, "a"])],
    ["a class that extends Map", "new (class Pairs extends Map {})([[1, 2]])", new Map([[1, 2]])],
    ["a RegExp", "/a/gi", /a/gi],
    [
      "an Error",
      "new TypeError('bad', { cause: new Map([[1, 2]]) })",
      new TypeError("bad", { cause: new Map([[1, 2]]) }),
    ],
    [
      "an AggregateError",
      "new AggregateError([new RangeError('r')], 'all')",
      new AggregateError([new RangeError("r")], "all"),
    ],
    ["an ArrayBuffer", "Uint8Array.of(1, 2).buffer", Uint8Array.of(1, 2).buffer],
    ["a DataView", "new DataView(Uint8Array.of(1, 2).buffer)", new DataView(Uint8Array.of(1, 2).buffer)],
    ["bytes", "Uint8Array.of(1, 2)", Uint8Array.of(1, 2)],
    ...typedArrays
      .filter((Class) => !Class.name.startsWith("Big"))
      .map((Class) => [Class.name, `${Class.name}.of(1, 2)`, (Class as typeof Int8Array).of(1, 2)] as const),
    ["BigInt64Array", "BigInt64Array.of(-1n)", BigInt64Array.of(-1n)],
    ["BigUint64Array", "BigUint64Array.of(1n)", BigUint64Array.of(1n)],
    ["a plain object with an array", "({ a: [1, { b: 2 }] })", { a: [1, { b: 2 }] }],
  ] as const)("takes %s of another realm for one of this realm", (_, source, own) => {
    const foreign = runInNewContext(source);
    expect(hex(encode({ foreign: [foreign] }))).toBe(hex(encode({ foreign: [own] })));
    expect(travel(foreign)).toEqual(travel(own));
  });

  it.each([
    ["a Map", "new Map([['a', { f() {} }]])", "it holds a function at .in[value 0].f"],
    ["a Set", "new Set([1, () => {}])", "it holds a function at .in[element 1]"],
    ["an Error", "new Error('e', { cause: { f() {} } })", "it holds a function at .in.cause.f"],
    ["a promise", "Promise.resolve(1)", "it holds a Promise at .in"],
    ["a WeakMap", "new WeakMap()", "it holds a WeakMap at .in"],
    ["shared memory", "new SharedArrayBuffer(8)", "it holds a SharedArrayBuffer at .in"],
    [
      "what only says that it is a Map",
      "({ __proto__: null, [Symbol.toStringTag]: 'Map' })",
      "it holds a Map at .in",
    ],
  ])("refuses what a receiver would not know in %s of another realm", (_, source, message) => {
    const value = { in: runInNewContext(source) };
    expect(() => encode(value)).toThrow(new EncodeError(`the value cannot be encoded: ${message}`));
  });

  it.each([true, false])(
    "keeps invalid dates in maps that come often; may make code: %s",
    async (mayMakeCode) => {
      onTestFinished(() => void vi.unstubAllGlobals());
      if (!mayMakeCode)
        vi.stubGlobal("Function", () => {
          throw new EvalError("Code generation from strings disallowed for this context");
        });
      vi.resetModules();
      const codec = { ...(await import("./encode-value.ts")), ...(await import("./decode-value.ts")) };
      const value = { created: new Date(Number.NaN), edited: new Date(7) };
      const bytes = codec.encode(value);
      // More often than such maps need before they get a builder.
      for (let i = 0; i < 100; i++) expect(codec.decodeAt(bytes, 0, bytes.byteLength)).toEqual(value);
    },
  );

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
    ["more numbers in a Set than a receiver takes", new Set(Array.from({ length: 8193 }, (_, i) => i))],
    ["more numbers in a Map than a receiver takes", new Map(Array.from({ length: 8193 }, (_, i) => [i, i]))],
    ["a regular expression that takes a receiver long", new RegExp("a".repeat(2049), "v")],
    ["a big integer of more than 1024 bytes", 2n ** 8200n],
    ["nesting beyond a hundred", Array.from({ length: 101 }).reduce((inner) => [inner], 0)],
    ["nesting beyond the stack", Array.from({ length: 100_000 }).reduce((inner) => [inner], 0)],
  ])("refuses %s", (_, value) => expect(() => encode(value)).toThrow(EncodeError));

  it.each([
    ["a function", { items: [1, { done: () => {} }] }, "it holds a function at .items[1].done"],
    ["a function alone", () => {}, "it holds a function"],
    ["a symbol", { "a b": [Symbol("s")] }, 'it holds a symbol at ["a b"][0]'],
    ["a promise", { user: Promise.resolve(1) }, "it holds a Promise at .user"],
    ["a WeakMap", [new WeakMap()], "it holds a WeakMap at [0]"],
    ["a boxed number", { n: Object(1) }, "it holds a Number at .n"],
    ["a boxed string", { s: Object("text") }, "it holds a String at .s"],
    ["a shared buffer", { memory: new SharedArrayBuffer(8) }, "it holds a SharedArrayBuffer at .memory"],
    ["a generator", { all: (function* () {})() }, "it holds a Generator at .all"],
    ["search parameters", { query: new URLSearchParams("a=1") }, "it holds a URLSearchParams at .query"],
    ["a function in a Map", new Map([["a", { f() {} }]]), "it holds a function at [value 0].f"],
    ["a function in a Set", { set: new Set([1, () => {}]) }, "it holds a function at .set[element 1]"],
    ["a function in a cause", new Error("e", { cause: { f() {} } }), "it holds a function at .cause.f"],
    ["a function behind toJSON", { a: { toJSON: () => ({ f() {} }) } }, "it holds a function at .a…"],
    ["an own __proto__", { a: JSON.parse('{"__proto__":1}') }, "map key __proto__ is not allowed at .a"],
  ])("refuses %s and says where it is", (_, value, message) => {
    expect(() => encode(value)).toThrow(new EncodeError(`the value cannot be encoded: ${message}`));
  });

  class Counter {
    #count = 1;
    get count() {
      return this.#count;
    }
  }
  class Walk {
    #at = 0;
    next() {
      return { done: true, value: this.#at };
    }
    [Symbol.iterator]() {
      return this;
    }
  }
  it.each([
    ["Math", Math, "a Math"],
    ["JSON", JSON, "a JSON"],
    ["Reflect", Reflect, "a Reflect"],
    ["Atomics", Atomics, "a Atomics"],
    ["an iterator of an array", [1].values(), "a Array Iterator"],
    ["an iterator of a map", new Map([[1, 2]]).entries(), "a Map Iterator"],
    ["an iterator of a set", new Set([1]).values(), "a Set Iterator"],
    ["an iterator of a text", "ab"[Symbol.iterator](), "a String Iterator"],
    ["matches", "ab".matchAll(/a/g), "a RegExp String Iterator"],
    ["a generator", (function* () {})(), "a Generator"],
    ["a generator with a field", Object.assign((function* () {})(), { a: 1 }), "a Generator"],
    ["an asynchronous generator", (async function* () {})(), "a AsyncGenerator"],
    ["an iterator of another realm", runInNewContext("[1].values()"), "a Array Iterator"],
    ["Math of another realm", runInNewContext("Math"), "a Math"],
    ["private fields", new Counter(), "a Counter without fields of its own"],
    ["an iterator of a class", new Walk(), "a Walk without fields of its own"],
    ["a nameless class", new (class {})(), "a nameless object without fields of its own"],
    [
      "a class of another realm",
      runInNewContext("new (class A { #a = 1 })()"),
      "a A without fields of its own",
    ],
    ["inherited fields", Object.create({ a: 1 }), "a nameless object without fields of its own"],
    [
      "inherited fields alone",
      Object.create({ __proto__: null, a: 1 }),
      "a nameless object without fields of its own",
    ],
  ])("refuses what would arrive as an empty object: %s", (_, value, what) => {
    const message = `the value cannot be encoded: it holds ${what}`;
    expect(() => encode(value)).toThrow(new EncodeError(message));
    expect(() => encode({ items: [value] })).toThrow(new EncodeError(`${message} at .items[0]`));
  });

  it("sends empty objects that are plain, those of another realm and without a prototype, too", () => {
    const empty = [{}, Object.create(null), runInNewContext("({})"), Object.create(Object.create(null))];
    expect(travel(empty)).toEqual([{}, {}, {}, {}]);
    expect(travel(parse(""))).toEqual({});
  });

  it("sends what an own toJSON of a plain object returns, as of an instance, and calls it once", () => {
    const money = (cents: number) => {
      const toJSON = vi.fn(function json(this: { cents: number }) {
        return { text: `${this.cents} cents` };
      });
      return { cents, toJSON };
    };
    const prices = [money(1), money(2)];
    expect(travel({ prices })).toEqual({ prices: [{ text: "1 cents" }, { text: "2 cents" }] });
    for (const { toJSON } of prices) expect(toJSON).toHaveBeenCalledOnce();
    expect(travel({ toJSON: () => undefined })).toBeUndefined();
    expect(travel(Object.assign(Object.create(null), { toJSON: () => [1] }))).toEqual([1]);
    expect(travel(runInNewContext("({ a: 1, toJSON: () => 5 })"))).toBe(5);
    // Data of this name may come as often as such objects need before code is generated for them.
    for (let i = 0; i < 100; i++) expect(travel({ a: i, toJSON: "no" })).toEqual({ a: i, toJSON: "no" });
    expect(travel({ a: 1, toJSON: () => "yes" })).toBe("yes");
    const same: object = { a: 1, toJSON: () => same };
    expect(() => encode({ same })).toThrow("the value cannot be encoded: it holds a function at .same…");
    const endless: object = { toJSON: () => ({ ...endless }) };
    expect(() => encode(endless)).toThrow("the value cannot be encoded: it is too deep or too long");
  });

  it("sends what has a kind of its own and fields, and a toJSON that is no function", () => {
    class Tagged {
      readonly a = 1;
      get [Symbol.toStringTag]() {
        return "Tagged";
      }
    }
    expect(travel(new Tagged())).toEqual({ a: 1 });
    expect(travel({ constructor: 1, toJSON: "no" })).toEqual({ constructor: 1, toJSON: "no" });
  });

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
    ["an error whose name is a number", "d465009305a178c0"],
    ["an error without a message", "d4650091a178"],
    ["an expression of numbers", "d47800920506"],
    ["a set of text", "d47300a161"],
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
    expect(() => encode(new Lent())).toThrow("a region cannot be sent here");
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
    expect(() => encode(new Lent())).toThrow("a region cannot be sent here");
  });
});
