import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import * as codec from "./decode-value.ts";
import { ValueTooLargeError } from "./extension.ts";

const { decodeAt } = codec;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

function headOf(tag: number, count: number): Buffer {
  const head = Buffer.alloc(5, tag);
  head.writeUInt32BE(count, 1);
  return head;
}

const arrayOf = (count: number, part: (i: number) => Buffer): Buffer =>
  Buffer.concat([headOf(0xdd, count), ...Array.from({ length: count }, (_, i) => part(i))]);

const same = (count: number, text: string): Buffer => {
  const part = hex(text);
  return Buffer.concat([headOf(0xdd, count), Buffer.alloc(count * part.length, part)]);
};

/** A key of six characters that is unique for each `i`. */
const key = (i: number): string => `a6 61 ${Buffer.from(i.toString(36).padStart(5, "_")).toString("hex")}`;
/** A key of one character. */
const keyOf = (name: string): string => `a1 ${Buffer.from(name).toString("hex")}`;
const uint32 = (i: number): string => `ce ${i.toString(16).padStart(8, "0")}`;
const double = (i: number): Buffer => {
  const bytes = Buffer.alloc(9, 0xcb);
  bytes.writeDoubleBE(i + 0.5, 1);
  return bytes;
};

/** The same bytes repeatedly, as a peer would send them; different bytes where those cost more. */
const values: Record<string, Buffer> = {
  nils: same(200_000, "c0"),
  doubles: arrayOf(50_000, double),
  "doubles beside another value": arrayOf(50_000, (i) => (i === 0 ? hex("c0") : double(i))),
  "integers of 64 bits": same(50_000, "cf 0000000000000001"),
  "empty maps": same(100_000, "80"),
  "empty arrays": same(100_000, "90"),
  "arrays of one": same(50_000, "91 01"),
  "arrays of four": same(20_000, "94 01010101"),
  "arrays of 18": same(10_000, `dc 0012 ${"c0".repeat(18)}`),
  "maps of one key": same(50_000, "81 a161 01"),
  "maps of eight keys": same(10_000, `88 ${[..."abcdefgh"].map((name) => `${keyOf(name)} 01`).join("")}`),
  "maps of a new key": arrayOf(10_000, (i) => hex(`81 ${key(i)} 01`)),
  "maps of three new keys": arrayOf(5000, (i) =>
    hex(`83 ${[0, 1, 2].map((j) => `${key(3 * i + j)} 01`).join("")}`),
  ),
  "a dictionary": Buffer.concat([
    headOf(0xdf, 30_000),
    ...Array.from({ length: 30_000 }, (_, i) => hex(`${key(i)} 01`)),
  ]),
  "maps of one index": same(2000, "81 cd03e8 01"),
  "maps of two far indices": same(1000, "82 cd03e8 01 cd07cf 01"),
  "maps of indices beyond an array": same(5000, "82 00 01 cdffff 01"),
  "a map of sparse indices": Buffer.concat([
    headOf(0xdf, 30_000),
    ...Array.from({ length: 30_000 }, (_, i) => hex(`${uint32(9 * i)} 01`)),
  ]),
  "strings of one": same(100_000, "a1 61"),
  "strings of two": same(50_000, "a2 6162"),
  "strings of twelve": same(50_000, `ac ${"61".repeat(12)}`),
  "strings of fifteen": same(50_000, `af ${"61".repeat(15)}`),
  "strings of forty": same(20_000, `d928 ${"61".repeat(40)}`),
  "strings of two bytes a character": same(20_000, `d928 ${"61".repeat(37)} e282ac`),
  "empty binary": same(20_000, "c400"),
  "binary of 64": same(10_000, `c440 ${"01".repeat(64)}`),
  "binary of 65": same(10_000, `c441 ${"01".repeat(65)}`),
  "typed arrays": same(10_000, "d5 74 01 01"),
  buffers: same(10_000, "d4 74 10"),
  dates: same(20_000, "d6 ff 00000001"),
  "big integers": same(50_000, "d4 42 01"),
  "long big integers": same(500, `c8 0400 42 ${"7f".repeat(1024)}`),
  "empty sets": same(10_000, "d47300 90"),
  "sets of five": same(10_000, "d47300 95 0102030405"),
  "a set": Buffer.concat([hex("d47300"), arrayOf(30_000, (i) => hex(key(i)))]),
  "empty maps of any key": same(10_000, "d46d00 90"),
  "a map of any key": Buffer.concat([hex("d46d00"), arrayOf(30_000, (i) => hex(key(i)))]),
  errors: same(10_000, "d46500 93 a161 a0 01"),
  "regular expressions": arrayOf(5000, (i) => hex(`d47800 92 ${key(i)} a0`)),
};

