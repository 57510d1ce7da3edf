import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { ringBytes } from "../fabric/completion-ring.ts";
import { extentWords, mostExtents } from "../fabric/libfabric/addon.ts";
import { addonIfThere, providers } from "../fabric/libfabric/libfabric.ts";
import { addUser, removeUser } from "./memory-users.ts";
import { allocateSlab, OwnMemory, releaseSlab, slabBytesFor } from "./pool.ts";

const mebibyte = 1024 * 1024;

const addonPath = providers().addon.find(({ reason }) => reason === "")?.path;
const addon = addonIfThere();
if (addon === undefined) throw new Error("the addon is not built");

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

describe("memory of one user", () => {
  it("returns to the system when it is disposed", async () => {
    const mapped = addon.allocatedBytes();
    const own = new OwnMemory(3 * mebibyte + 5, "test");
    expect(own.bytes.byteLength).toBe(3 * mebibyte + 5);
    expect(addon.allocatedBytes()).toBeGreaterThan(mapped);
    own.dispose();
    own.dispose();
    expect(own.bytes.byteLength).toBe(0);
    // Node runs the finalizer of the buffer in a later turn.
    await expect.poll(() => addon.allocatedBytes()).toBe(mapped);
  });

  it("waits for transfers and regions that use it, before or after", () => {
    const own = new OwnMemory(mebibyte, "test");
    const { buffer } = own.bytes;
    addUser(buffer);
    removeUser(buffer);
    expect(own.bytes.byteLength).toBe(mebibyte);
    addUser(buffer);
    own.dispose();
    expect(own.bytes.byteLength).toBe(mebibyte);
    removeUser(buffer);
    expect(own.bytes.byteLength).toBe(0);
  });
});

describe("slab memory", () => {
  it.each([1, 4096, 64 * 1024, 64 * 1024 + 1, 2 * mebibyte, 5 * mebibyte + 3])(
    "has %i bytes of zeros that can be written and not transferred",
    (bytes) => {
      const memory = allocateSlab(bytes);
      const view = new Uint8Array(memory);
      expect([memory.byteLength, view.every((byte) => byte === 0)]).toEqual([bytes, true]);
      view.fill(1);
      try {
        structuredClone(memory, { transfer: [memory] });
      } catch {
        // Node 20 copies buffers that are marked as untransferable, later versions refuse.
      }
      expect(memory.byteLength).toBe(bytes);
    },
  );

  // AddressSanitizer ends a process that asks for so much.
  it.skipIf(process.env.CINNABAR_SANITIZERS === "1")(
    "refuses with resource_exhausted what the system has no memory for",
    () => {
      expect(() => allocateSlab(2 ** 52)).toThrow(
        "[resource_exhausted] pool.take: the system has no memory for",
      );
    },
  );

  it("is counted by V8, and given back when nobody has it any more", async () => {
    // Otherwise memory that earlier tests forgot returns in between. The second collection ends the sweep of the first.
    collect();
    collect();
    const external = process.memoryUsage().external;
    const mapped = addon.allocatedBytes();
    (() => {
      const memory = allocateSlab(32 * mebibyte);
      expect(addon.allocatedBytes() - mapped).toBe(memory.byteLength);
      expect(process.memoryUsage().external - external).toBeGreaterThanOrEqual(memory.byteLength);
    })();
    await expect
      .poll(() => {
        collect();
        return addon.allocatedBytes();
      })
      .toBeLessThanOrEqual(mapped);
  });

  it("is given back at once when it is released, and is no memory any more", async () => {
    const mapped = addon.allocatedBytes();
    const [large, small] = [allocateSlab(8 * mebibyte), allocateSlab(4096)];
    for (const memory of [large, small]) {
      releaseSlab(memory);
      releaseSlab(memory);
    }
    expect([large.byteLength, small.byteLength]).toEqual([0, 4096]);
    await expect.poll(() => addon.allocatedBytes()).toBeLessThanOrEqual(mapped);
    expect(addon.release(new ArrayBuffer(8))).toBe(false);
    expect(addon.release(5 as never)).toBe(false);
  });

  it.each([
    [0, false],
    [-1, false],
    [2 ** 33, true],
    [4096.5, false],
    ["4096", false],
    [4096, "yes"],
  ])("answers allocate(%j, %j) with an error, never a throw", (bytes, hugePages) => {
    expect(addon.allocate(bytes as number, hugePages as boolean)).toMatchObject({ failed: true, code: 22 });
  });

  it.each(["tcp", "shm"])("outlasts an open %s port of a worker that is terminated", async (scheme) => {
    const mapped = addon.allocatedBytes();
    const worker = new Worker(
      `
      const { parentPort, workerData } = require("node:worker_threads");
      const addon = require(workerData.addonPath);
      addon.load([workerData.libfabric]);
      const opened = addon.open({ scheme: workerData.scheme, host: "127.0.0.1", service: 0, name: "", provider: "", slotBytes: 4096,
        sendSlots: 4, receiveSlots: 4, maxConnections: 16, maxIdleConnectionMs: 1000, slab: new ArrayBuffer(8 * 4096), ring: new ArrayBuffer(${ringBytes}),
        extents: new ArrayBuffer(${mostExtents * extentWords * 8}), onWake() {} });
      const before = addon.allocatedBytes();
      globalThis.kept = [4096, ${4 * mebibyte}].map((bytes) => addon.allocate(bytes, bytes > 4096));
      const regions = kept.map((memory) => addon.register(opened.port, memory, 0, memory.byteLength, 3));
      addon.setRef(opened.port, true);
      parentPort.postMessage([addon.allocatedBytes() - before, ...regions]);
      setInterval(() => addon.progress(opened.port, 0), 1);
      `,
      {
        eval: true,
        workerData: { addonPath, scheme, libfabric: process.env.CINNABAR_LIBFABRIC ?? "libfabric.so.1" },
      },
    );
    const [more, ...regions] = await new Promise<number[]>((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
    });
    expect(regions.every((region) => region >= 0)).toBe(true);
    // The worker returned its memory at once. Garbage of other tests may return at any time.
    expect(more).toBeGreaterThanOrEqual(4 * mebibyte);
    await worker.terminate();
    expect(addon.allocatedBytes()).toBeLessThanOrEqual(mapped);
  });
});

const kibibyte = 1024;

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
