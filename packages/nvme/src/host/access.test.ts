import { Engine } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { memoryDevice } from "../device/memory-device.ts";
import type { NvmeAccess } from "../nvme/access.ts";
import { Controller } from "../nvme/controller.ts";
import { NvmeTarget } from "../nvme/target.ts";
import { NvmeHost, type NvmeHostOptions, type NvmePath } from "./nvme-host.ts";

const bytes = 1024 * 1024;
const nqn = "nqn.2026-11.test:disk";
const block = Buffer.alloc(4096, 7);
const ends: (() => Promise<unknown>)[] = [];
let names = 0;

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A target with a device of its own, which says that it is the same disk. Its blocks show what the path carried. */
async function serve(access: NvmeAccess) {
  const device = memoryDevice({ bytes, uuid: "7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10" });
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const, access }];
  const target = await NvmeTarget.listen({ subsystems, port: 0 });
  ends.push(() => target.close());
  return { device, target, has: (offset: number) => device.compare(offset, block) };
}

async function connectTo(targets: readonly NvmeTarget[], options: Partial<NvmeHostOptions> = {}) {
  const paths = targets.map(({ address }) => address);
  const host = await NvmeHost.connect({ nqn, paths, reconnectMs: 10, ...options });
  ends.push(() => host.close());
  await expect.poll(() => host.stats().paths.every(({ isConnected }) => isConnected)).toBe(true);
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("no namespace");
  return { host, disk, accesses: () => host.stats().paths.map(({ access }) => access[1]) };
}

describe("a host of two paths", () => {
  it("uses the optimized one, and goes with it when the targets change places", async () => {
    const [first, second] = [await serve("non-optimized"), await serve("optimized")];
    const { disk, accesses } = await connectTo([first.target, second.target]);
    await disk.write(0, block);
    expect([await first.has(0), await second.has(0)]).toEqual([false, true]);
    await second.target.setAccess(nqn, "non-optimized");
    await first.target.setAccess(nqn, "optimized");
    await expect.poll(accesses).toEqual(["optimized", "non-optimized"]);
    await disk.write(4096, block);
    expect([await first.has(4096), await second.has(4096)]).toEqual([true, false]);
    // The host has asked for another event, and gets one for each change.
    await first.target.setAccess(nqn, "inaccessible");
    await expect.poll(accesses).toEqual(["inaccessible", "non-optimized"]);
    await disk.write(8192, block);
    expect([await first.has(8192), await second.has(8192)]).toEqual([false, true]);
  });

  it.each<NvmeAccess>(["inaccessible", "persistent-loss", "change"])(
    "repeats on the other what was refused by one that is %s by now, and learns it thereby",
    async (access) => {
      const [first, second] = [await serve("optimized"), await serve("non-optimized")];
      const { host, disk, accesses } = await connectTo([first.target, second.target]);
      vi.spyOn(Controller.prototype, "accessChanged").mockImplementation(() => {});
      await first.target.setAccess(nqn, access);
      await disk.write(0, block);
      expect(await disk.compareAndWrite(4096, Buffer.alloc(4096), block)).toBe(true);
      expect(await Promise.all([0, 4096].map(first.has))).toEqual([false, false]);
      expect(await Promise.all([0, 4096].map(second.has))).toEqual([true, true]);
      expect(host.stats().repeated).toBe(1);
      expect(accesses()).toEqual([access, "non-optimized"]);
    },
  );

  it("waits while none reaches the namespace, at most for its time", async () => {
    const [first, second] = [await serve("inaccessible"), await serve("inaccessible")];
    const { disk, accesses } = await connectTo([first.target, second.target], { lossTimeoutMs: 50 });
    await expect(disk.write(0, block)).rejects.toMatchObject({
      code: "io",
      message: `no path to ${nqn} for 50 ms: namespace 1 is inaccessible`,
    });
    const patient = await connectTo([first.target, second.target]);
    const writing = patient.disk.write(4096, block);
    await second.target.setAccess(nqn, "non-optimized");
    await writing;
    expect(await second.has(4096)).toBe(true);
    expect(await second.has(0)).toBe(false);
    await expect.poll(accesses).toEqual(["inaccessible", "non-optimized"]);
  });

  it("closes while it waits for one that reaches the namespace", async () => {
    const { target } = await serve("inaccessible");
    const { host, disk } = await connectTo([target]);
    const writing = disk.write(0, block);
    const closing = host.close();
    await expect(writing).rejects.toMatchObject({ code: "closed" });
    await closing;
    expect(host.stats().paths[0]?.access).toEqual({});
  });
});

/** An engine that serves a target, and a path to it. */
async function pathOverCalls(target: NvmeTarget): Promise<NvmePath> {
  const url = `mem://access-${process.pid}-${names++}`;
  const server = await Engine.open({ listen: url, serve: [target.capsules] });
  ends.push(() => server.close());
  const engine = await Engine.open();
  ends.push(() => engine.close());
  return { engine, url };
}

it.each([
  ["NVMe/TCP", async ({ address }: NvmeTarget) => address],
  ["calls", pathOverCalls],
])(
  "a host over %s is told, also after a longer time without news than a command may take",
  async (_, pathTo) => {
    const { target, has } = await serve("optimized");
    const execute = vi.spyOn(Controller.prototype, "execute");
    const times = { timeoutMs: 400, keepAliveMs: 800 };
    const host = await NvmeHost.connect({ nqn, paths: [await pathTo(target)], ...times });
    ends.push(() => host.close());
    const before = execute.mock.calls.length;
    await expect.poll(() => execute.mock.calls.length).toBeGreaterThan(before + 2);
    await target.setAccess(nqn, "inaccessible");
    await expect.poll(() => host.stats().paths[0]?.access).toEqual({ 1: "inaccessible" });
    expect(host.stats().paths[0]?.connects).toBe(1);
    const writing = host.namespaces[0]?.write(0, block);
    await target.setAccess(nqn, "optimized");
    await writing;
    expect(await has(0)).toBe(true);
  },
);
