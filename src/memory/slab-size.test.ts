import { describe, expect, it } from "vitest";
import { slabBytesFor } from "./slab-memory.ts";

const kibibyte = 1024;
const mebibyte = 1024 * kibibyte;

describe("slab lengths", () => {
  it.each([
    [1, 4 * kibibyte],
    [4 * kibibyte, 4 * kibibyte],
    [4 * kibibyte + 1, 8 * kibibyte],
    [16 * kibibyte + 1, 20 * kibibyte],
    [20 * kibibyte + 1, 24 * kibibyte],
    [mebibyte, mebibyte],
    [mebibyte + 1, 1.25 * mebibyte],
    [1.75 * mebibyte + 1, 2 * mebibyte],
    [2 * mebibyte, 2 * mebibyte],
    [2 * mebibyte + 1, 4 * mebibyte],
    [9 * mebibyte, 10 * mebibyte],
    [1024 * mebibyte - 1, 1024 * mebibyte],
    [1024 * mebibyte + 1, 1280 * mebibyte],
  ])("for %i bytes is %i", (bytes, expected) => {
    expect(slabBytesFor(bytes)).toBe(expected);
  });

  it("waste less than a fifth, save for the page that is the least there is", () => {
    const lengths = new Set<number>();
    for (let bytes = 1; bytes < 2 ** 40; bytes = Math.ceil(bytes * 1.003)) {
      const slab = slabBytesFor(bytes);
      const page = slab > 2 * mebibyte ? 2 * mebibyte : 4 * kibibyte;
      expect(slab).toBeGreaterThanOrEqual(bytes);
      expect(slab % page).toBe(0);
      expect(slab - bytes).toBeLessThan(Math.max(page, slab / 5));
      expect(slabBytesFor(slab)).toBe(slab);
      lengths.add(slab);
    }
    expect(lengths.size).toBeLessThan(130);
  });
});
