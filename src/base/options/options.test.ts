import { describe, expect, expectTypeOf, it } from "vitest";
import {
  boolean,
  callback,
  checkedBy,
  checkOptions,
  type FieldsOf,
  group,
  instance,
  integer,
  list,
  milliseconds,
  number,
  oneOf,
  orFalse,
  required,
  resolveOptions,
  text,
} from "./options.ts";

interface OpenOptions {
  readonly lanes?: number;
  readonly share?: number;
  readonly timeoutMs?: number;
  readonly isQuiet?: boolean;
  readonly mode?: "serve" | "refer";
  readonly name?: string;
  readonly onDeath?: (code: number) => void;
  readonly signal?: AbortSignal;
  readonly limits?: { readonly maxBytes?: number; readonly maxCalls?: number };
  readonly retry?: { readonly attempts?: number } | false;
  readonly ports?: readonly number[];
}

const fields = {
  lanes: integer(1, 256, 4),
  share: number(0.01, 1),
  timeoutMs: milliseconds({ fallback: 5000 }),
  isQuiet: boolean(false),
  mode: oneOf(["serve", "refer"], "serve"),
  name: text(1, 8),
  onDeath: callback<(code: number) => void>(),
  signal: instance(AbortSignal),
  limits: group({ maxBytes: integer(1024, 4096, 2048), maxCalls: integer(1, 10) }),
  retry: orFalse(group({ attempts: integer(1, 10, 3) })),
  ports: list(integer(1, 65_535), 1, 3),
} satisfies FieldsOf<OpenOptions>;

const resolved = (options: object) => resolveOptions("open", options, fields);

describe("resolving options", () => {
  it("fills in defaults, those of nested options too", () => {
    const all = resolved({ lanes: undefined, limits: { maxCalls: 2 } });
    expect(all).toEqual({
      ...{ lanes: 4, share: undefined, timeoutMs: 5000, isQuiet: false, mode: "serve", name: undefined },
      ...{ onDeath: undefined, signal: undefined, limits: { maxBytes: 2048, maxCalls: 2 }, retry: undefined },
      ports: undefined,
    });
    expect(resolved({}).limits).toEqual({ maxBytes: 2048, maxCalls: undefined });
    expect(resolved({ retry: {} }).retry).toEqual({ attempts: 3 });
    expect(resolved({ retry: false }).retry).toBe(false);
    expect(resolved({ ports: [1, 2] }).ports).toEqual([1, 2]);
    expectTypeOf(all.lanes).toEqualTypeOf<number>();
    expectTypeOf(all.share).toEqualTypeOf<number | undefined>();
    expectTypeOf(all.mode).toEqualTypeOf<"serve" | "refer">();
    expectTypeOf(all.limits.maxBytes).toEqualTypeOf<number>();
  });

  it("takes none for all defaults", () => {
    expect(resolveOptions("open", undefined, fields).lanes).toBe(4);
  });

  it("asks for a required option", () => {
    const needy = { url: required(text(1, 100)) };
    expect(() => resolveOptions("open", {}, needy)).toThrow(new TypeError("open: url is missing"));
    const { url } = resolveOptions("open", { url: "mem://a" }, needy);
    expectTypeOf(url).toEqualTypeOf<string>();
    expect(url).toBe("mem://a");
  });

  it("hands a value to the check of its subject", () => {
    const even = checkedBy((where, name, value) => {
      if ((value as number) % 2 !== 0) throw new RangeError(`${where}: ${name} must be even`);
      return (value as number) / 2;
    });
    expect(resolveOptions("open", { pairs: 4 }, { pairs: even })).toEqual({ pairs: 2 });
    expect(() => resolveOptions("open", { pairs: 3 }, { pairs: even })).toThrow("open: pairs must be even");
  });
});

