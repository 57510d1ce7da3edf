import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type * as Decoder from "./decode-value.ts";
import type * as Encoder from "./encode-value.ts";
import { maxDepth } from "./extension.ts";

/**
 * The codec with code generated for shapes, beside the codec without. A shape must come often before it gets code, so
 * each test repeats it this often.
 */
const often = 50;

let generated: Codec;
let interpreted: Codec;
/** The sources of all functions that the first codec has generated. */
const sources: string[] = [];

beforeAll(async () => {
  generated = await freshCodec(function compile(...code: string[]) {
    sources.push(code.at(-1) as string);
    return Reflect.construct(OwnFunction, code);
  });
  // It tries to generate code once for each kind, and never again.
  interpreted = await freshCodec(function forbidden() {
    throw new EvalError("Code generation from strings disallowed for this context");
  });
  vi.stubGlobal("Function", function compile(...code: string[]) {
    sources.push(code.at(-1) as string);
    return Reflect.construct(OwnFunction, code);
  });
});

afterAll(() => {
  vi.unstubAllGlobals();
  // The modules of these tests must not remain for other files of the process.
  vi.resetModules();
});

type Codec = typeof Encoder & typeof Decoder;

const OwnFunction = Function;

/** A new codec, which has asked `compile` for code. */
async function freshCodec(compile: (...code: string[]) => unknown): Promise<Codec> {
  vi.stubGlobal("Function", vi.fn(compile));
  vi.resetModules();
  const codec = { ...(await import("./encode-value.ts")), ...(await import("./decode-value.ts")) };
  for (let i = 0; i < often; i++) {
    const bytes = codec.encode({ first: i });
    codec.decodeAt(bytes, 0, bytes.length);
  }
  vi.unstubAllGlobals();
  return codec;
}

/** The outcome: a value and its memory, or an error. */
function outcomeOf(codec: Codec, run: (codec: Codec) => unknown): unknown {
  try {
    return { value: run(codec), heapBytes: codec.decodedHeapBytes };
  } catch (error) {
    const { name } = (error as Error).constructor;
    return { error: name, message: (error as Error).message, heapBytes: codec.decodedHeapBytes };
  }
}

function expectSame(run: (codec: Codec) => unknown): void {
  expect(outcomeOf(generated, run)).toStrictEqual(outcomeOf(interpreted, run));
}

/** The bytes of a value that is written to a buffer of `bytes`, and whether that sufficed. */
function written(codec: Codec, value: unknown, bytes = 4096): unknown {
  const target = Buffer.alloc(bytes, 0xee);
  const { buffer, start, end } = codec.encodeAt(target, 8, value);
  return { inPlace: buffer === target, hex: buffer.toString("hex", start, end) };
}

/** Lets both codecs learn the shapes of plain objects with these keys, inner ones first. */
function learn(...shapes: readonly (readonly string[])[]): void {
  for (const keys of shapes) {
    const value = Object.fromEntries(keys.map((key) => [key, 1]));
    for (let i = 0; i < often; i++)
      for (const codec of [generated, interpreted]) {
        const bytes = codec.encode(value);
        codec.decodeAt(bytes, 0, bytes.length);
      }
  }
}

const name = fc.constantFrom("id", "ip", "name", "text", "note", "$", "_x", "items", "Items", "toString");
const keys = fc.uniqueArray(name, { minLength: 1, maxLength: 6 });
const value = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.integer(),
    fc.double(),
    fc.string({ unit: "binary", maxLength: 60 }),
    fc.constantFrom(null, undefined, true, 2n ** 70n, new Date(7), new Map([[1, { id: 1 }]])),
    fc.uint8Array({ maxLength: 40 }),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(name, tie("value"), { maxKeys: 4 }),
  ),
})).value;

