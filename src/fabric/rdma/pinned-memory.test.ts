import { describe, expect, it } from "vitest";
import { fakeSystem } from "./fake-system.test-support.ts";
import { forkSafety, lockedMemory } from "./pinned-memory.ts";

function processWith(limit: string, capabilities: string, pinned = "100"): string {
  return fakeSystem({
    status: `Name:\tnode\nVmLck:\t       7 kB\nVmPin:\t     ${pinned} kB\nCapEff:\t${capabilities}\nCapBnd:\t0\n`,
    limits: `Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         ${limit}              unlimited            bytes\n`,
  });
}

describe("lockedMemory", () => {
  it("tells what is pinned and what is left of the limit", () => {
    expect(lockedMemory(processWith("8388608", "0000000000000000"))).toEqual({
      pinnedBytes: 102_400,
      limitBytes: 8_388_608,
      leftBytes: 8_388_608 - 102_400,
      mayExceedLimit: false,
    });
  });

  it("has nothing left, not less, when the limit was lowered", () => {
    expect(lockedMemory(processWith("65536", "0000000000000000")).leftBytes).toBe(0);
  });

  it("knows who the limit does not bind", () => {
    expect(lockedMemory(processWith("65536", "000001ffffffffff"))).toMatchObject({
      limitBytes: 65_536,
      leftBytes: null,
      mayExceedLimit: true,
    });
    expect(lockedMemory(processWith("unlimited", "0000000000000000"))).toMatchObject({
      limitBytes: null,
      leftBytes: null,
    });
  });

  it("reads this process's own", () => {
    const { pinnedBytes, limitBytes } = lockedMemory();
    expect(pinnedBytes).toBeGreaterThanOrEqual(0);
    if (limitBytes !== null) expect(limitBytes).toBeGreaterThanOrEqual(0);
  });
});

it("forks are safe by the kernel from 5.12 on, before that by libibverbs or not at all", () => {
  expect(forkSafety("6.1.0-18-amd64", {})).toBe("kernel");
  expect(forkSafety("5.12.0", {})).toBe("kernel");
  expect(forkSafety("5.4.0-150-generic", {})).toBe("none");
  expect(forkSafety("4.18.0-372.el8.x86_64", { RDMAV_FORK_SAFE: "1" })).toBe("libibverbs");
  expect(forkSafety("4.18.0", { IBV_FORK_SAFE: "1" })).toBe("libibverbs");
});