describe("what does not fit", () => {
  it.each<[object, new (message: string) => Error, string]>([
    [{ lanes: 0 }, RangeError, "open: lanes must be an integer from 1 to 256, it is 0"],
    [{ lanes: 1.5 }, TypeError, "open: lanes must be an integer from 1 to 256, it is 1.5"],
    [{ lanes: "5" }, TypeError, 'open: lanes must be an integer from 1 to 256, it is "5"'],
    [{ share: 2 }, RangeError, "open: share must be a number from 0.01 to 1, it is 2"],
    [{ share: Number.NaN }, TypeError, "open: share must be a number from 0.01 to 1, it is NaN"],
    [
      { timeoutMs: 0 },
      RangeError,
      "open: timeoutMs must be a number of milliseconds above 0, at most 2147483647, it is 0",
    ],
    [{ isQuiet: 1 }, TypeError, "open: isQuiet must be true or false, it is 1"],
    [{ mode: "other" }, TypeError, 'open: mode must be "serve" or "refer", it is "other"'],
    [{ name: "" }, TypeError, 'open: name must be a string of 1 to 8 characters, it is ""'],
    [{ onDeath: 1 }, TypeError, "open: onDeath must be a function, it is 1"],
    [{ signal: {} }, TypeError, "open: signal must be an instance of AbortSignal, it is [object Object]"],
    [{ limits: null }, TypeError, "open: limits must be an object, it is null"],
    [
      { limits: { maxBytes: 1 } },
      RangeError,
      "open: limits.maxBytes must be an integer from 1024 to 4096, it is 1",
    ],
    [{ ports: 1 }, TypeError, "open: ports must be an array of 1 to 3 items, it is 1"],
    [{ ports: [] }, RangeError, "open: ports must be an array of 1 to 3 items, it has 0"],
    [{ ports: [1, 0] }, RangeError, "open: ports[1] must be an integer from 1 to 65535, it is 0"],
    [{ retry: true }, TypeError, "open: retry must be an object, it is true"],
  ])("names the field, its range and the value of %j", (options, kind, message) => {
    for (const read of [resolved, (given: object) => checkOptions("open", given, fields)])
      expect(() => read(options)).toThrow(new kind(message));
  });

  it.each([
    ["lane", 'open: unknown option "lane"; did you mean "lanes"? known are lanes, share'],
    ["timeoutms", 'open: unknown option "timeoutms"; did you mean "timeoutMs"? known are lanes'],
    ["lnaes", 'open: unknown option "lnaes"; did you mean "lanes"? known are lanes'],
    ["wholly", 'open: unknown option "wholly"; known are lanes, share'],
    ["constructor", 'open: unknown option "constructor"; known are lanes'],
    ["__proto__", 'open: unknown option "__proto__"; known are lanes'],
  ])("suggests the option that %s may mean", (name, message) => {
    const options = JSON.parse(`{ "${name}": 1 }`);
    expect(() => resolved(options)).toThrow(message);
    expect(() => checkOptions("open", options, fields)).toThrow(message);
  });

  it("names the path of an unknown option inside options", () => {
    expect(() => resolved({ limits: { maxByte: 1 } })).toThrow(
      new TypeError(
        'open: unknown option "limits.maxByte"; did you mean "limits.maxBytes"? known are maxBytes, maxCalls',
      ),
    );
  });

  it.each([null, 5, "text", []])("refuses %j for the options themselves", (options) => {
    for (const read of [resolved, (given: object) => checkOptions("open", given, fields)])
      expect(() => read(options as never)).toThrow(/^open: options must be an object/);
  });

  it("shows at most 80 characters of a value, and survives one that cannot be shown", () => {
    expect(() => resolved({ lanes: "x".repeat(1000) })).toThrow(/it is "x{78}…$/);
    const hostile = { toString: () => expect.fail("shown") as never };
    expect(() => resolved({ lanes: Object.create(null) })).toThrow("it is an object");
    expect(() => resolved({ lanes: hostile })).toThrow("it is an object");
  });
});
