import { describe, expect, it } from "vitest";
import { coveredBytes } from "./covered-bytes.ts";

describe("covered bytes", () => {
  const memory = new Uint8Array(100);
  const other = new Uint8Array(100);

  it("counts what several views show once", () => {
    expect(coveredBytes([memory, memory, memory.subarray(10, 20)])).toBe(100);
    expect(coveredBytes([memory.subarray(40, 60), memory.subarray(0, 50), memory.subarray(59, 61)])).toBe(61);
  });

  it("counts gaps for nothing, and each buffer for itself", () => {
    expect(coveredBytes([memory.subarray(0, 10), memory.subarray(90)])).toBe(20);
    expect(coveredBytes([memory, other.subarray(50), other.subarray(50, 50)])).toBe(150);
    expect(coveredBytes([])).toBe(0);
  });
});
