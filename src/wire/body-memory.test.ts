import { describe, expect, it, vi } from "vitest";
import { giveBodyMemory, inBodyMemory, takeBodyMemory } from "./body-memory.ts";
import { encode, encodeAt } from "./encode-value.ts";

const mebi = 1024 * 1024;

describe("memory of long bodies", () => {
  it("is used again when it was given back, and never by two", () => {
    const first = takeBodyMemory(40_000);
    const second = takeBodyMemory(40_000);
    expect(second.buffer).not.toBe(first.buffer);
    giveBodyMemory(first.buffer);
    expect(takeBodyMemory(60_000).buffer).toBe(first.buffer);
    expect(takeBodyMemory(60_000).buffer).not.toBe(first.buffer);
  });

  it("is at least as long as asked for", () => {
    for (const bytes of [1, 2, 16_384, 16_385, mebi, mebi + 1, 4 * mebi, 4 * mebi + 1, 9 * mebi])
      expect(takeBodyMemory(bytes).byteLength).toBeGreaterThanOrEqual(bytes);
  });

  it("is not shorter where a number of 32 bits would end", () => {
    const allocate = vi.spyOn(Buffer, "allocUnsafeSlow").mockReturnValue(Buffer.alloc(0));
    takeBodyMemory(2 ** 32 + 5);
    expect(allocate).toHaveBeenCalledWith(2 ** 32 + 5);
  });

  it("keeps 8 MiB at most, and nothing that is not its own", () => {
    const taken = Array.from({ length: 5 }, () => takeBodyMemory(4 * mebi));
    for (const { buffer } of taken) giveBodyMemory(buffer);
    const again = new Set(Array.from({ length: 5 }, () => takeBodyMemory(4 * mebi).buffer));
    expect(taken.filter(({ buffer }) => again.has(buffer))).toHaveLength(2);
    const foreign = new ArrayBuffer(4 * mebi);
    giveBodyMemory(foreign);
    expect(takeBodyMemory(4 * mebi).buffer).not.toBe(foreign);
  });

  it("copies what lies elsewhere, and only that", () => {
    const elsewhere = Uint8Array.from([1, 2, 3]);
    const copy = inBodyMemory(elsewhere);
    expect([...copy]).toEqual([1, 2, 3]);
    expect(copy.buffer).not.toBe(elsewhere.buffer);
    expect(inBodyMemory(copy)).toBe(copy);
  });

  it("holds a value that outgrew its target, and each shorter one on the way was given back", () => {
    const target = Buffer.alloc(64);
    const value = { text: "x".repeat(300_000), list: Array.from({ length: 1000 }, (_, i) => i) };
    const { buffer, start, end } = encodeAt(target, 8, value);
    expect(buffer).not.toBe(target);
    expect(inBodyMemory(buffer)).toBe(buffer);
    expect(buffer.subarray(start, end)).toEqual(Buffer.from(encode(value)));
  });
});
