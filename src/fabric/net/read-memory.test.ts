import { describe, expect, it, vi } from "vitest";
import { release } from "./read-memory.ts";

describe("a chunk that was read", () => {
  it("loses its memory at once", async () => {
    // On Node 20 the way to free memory is made at the first chunk, and works a turn later.
    await vi.waitFor(() => {
      const chunk = Buffer.allocUnsafeSlow(64 * 1024);
      release(chunk);
      expect(chunk.byteLength).toBe(0);
    });
  });

  it("keeps its memory where it is short, or others share it", () => {
    const short = Buffer.allocUnsafeSlow(1000);
    const whole = Buffer.allocUnsafeSlow(128 * 1024);
    const half = whole.subarray(0, 64 * 1024);
    for (const chunk of [short, half]) release(chunk);
    expect([short.byteLength, half.byteLength, whole.byteLength]).toEqual([1000, 65_536, 131_072]);
  });
});
