import { describe, expect, it } from "vitest";
import { addonIfThere } from "../fabric/libfabric/libfabric.ts";
import { crc32c, crc32cByTable } from "./checksum.ts";

function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => Math.imul(i + 1, 0x9e3779b1) >>> 24);
}

describe("crc32c", () => {
  it.each([
    ["zeros", new Uint8Array(32), 0x8a9136aa],
    ["ones", new Uint8Array(32).fill(0xff), 0x62a8ab43],
    ["upwards", Uint8Array.from({ length: 32 }, (_, i) => i), 0x46dd794e],
    ["downwards", Uint8Array.from({ length: 32 }, (_, i) => 31 - i), 0x113fdb5c],
    ["digits", Buffer.from("123456789"), 0xe3069283],
    ["nothing", new Uint8Array(0), 0],
  ])("gives RFC 3720's example of %s, in the addon and in the table", (_, bytes, expected) => {
    expect([crc32c(bytes), crc32cByTable(bytes, 0)]).toEqual([expected, expected]);
    if (bytes.length > 0) expect(addonIfThere()?.crc32c(bytes, 0)).toBe(expected);
  });

  it("is the same in the addon and in the table, at all small lengths and odd places", () => {
    const bytes = pattern(400);
    for (let at = 0; at < 16; at++) {
      for (let length = 0; length <= 300; length++) {
        const view = bytes.subarray(at, at + length);
        if (crc32c(view, 7) !== crc32cByTable(view, 7)) expect.fail(`differs at ${at}, length ${length}`);
      }
    }
    const large = pattern(1_000_003);
    expect(crc32c(large)).toBe(crc32cByTable(large, 0));
  });

  it("continues where it was left, and takes Buffers and shared memory", () => {
    const bytes = new Uint8Array(new SharedArrayBuffer(1000));
    bytes.set(pattern(1000));
    const whole = crc32c(bytes);
    expect(crc32c(Buffer.from(bytes))).toBe(whole);
    for (const cut of [0, 1, 63, 64, 500, 999, 1000])
      expect(crc32c(bytes.subarray(cut), crc32c(bytes.subarray(0, cut)))).toBe(whole);
  });

  it.each([["abc"], [[1, 2]], [new ArrayBuffer(8)], [new Uint16Array(80)], [undefined]])(
    "refuses %s",
    (bytes) => {
      expect(() => crc32c(bytes as never)).toThrow("bytes must be a Uint8Array");
    },
  );

  it.each([-1, 2 ** 32, 0.5, Number.NaN, "1"])("refuses the seed %s", (seed) => {
    expect(() => crc32c(new Uint8Array(100), seed as never)).toThrow("seed must be an integer");
  });
});