describe("code that is generated for a shape", () => {
  it("exists for both directions here, and for neither where it is forbidden", () => {
    const before = sources.length;
    learn(["one", "two"]);
    expect(sources.length).toBe(before + 2);
  });

  it("writes what the codec writes without it, in place as far as that does", () => {
    fc.assert(
      fc.property(
        keys,
        fc.array(value, { minLength: 6, maxLength: 6 }),
        fc.nat(120),
        (names, parts, room) => {
          learn(names);
          const object = Object.fromEntries(names.map((key, i) => [key, parts[i]]));
          expectSame((codec) => written(codec, object));
          expectSame((codec) => written(codec, [object, { outer: object }], 16 + room));
        },
      ),
      { numRuns: 100 },
    );
  });

  it("writes numbers of nine bytes behind a name at the very end of a buffer", () => {
    const object = { items: -5e-324, id: -5e-324 };
    learn(Object.keys(object));
    for (let room = 16; room < 160; room++) expectSame((codec) => written(codec, [object, object], room));
  });

  it("reads what the codec reads without it, counts the same memory and refuses the same bytes", () => {
    const change = fc.record({ at: fc.nat(), byte: fc.nat(255), cut: fc.nat(), maxHeapBytes: fc.nat(2000) });
    fc.assert(
      fc.property(keys, fc.array(value, { minLength: 6, maxLength: 6 }), change, (names, parts, by) => {
        learn(names);
        const object = Object.fromEntries(names.map((key, i) => [key, parts[i]]));
        const bytes = Buffer.from(interpreted.encode([object, object]));
        const changed = Buffer.from(bytes);
        changed[by.at % bytes.length] = by.byte;
        // The bytes after the end belong to others, and may be exactly the missing ones.
        for (const [from, end] of [
          [bytes, bytes.length],
          [bytes, by.cut % bytes.length],
          [changed, bytes.length],
        ] as const) {
          expectSame((codec) => codec.decodeAt(from, 0, end));
          expectSame((codec) => codec.decodeAt(from, 0, end, undefined, false, by.maxHeapBytes));
        }
      }),
      { numRuns: 200 },
    );
  });

  it("gives way to another shape that begins alike, whichever comes", () => {
    const a = { id: 1, name: "a", text: { id: 2, name: "b", text: 1.5 } };
    const b = { id: 1, name: "a", note: { id: 2, text: "b", name: [a] } };
    for (let i = 0; i < 3 * often; i++)
      for (const object of i % 3 === 0 ? [a, b] : [a]) {
        expectSame((codec) => written(codec, object));
        const bytes = interpreted.encode(object);
        expectSame((codec) => {
          const decoded = codec.decodeAt(bytes, 0, bytes.length) as object;
          return [Object.keys(decoded), decoded];
        });
      }
  });

  it("counts depth and finds cycles", () => {
    learn(["inner"], ["inner", "other"]);
    for (const depth of [maxDepth - 1, maxDepth, maxDepth + 1]) {
      let deep: unknown = 1;
      for (let i = 0; i < depth; i++) deep = { inner: deep };
      expectSame((codec) => written(codec, deep));
      const bytes = Buffer.concat([Buffer.from("81a5696e6e6572".repeat(depth), "hex"), Buffer.of(1)]);
      expectSame((codec) => codec.decodeAt(bytes, 0, bytes.length));
    }
    const circle: Record<string, unknown> = { inner: 1 };
    circle.other = [{ inner: circle }];
    expectSame((codec) => written(codec, circle));
    expect(outcomeOf(generated, (codec) => codec.encode(circle))).toMatchObject({
      message: "the value cannot be encoded: it is circular, .other[0].inner is the whole value again",
    });
  });

  it("names the place of what cannot be encoded", () => {
    learn(["first", "second"]);
    const object = { first: 1, second: { first: [1, () => 1], second: 2 } };
    expectSame((codec) => written(codec, object));
    expect(outcomeOf(generated, (codec) => codec.encode(object))).toMatchObject({
      message: "the value cannot be encoded: it holds a function at .second.first[1]",
    });
  });
});

