import { describe, expect, it, vi } from "vitest";
import { coveredBytes } from "./exposable.ts";
import { Quarantine } from "./quarantine.ts";

describe("quarantine", () => {
  it("counts what it holds, and lets each go once", () => {
    const quarantine = new Quarantine();
    const [one, two] = [vi.fn(), vi.fn()];
    const letGo = quarantine.hold([new Uint8Array(10)], one);
    quarantine.hold([new Uint8Array(20)], two);
    expect(quarantine.bytes).toBe(30);
    letGo();
    letGo();
    expect([quarantine.bytes, one.mock.calls.length, two.mock.calls.length]).toEqual([20, 1, 0]);
  });

  it("counts a region that was lent 4096 times once, until the last of them has ended", () => {
    const quarantine = new Quarantine();
    const region = new Uint8Array(256 * 1024);
    const letGo = Array.from({ length: 4096 }, () => quarantine.hold([region], () => {}));
    expect(quarantine.bytes).toBe(region.byteLength);
    for (const each of letGo.slice(1)) each();
    expect(quarantine.bytes).toBe(region.byteLength);
    letGo[0]?.();
    expect(quarantine.bytes).toBe(0);
  });

  it("lets everything go when the ports are closed", () => {
    const quarantine = new Quarantine();
    const released = vi.fn();
    const letGo = [1, 2, 3].map((bytes) => quarantine.hold([new Uint8Array(bytes)], released));
    quarantine.releaseAll();
    quarantine.releaseAll();
    for (const again of letGo) again();
    expect([quarantine.bytes, released.mock.calls.length]).toEqual([0, 3]);
  });
});

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