/** The part of the heap growth that is V8's own, such as hidden classes and tables that are made once. */
const ownHeapBytes = 200_000;

/** Decodes until the cost is stable: shapes of maps are learned, and earlier maps may hold their places. */
function decodeOften(bytes: Buffer, { decodeAt } = codec): void {
  for (let i = 0; i < 3; i++) decodeAt(bytes, 0, bytes.length);
}

/** Collects until the heap is stable: V8 returns code of other tests of the process in several steps. */
function collectAll(): void {
  let before = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 10; i++) {
    collect();
    const used = process.memoryUsage().heapUsed;
    if (used > before - 10_000) return;
    before = used;
  }
}

/** Bytes of heap that a decoded value takes. */
function heapBytesOf(bytes: Buffer, { decodeAt } = codec): number {
  collectAll();
  const before = process.memoryUsage().heapUsed;
  const value = decodeAt(bytes, 0, bytes.length);
  collect();
  const took = process.memoryUsage().heapUsed - before;
  expect(value).toBeDefined();
  return took;
}

/** Compares a value's measured memory with its counted memory. */
function expectCounted(bytes: Buffer, by = codec): void {
  decodeOften(bytes, by);
  const took = heapBytesOf(bytes, by);
  const counted = by.decodedHeapBytes;
  expect(counted).toBeGreaterThan(0.9 * took - ownHeapBytes);
  // The limit is generous: the count must not refuse values of honest peers.
  expect(counted).toBeLessThan(4.5 * took + ownHeapBytes);
}

/** The same for maps of eight keys with first doubles that come when V8 may have forgotten all former maps. */
async function expectCountedAfterDoubles(names: string, by = codec): Promise<void> {
  const maps = (count: number, value: string) =>
    same(count, `88 ${[...names].map((name) => `${keyOf(name)} ${value}`).join("")}`);
  decodeOften(maps(100, "01"), by);
  // V8 drops hidden classes without objects after some collections, and by tasks of the event loop.
  for (let i = 0; i < 12; i++) {
    collect();
    await new Promise(setImmediate);
  }
  const doubles = maps(100, "cb 3ff8000000000000");
  const kept = by.decodeAt(doubles, 0, doubles.length);
  expectCounted(maps(10_000, "01"), by);
  expect(kept).toHaveLength(100);
}

describe("the memory of a decoded value", () => {
  it.each(Object.keys(values))("is counted for %s", (name) => {
    expectCounted(values[name] as Buffer);
  });

  it("is counted for integers in maps that have had doubles", async () => {
    await expectCountedAfterDoubles("qrstuvwx");
  });

  describe("where code from strings is forbidden", () => {
    beforeEach(() => {
      vi.stubGlobal("Function", function forbidden() {
        throw new EvalError("Code generation from strings disallowed for this context");
      });
      vi.resetModules();
      onTestFinished(() => {
        vi.unstubAllGlobals();
        vi.resetModules();
      });
    });

    it.each([1, 3, 8, 12])("is counted for maps of %i keys", async (count) => {
      const keys = Array.from({ length: count }, (_, i) => `${keyOf(String.fromCharCode(0x41 + i))} 01`);
      expectCounted(
        same(100_000, `8${count.toString(16)} ${keys.join("")}`),
        await import("./decode-value.ts"),
      );
    });

    it("is counted for integers in maps that have had doubles", async () => {
      await expectCountedAfterDoubles("QRSTUVWX", await import("./decode-value.ts"));
    });
  });

  it.each(Object.keys(values))("ends the decoding of %s at its limit", (name) => {
    const bytes = values[name] as Buffer;
    decodeOften(bytes);
    const whole = codec.decodedHeapBytes;
    expect(() => decodeAt(bytes, 0, bytes.length, undefined, false, whole)).not.toThrow();
    expect(() => decodeAt(bytes, 0, bytes.length, undefined, false, whole - 1)).toThrow(ValueTooLargeError);
    expect(() => decodeAt(bytes, 0, bytes.length, undefined, false, whole >> 3)).toThrow(
      `value takes more than ${whole >> 3} bytes of memory once decoded`,
    );
  });
});
