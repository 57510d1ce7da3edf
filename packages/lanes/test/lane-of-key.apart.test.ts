import { describe, expect, it } from "vitest";
import { laneOfKey } from "../src/lane-of-key.ts";

const keys = Array.from({ length: 10_000 }, (_, i) => `key-${i}`);

describe("a key hashed to a number", () => {
  it("gives every number about its share of the keys", () => {
    for (const count of [1, 2, 3, 8, 64]) {
      const shares = new Uint32Array(count);
      for (const key of keys) {
        const number = laneOfKey(key, count);
        shares[number] = (shares[number] ?? 0) + 1;
      }
      const even = keys.length / count;
      // Five standard deviations of a fair draw.
      const slack = 5 * Math.sqrt(even);
      for (const share of shares) expect(Math.abs(share - even)).toBeLessThanOrEqual(slack);
    }
  });

  it("moves only the keys of a number that is new", () => {
    for (const key of keys) {
      const [before, after] = [laneOfKey(key, 4), laneOfKey(key, 5)];
      if (after !== before) expect(after).toBe(4);
    }
  });

  it("is the same for ever: servers and clients of different versions must agree", () => {
    expect(["a", "b", "order-17", "", "käse"].map((key) => laneOfKey(key, 8))).toEqual([3, 3, 3, 2, 1]);
  });
});
