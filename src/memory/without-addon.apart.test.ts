import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";

/** The modules as they are loaded where the addon is missing. */
beforeEach(() => {
  vi.stubEnv("CINNABAR_ADDON", "/nowhere/cinnabar.node");
  vi.resetModules();
  onTestFinished(() => {
    vi.unstubAllEnvs();
    vi.resetModules();
  });
});

describe("without the addon", () => {
  it("checksums are the same", async () => {
    const { addonIfThere } = await import("../fabric/libfabric/libfabric.ts");
    const { crc32c } = await import("../transfer/checksum.ts");
    expect(addonIfThere()).toBeUndefined();
    const ones = new Uint8Array(32).fill(0xff);
    expect(crc32c(ones)).toBe(0x62a8ab43);
    const long = new Uint8Array(1000).fill(0xff);
    expect(crc32c(long.subarray(500), crc32c(long.subarray(0, 500)))).toBe(crc32c(long));
  });

  it("the pool gives memory of JavaScript's", async () => {
    const { Engine } = await import("../index.ts");
    const engine = await Engine.open({ listen: `mem://without-addon-${process.pid}` });
    onTestFinished(() => engine.close());
    for (const bytes of [100, 100_000, 3_000_000]) {
      using memory = engine.pool.take(bytes, { access: "read" });
      expect([memory.bytes.byteLength, memory.region.byteLength]).toEqual([bytes, bytes]);
      expect(memory.bytes.every((byte) => byte === 0)).toBe(true);
    }
    expect(engine.stats().pool).toMatchObject({ takenBytes: 0, slabs: 3 });
    engine.pool.trim();
    expect(engine.stats().pool).toMatchObject({ freeBytes: 0, slabs: 0, trims: 3 });
  });
});