describe("getters of an object whose shape has code", () => {
  /** An object with the keys `a`, `b` and `c`; `b` is a getter. */
  const withGetter = (get: (object: Record<string, unknown>) => unknown) => {
    const object: Record<string, unknown> = {
      a: 1,
      get b() {
        return get(this);
      },
      c: "c",
    };
    return object;
  };

  beforeAll(() => learn(["a", "b", "c"]));

  it.each<[string, (object: Record<string, unknown>) => unknown]>([
    ["return a value", () => ({ a: 1, b: 2, c: 3 })],
    [
      "throw",
      () => {
        throw new TypeError("not today");
      },
    ],
    ["remove what comes after", (object) => delete object.c],
    [
      "add a property",
      (object) => {
        object.d = 1;
      },
    ],
    [
      "change what comes after",
      (object) => {
        object.c = "x".repeat(5000);
      },
    ],
  ])("%s", (_, get) => {
    expectSame((codec) => written(codec, withGetter(get)));
    expectSame((codec) => written(codec, { a: 1, b: withGetter(get), c: 3 }, 32));
    expectSame((codec) => written(codec, { a: 1, b: 2, c: 3 }));
  });

  it("encode another value, which is refused, and leave the one that is being encoded as it is", () => {
    expectSame((codec) => {
      const inner = outcomeOf(codec, () => codec.encode({ a: 1, b: 2, c: 3 }));
      const refused: unknown[] = [];
      const object = withGetter(() => {
        refused.push(outcomeOf(codec, () => codec.encode({ a: 3, b: 2, c: 1 })));
        return "b";
      });
      return [written(codec, object), refused, inner];
    });
  });

  it("are not run for keys that are inherited or hidden", () => {
    const parent = { c: 1 };
    const child = Object.assign(Object.create(parent), { a: 1, b: 2 });
    expectSame((codec) => written(codec, child));
    const hidden = Object.defineProperty({ a: 1, b: 2 }, "c", { value: 3, enumerable: false });
    expectSame((codec) => written(codec, hidden));
  });
});

describe("keys that peers choose", () => {
  const hostile = [
    "__proto__",
    "",
    "0",
    "01",
    "4294967295",
    "a-b",
    "a b",
    'a"b',
    "a'b",
    "a`b",
    "a\\",
    "a\\u0022",
    "\u2028",
    "\u2029",
    "\n",
    "é",
    "\ud800",
    '"]: 0 }; globalThis.injected = 1; ({ ["',
    '"], at); globalThis.injected = 1; write(object["',
    "`$" + "{globalThis.injected = 1}`",
    "*/ globalThis.injected = 1; /*",
    "k".repeat(32),
    "k".repeat(5000),
  ];
  /** Names with a meaning in code, and those of the generated code itself. */
  const words = [
    ..."return class var await yield let eval arguments this null true new delete in of get set async".split(
      " ",
    ),
    ..."shape keys readAt position setPosition readRest build decode from at end place inner v0 v1".split(
      " ",
    ),
    ..."roomFor writeString writeNumber write trail object depth into value".split(" "),
    ..."hasOwnProperty toString valueOf prototype k".split(" "),
    "k".repeat(31),
  ];

  it.each([...hostile, ...words])("never become code, and arrive as they are: %j", (key) => {
    const before = sources.length;
    for (const object of [
      Object.fromEntries([[key, 1]]),
      Object.fromEntries([
        ["id", 1],
        [key, 2.5],
        ["name", "n"],
      ]),
      Object.fromEntries([
        [key, { [key]: "x" }],
        ["text", null],
      ]),
    ]) {
      for (let i = 0; i < often; i++) {
        expectSame((codec) => written(codec, object));
        const { length } = Object.keys(object);
        const parts = Object.entries(object).flatMap(([name, part]) => [
          interpreted.encode(name),
          interpreted.encode(part === 1 ? i : JSON.stringify(part)),
        ]);
        const bytes = Buffer.concat([Buffer.of(0x80 | length), ...parts]);
        expectSame((codec) => codec.decodeAt(bytes, 0, bytes.length));
      }
    }
    expect("injected" in globalThis).toBe(false);
    expect(Object.prototype).not.toHaveProperty(["injected"]);
    if (hostile.includes(key)) expect(sources.length).toBe(before);
    else expect(sources.length).toBeGreaterThan(before);
  });

  it("make code of nothing but names, at most 31 characters long", () => {
    for (const source of sources) expect(source).toMatch(/^[\w$\s?"'.,:;()[\]{}|&!<>=+-]*$/);
    for (const source of sources)
      for (const [, text] of source.matchAll(/"([^"]*)"/g)) expect(text).toMatch(/^[A-Za-z_$ ][\w$ ]{0,30}$/);
  });

  it("are so many that code is generated ever more rarely, and the codec does without", () => {
    const before = sources.length;
    for (let i = 0; i < 1500; i++) {
      const object = { [`k${i}`]: i, [`l${i % 7}`]: 1 };
      for (let times = 0; times < often; times++) generated.encode(object);
      expectSame((codec) => written(codec, object));
    }
    expect(sources.length - before).toBeLessThanOrEqual(512);
    // A shape that is frequent enough still gets code.
    const made = sources.length;
    for (let i = 0; i < 1000; i++) generated.encode({ frequent: 1, enough: i });
    expect(sources.length).toBe(made + 1);
  });
});
