import { describe, expect, it } from "vitest";
import { inputBytes } from "./window-queue.ts";

describe("the estimate of an input's bytes", () => {
  it.each([
    ["nothing", undefined, 16],
    ["a string", "x".repeat(1000), 1016],
    ["a binary", new Uint8Array(5000), 5016],
    ["a buffer", new ArrayBuffer(5000), 5016],
    ["a typed array", new Float64Array(100), 816],
    ["an object", { a: 1, b: "xxxx" }, 16 + 16 + 20],
    ["a map", new Map([[1, "xxxx"]]), 36],
    ["a set", new Set(["xxxx"]), 36],
    ["a tree", { a: [{ b: new Uint8Array(100) }] }, 16 + 16 + 16 + 116],
  ])("of %s", (_what, input, bytes) => {
    expect(inputBytes(input)).toBe(bytes);
  });

  it("takes the rest of a long one for like its beginning, and looks at little of it", () => {
    let looked = 0;
    const long = new Array(1_000_000).fill("x".repeat(100));
    const watched = new Proxy(long, {
      get: (target, name) => {
        looked++;
        return Reflect.get(target, name);
      },
    });
    expect(inputBytes(watched)).toBeGreaterThan(100_000_000);
    expect(inputBytes(watched)).toBeLessThan(120_000_000);
    expect(looked).toBeLessThan(3000);
  });

  it("ends for what contains itself, and for what is deep", () => {
    const own: unknown[] = [];
    own.push(own, own);
    expect(inputBytes(own)).toBeGreaterThan(0);
    let deep: unknown = 1;
    for (let i = 0; i < 100_000; i++) deep = [deep];
    expect(inputBytes(deep)).toBeGreaterThan(0);
  });

  it("does not throw for a getter that does", () => {
    const input = {
      get a(): number {
        throw new Error("no");
      },
    };
    expect(inputBytes(input)).toBe(16);
  });
});
