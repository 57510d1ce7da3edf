import { mkdtemp, rm, truncate } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import type { BlockDevice } from "../device/block-device.ts";
import { openFileDevice } from "../device/file-device.ts";
import { losesPower } from "../device/loses-power.ts";
import { memoryDevice, nullDevice } from "../device/memory-device.ts";
import { NvmeHost } from "../host/nvme-host.ts";
import {
  blocksOf,
  type CommandFields,
  type ConnectFields,
  commandEntry,
  HostQueue,
  icRequest,
} from "../tcp/host.test-support.ts";
import { type Digests, pduType } from "../tcp/pdu.ts";
import { admin, discoveryNqn, fabricsOpcode, io, parseCommand, sgl } from "./command.ts";
import { Controller } from "./controller.ts";
import { bareQueue } from "./queue.test-support.ts";
import { NvmeTarget, type NvmeTargetOptions } from "./target.ts";

const mib = 1024 * 1024;
const bytes = 64 * mib;
const nqn = "nqn.2026-11.test:disk";
const both: Digests = { header: true, data: true };
const none: Digests = { header: false, data: false };
const targets: NvmeTarget[] = [];

afterEach(async () => {
  for (const target of targets.splice(0)) await target.close();
});

async function serve(
  device: BlockDevice = memoryDevice({ bytes }),
  options: Partial<NvmeTargetOptions> = {},
) {
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
  const target = await NvmeTarget.listen({ subsystems, port: 0, ...options });
  targets.push(target);
  return { target, device, port: target.address.port };
}

/** An admin queue with an enabled controller, and an I/O queue. */
async function associate(port: number, digests = both, fields: Partial<ConnectFields> = {}) {
  const control = await HostQueue.open(port, digests);
  await control.greet();
  const { status, result } = await control.connect(fields);
  expect(status).toBe(0);
  const controllerId = Number(result);
  expect((await control.setProperty(0x14, 0x460001)).status).toBe(0);
  expect((await control.getProperty(0x1c)).result).toBe(1n);
  const queue = await HostQueue.open(port, digests);
  await queue.greet();
  expect((await queue.connect({ ...fields, queueId: 1, entries: 64, controllerId })).status).toBe(0);
  return { control, queue, controllerId };
}

function stamped(length: number, seed: number): Buffer {
  const data = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) data.writeUInt32LE((at * 2_654_435_761 + seed) >>> 0, at);
  return data;
}

describe("a rate for each host", () => {
  it("lets reads and writes of all its queues wait, and no other host and no command of administration", async () => {
    const { target, port } = await serve(nullDevice({ bytes }), { maxBytesPerSecond: 4096 });
    const one = await associate(port, both);
    const again = await associate(port, both);
    const other = await associate(port, both, { host: "nqn.2026-11.test:other" });
    // The host is in debt for more than four minutes then.
    expect((await one.queue.read(0, mib)).status).toBe(0);
    expect(target.stats()).toMatchObject({ waiting: 0, waitingBytes: 0 });
    const waiting = Promise.allSettled([one.queue.read(0, 8192), again.queue.write(0, Buffer.alloc(4096))]);
    await expect.poll(() => target.stats()).toMatchObject({ waiting: 2, waitingBytes: 12_288 });
    expect((await other.queue.read(0, mib)).status).toBe(0);
    expect((await one.control.getProperty(0x1c)).result).toBe(1n);
    expect(target.stats().namespaces[0]).toMatchObject({ reads: 2, writes: 0 });
    // What the end of a host or of the target leaves behind does not wait for its turn.
    again.control.socket.destroy();
    await expect.poll(() => target.stats()).toMatchObject({ waiting: 1, waitingBytes: 8192, controllers: 2 });
    await target.close();
    expect(target.stats()).toMatchObject({ waiting: 0, waitingBytes: 0, controllers: 0 });
    expect((await waiting).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  });
});

describe.each([both, none, { header: true, data: false }, { header: false, data: true }])(
  "a target, digests %j",
  (digests) => {
    it("reads and writes within capsules and by R2T, compares, zeroes, trims and flushes", async () => {
      const { device, port } = await serve();
      const { queue } = await associate(port, digests);
      for (const [block, length] of [
        [1, 4096],
        [10, 16_384],
        [100, 20_480],
        [1000, mib],
      ] as const) {
        const data = stamped(length, block);
        expect((await queue.write(block, data)).status).toBe(0);
        const read = await queue.read(block, length);
        expect(read.status).toBe(0);
        expect(read.data.equals(data)).toBe(true);
        expect(await device.compare(4096 * block, data)).toBe(true);
      }
      const compare = {
        opcode: io.compare,
        nsid: 1,
        words: blocksOf(1, 1),
        bytes: 4096,
        sglKind: sgl.inCapsule,
      };
      expect((await queue.command(compare, { inCapsule: stamped(4096, 1) })).status).toBe(0);
      expect((await queue.command(compare, { inCapsule: stamped(4096, 2) })).status).toBe(0x285);
      expect((await queue.command({ opcode: io.flush, nsid: 1 })).status).toBe(0);
      expect((await queue.command({ opcode: io.writeZeroes, nsid: 1, words: blocksOf(1, 1) })).status).toBe(
        0,
      );
      expect(await device.compare(4096, Buffer.alloc(4096))).toBe(true);
      // As Linux does: one range, and 4096 bytes in the capsule.
      const ranges = Buffer.alloc(4096);
      ranges.writeUInt32LE(4, 4);
      ranges.writeBigUInt64LE(10n, 8);
      const trim = {
        opcode: io.datasetManagement,
        nsid: 1,
        words: [0, 4],
        bytes: 4096,
        sglKind: sgl.inCapsule,
      };
      expect((await queue.command(trim, { inCapsule: ranges })).status).toBe(0);
      expect(await device.compare(40_960, Buffer.alloc(16_384))).toBe(true);
    });
  },
);

it("takes nothing that the operations of a device resolve with for a status", async () => {
  const inner = memoryDevice({ bytes });
  const odd = { bytesRead: 4096, type: 2, code: 0x81 };
  const answers = new Proxy(inner, {
    get(device, name) {
      const value: unknown = Reflect.get(device, name, device);
      if (typeof value !== "function") return value;
      return async (...args: unknown[]) => {
        const result: unknown = await value.apply(device, args);
        return result === undefined ? odd : result;
      };
    },
  });
  const { port } = await serve(answers);
  const { queue } = await associate(port, none);
  expect((await queue.write(1, stamped(4096, 1))).status).toBe(0);
  const read = await queue.read(1, 4096);
  expect(read.status).toBe(0);
  expect(read.data.equals(stamped(4096, 1))).toBe(true);
  expect((await queue.command({ opcode: io.flush, nsid: 1 })).status).toBe(0);
  const zeroes = await queue.command({ opcode: io.writeZeroes, nsid: 1, words: blocksOf(1, 1) });
  expect(zeroes.status).toBe(0);
  expect(await inner.compare(4096, Buffer.alloc(4096))).toBe(true);
});

describe("the admin queue", () => {
  it("describes controller and namespaces as Linux asks for them", async () => {
    const { port } = await serve();
    const { control, queue, controllerId } = await associate(port);
    expect((await control.getProperty(0, 1)).result).toBe(127n | (1n << 16n) | (20n << 24n) | (1n << 37n));
    expect((await control.getProperty(8)).result).toBe(0x10400n);
    const controller = (await control.identify(1)).data;
    expect(controller.readUInt16LE(78)).toBe(controllerId);
    expect(controller.readUInt16LE(320)).toBeGreaterThan(0);
    expect(controller.readUInt16LE(514)).toBeGreaterThan(0);
    expect(controller.readUInt32LE(1792)).toBe((64 + 16_384) / 16);
    expect(controller.toString("utf8", 768, 768 + nqn.length)).toBe(nqn);
    const namespace = (await control.identify(0, 1)).data;
    expect(namespace.readBigUInt64LE(0)).toBe(BigInt(bytes / 4096));
    expect(namespace[130]).toBe(12);
    expect((await control.identify(2)).data.readUInt32LE(0)).toBe(1);
    const uuid = (await control.identify(3, 1)).data.subarray(0, 20);
    expect(uuid.subarray(0, 2)).toEqual(Buffer.from([3, 16]));
    expect(uuid.subarray(4).equals(namespace.subarray(104, 120))).toBe(true);
    expect((await control.identify(5, 1)).status).toBe(2);
    expect((await control.identify(0, 2)).status).toBe(0x0b);
    const setFeature = (id: number, value: number) =>
      control.command({ opcode: admin.setFeatures, words: [id, value] });
    expect((await setFeature(7, 3 * 65_537)).status).toBe(0x0c);
    expect((await setFeature(0x0b, 0x900)).status).toBe(0);
    expect((await control.command({ opcode: admin.getFeatures, words: [0x0b] })).result).toBe(0x900n);
    expect((await setFeature(0x55, 1)).status).toBe(2);
    // The write cache stays on, and Flush is for one namespace.
    expect((await setFeature(6, 1)).status).toBe(0);
    expect((await setFeature(6, 0)).status).toBe(0x10e);
    expect(controller[525]).toBe(0b101);
    expect((await queue.command({ opcode: io.flush, nsid: 0xffff_ffff })).status).toBe(0x0b);
    const log = { opcode: admin.getLogPage, words: [2 | (127 << 16), 0], bytes: 512 };
    expect((await control.command(log)).data.length).toBe(512);
    expect((await control.command({ opcode: admin.keepAlive })).status).toBe(0);
    expect((await control.command({ opcode: 0x77 })).status).toBe(1);
    const tooLong = { opcode: admin.getLogPage, words: [2 | (0xffff << 16), 0xffff], bytes: 0xfffffffc };
    expect((await control.command(tooLong)).status).toBe(2);
  });

  it("counts what hosts read and write, as SMART data and in stats", async () => {
    const { port, target } = await serve();
    const { control, queue } = await associate(port);
    expect((await queue.write(0, stamped(mib, 1))).status).toBe(0);
    expect((await queue.write(0, stamped(4096, 1))).status).toBe(0);
    expect((await queue.read(0, 8192)).status).toBe(0);
    const compare = {
      opcode: io.compare,
      nsid: 1,
      words: blocksOf(0, 1),
      bytes: 4096,
      sglKind: sgl.inCapsule,
    };
    expect((await queue.command(compare, { inCapsule: stamped(4096, 1) })).status).toBe(0);
    // What no device was asked for does not count.
    expect((await queue.read(bytes / 4096, 4096)).status).toBe(0x80);
    const usage = { nqn, nsid: 1, reads: 2, readBytes: 12_288, writes: 2, writtenBytes: mib + 4096 };
    expect(target.stats().namespaces).toEqual([usage]);
    const words = [2 | (127 << 16), 0];
    const log = (await control.command({ opcode: admin.getLogPage, words, bytes: 512 })).data;
    expect([32, 48, 64, 80].map((at) => log.readBigUInt64LE(at))).toEqual([1n, 3n, 2n, 2n]);
  });

  it("notifies a host that asked for it of a device that has grown, once until it has read the log", async () => {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-resize-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const path = join(folder, "disk.img");
    await using device = await openFileDevice(path, { bytes: mib });
    const { port, target } = await serve(device);
    const { control, queue } = await associate(port);
    expect((await control.identify(1)).data.readUInt32LE(92)).toBe((1 << 8) | (1 << 11));
    expect((await control.command({ opcode: admin.setFeatures, words: [0x0b, 1 << 8] })).status).toBe(0);
    control.sendCommand({ opcode: admin.asyncEvent, id: 1 });
    target.resized();
    await truncate(path, 2 * mib + 100);
    expect(await device.grow()).toBe(true);
    expect(await device.grow()).toBe(false);
    target.resized();
    expect(await control.answer(1)).toMatchObject({ status: 0, result: 0x40002n });
    control.sendCommand({ opcode: admin.asyncEvent, id: 2 });
    await truncate(path, 3 * mib);
    expect(await device.grow()).toBe(true);
    target.resized();
    // No second event comes before the log is read: the answers would be in another order.
    expect((await control.identify(0, 1)).data.readBigUInt64LE(0)).toBe(BigInt((3 * mib) / 4096));
    const words = [4 | (1023 << 16), 0];
    const log = { opcode: admin.getLogPage, words, bytes: 4096 };
    const changed = (await control.command(log)).data;
    expect([changed.readUInt32LE(0), changed.readUInt32LE(4)]).toEqual([1, 0]);
    expect((await control.command(log)).data.readUInt32LE(0)).toBe(0);
    expect((await queue.write((3 * mib) / 4096 - 1, stamped(4096, 1))).status).toBe(0);
    expect((await queue.write((3 * mib) / 4096, stamped(4096, 1))).status).toBe(0x80);
    await truncate(path, 4 * mib);
    await device.grow();
    target.resized();
    expect(await control.answer(2)).toMatchObject({ status: 0, result: 0x40002n });
  });

  it("notifies the hosts of each subsystem of a device that has grown", async () => {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-resize-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const path = join(folder, "disk.img");
    await using device = await openFileDevice(path, { bytes: mib });
    const other = "nqn.2026-11.test:other";
    const subsystems = [nqn, other].map((name) => ({
      ...{ nqn: name, namespaces: [device], hosts: "any" as const },
    }));
    const { port, target } = await serve(device, { subsystems });
    const controls = [await associate(port), await associate(port, both, { nqn: other })];
    for (const { control } of controls) {
      expect((await control.command({ opcode: admin.setFeatures, words: [0x0b, 1 << 8] })).status).toBe(0);
      control.sendCommand({ opcode: admin.asyncEvent, id: 1 });
    }
    await truncate(path, 2 * mib);
    await device.grow();
    target.resized();
    for (const { control } of controls) expect(await control.answer(1)).toMatchObject({ result: 0x40002n });
  });

  it("keeps requests for events, gives them up by Abort, and refuses a fifth", async () => {
    const { port } = await serve();
    const { control } = await associate(port);
    for (const id of [1, 2, 3, 4]) control.sendCommand({ opcode: admin.asyncEvent, id });
    expect((await control.command({ opcode: admin.asyncEvent })).status).toBe(0x105);
    control.sendCommand({ opcode: admin.abort, id: 9, words: [3 << 16] });
    // The aborted command is answered before.
    expect((await control.answer(3)).status).toBe(7);
    expect((await control.answer(9)).result).toBe(0n);
    expect((await control.command({ opcode: admin.abort, words: [77 << 16] })).result).toBe(1n);
    // This names a command of another queue: the request with that number here stays.
    expect((await control.command({ opcode: admin.abort, words: [1 | (4 << 16)] })).result).toBe(1n);
    control.sendCommand({ opcode: admin.abort, id: 9, words: [4 << 16] });
    expect((await control.answer(4)).status).toBe(7);
    expect((await control.answer(9)).result).toBe(0n);
  });

  it("flushes at a shutdown, and ends I/O queues at a reset", async () => {
    const device = losesPower(memoryDevice({ bytes }));
    const { port } = await serve(device);
    const { control, queue } = await associate(port);
    expect((await queue.write(0, stamped(4096, 1))).status).toBe(0);
    expect((await control.setProperty(0x14, 0x464001)).status).toBe(0);
    expect((await control.getProperty(0x1c)).result).toBe(9n);
    await device.cutPower();
    await device.restorePower();
    expect(await device.compare(0, stamped(4096, 1))).toBe(true);
    expect((await control.setProperty(0x14, 0)).status).toBe(0);
    await queue.ended();
  });

  it("lists for the discovery service what a host may use", async () => {
    const subsystems = [
      { nqn, namespaces: [nullDevice({ bytes })], hosts: ["nqn.2026-11.test:host"] },
      { nqn: `${nqn}-2`, namespaces: [nullDevice({ bytes })], hosts: ["nqn.2026-11.test:other"] },
    ];
    const { port } = await serve(undefined, { subsystems });
    const control = await HostQueue.open(port);
    await control.greet();
    expect((await control.connect({ nqn: discoveryNqn })).status).toBe(0);
    const log = (
      await control.command({ opcode: admin.getLogPage, words: [0x70 | (511 << 16)], bytes: 2048 })
    ).data;
    expect(log.readBigUInt64LE(8)).toBe(1n);
    expect(log.toString("latin1", 1024 + 32, 1024 + 64).trim()).toBe(String(port));
    expect(log.toString("utf8", 1024 + 256, 1024 + 256 + nqn.length + 1)).toBe(`${nqn}\0`);
    expect(log.toString("latin1", 1024 + 512, 1024 + 768).trim()).toBe("127.0.0.1");
  });

  it("lists other addresses where it is told to, and says that it notifies of no change", async () => {
    const advertise = [{ host: "192.0.2.7" }, { host: "2001:db8::7", port: 4421 }];
    const { port } = await serve(undefined, { advertise });
    const found = await NvmeHost.discover({ host: "127.0.0.1", port });
    expect(found).toMatchObject([
      { nqn, host: "192.0.2.7", service: "4420" },
      { nqn, host: "2001:db8::7", service: "4421" },
    ]);
    const { control } = await associate(port, both, { nqn: discoveryNqn });
    expect((await control.identify(1)).data.readUInt32LE(92)).toBe(0); // OAES
    const words = [112 | (767 << 16)];
    const log = (await control.command({ opcode: admin.getLogPage, words, bytes: 3072 })).data;
    expect([1024, 2048].map((at) => [log[at + 1], log.readUInt16LE(at + 4)])).toEqual([
      [1, 1],
      [2, 2],
    ]);
  });

  it("lists the address where a host has come, of a target that listens at every address", async () => {
    const { port } = await serve(undefined, { host: "0.0.0.0" });
    const { control } = await associate(port, both, { nqn: discoveryNqn });
    const words = [112 | (511 << 16)];
    const log = (await control.command({ opcode: admin.getLogPage, words, bytes: 2048 })).data;
    expect(log.toString("latin1", 1024 + 512, 1024 + 768).trim()).toBe("127.0.0.1");
  });
});

it("targets of one subsystem give their controllers different numbers, as hosts with several paths need", async () => {
  const numbers = new Set<number>();
  for (let count = 0; count < 3; count++) numbers.add((await associate((await serve()).port)).controllerId);
  // By chance: two of them may have one number, once in 20,000 runs, and all three never.
  expect(numbers.size).toBeGreaterThan(1);
});

it("admits a host again only when the devices have finished what it had under way", async () => {
  const device = memoryDevice({ bytes });
  const write = device.write.bind(device);
  let finish = () => {};
  const held = new Promise<void>((resolve) => (finish = resolve));
  const spy = vi.spyOn(device, "write").mockImplementationOnce(async (...args) => {
    await held;
    await write(...args);
  });
  const { port, target } = await serve(device);
  const { control, queue } = await associate(port);
  const words = blocksOf(0, 1);
  const first = { opcode: io.write, nsid: 1, id: 1, words, bytes: 4096, sglKind: sgl.inCapsule };
  queue.sendCommand(first, stamped(4096, 1));
  await expect.poll(() => spy.mock.calls.length).toBe(1);
  control.socket.destroy();
  await queue.ended();
  const again = await HostQueue.open(port);
  await again.greet();
  const admitted = again.connect();
  let isAdmitted = false;
  void admitted.then(() => (isAdmitted = true));
  // Another host does not wait, so the answer of this host would be there, too.
  await associate(port, both, { hostId: 2, host: "nqn.2026-11.test:other" });
  const [wasAdmitted, { controllers }] = [isAdmitted, target.stats()];
  finish();
  expect([wasAdmitted, controllers]).toEqual([false, 2]);
  expect((await admitted).status).toBe(0);
  expect(await device.compare(0, stamped(4096, 1))).toBe(true);
});

describe("a host has the target end another of its controllers", () => {
  const endOther = (controllerId: number, identity: Buffer) => ({
    opcode: admin.endOther,
    words: [
      controllerId + 65_536 * identity.readUInt8(135),
      0,
      ...[136, 140].map((at) => identity.readUInt32LE(at)),
    ],
  });

  it("when the devices are done with what it had under way", async () => {
    const device = memoryDevice({ bytes });
    const flush = vi.spyOn(device, "flush");
    let finish = () => {};
    flush.mockImplementationOnce(() => new Promise<void>((resolve) => (finish = resolve)));
    const { port, target } = await serve(device);
    const { control, queue, controllerId } = await associate(port);
    const identity = (await control.identify(1)).data;
    expect(identity.readUInt8(1807)).toBeGreaterThan(0);
    queue.sendCommand({ opcode: io.flush, nsid: 1, id: 1 });
    await expect.poll(() => flush.mock.calls.length).toBe(1);
    const next = await associate(port);
    next.control.sendCommand({ ...endOther(controllerId, identity), id: 50 });
    await control.ended();
    await queue.ended();
    // Commands of the host are answered meanwhile: this one would come behind the answer.
    expect((await next.queue.read(0, 4096)).status).toBe(0);
    expect(target.stats().controllers).toBe(2);
    finish();
    expect(await next.control.answer(50)).toMatchObject({ status: 0, result: 1n });
    expect(target.stats().controllers).toBe(1);
    // A controller that has ended stays ended.
    expect(await next.control.command(endOther(controllerId, identity))).toMatchObject({
      status: 0,
      result: 1n,
    });
  });

  it("but not that of another host, its own, or one of another target", async () => {
    const { port, target } = await serve();
    const { control, controllerId } = await associate(port);
    const identity = (await control.identify(1)).data;
    const stranger = await associate(port, both, { hostId: 2, host: "nqn.2026-11.test:other" });
    expect(await stranger.control.command(endOther(controllerId, identity))).toMatchObject({ status: 2 });
    expect(await control.command(endOther(controllerId, identity))).toMatchObject({ status: 2 });
    const elsewhere = await associate((await serve()).port);
    expect(await elsewhere.control.command(endOther(controllerId, identity))).toMatchObject({ status: 2 });
    expect(target.stats().controllers).toBe(2);
  });
});

describe("Connect is refused", () => {
  it.each<[string, Partial<ConnectFields>, number, bigint]>([
    ["for an unknown subsystem", { nqn: `${nqn}x` }, 0x182, 256n | 65_536n],
    ["for no subsystem", { nqn: "" }, 0x182, 256n | 65_536n],
    ["without a host", { host: "" }, 0x182, 512n | 65_536n],
    ["for a host that is not listed", { host: "nqn.2026-11.test:stranger" }, 0x184, 0n],
    ["for a controller that it names itself", { controllerId: 0xfff5 }, 0x182, 16n | 65_536n],
    ["for an I/O queue of an unknown controller", { queueId: 1, controllerId: 0xfff5 }, 0x182, 16n | 65_536n],
    ["for a queue that is too long", { entries: 129 }, 0x182, 44n],
    ["for a queue of one entry", { entries: 1 }, 0x182, 44n],
    ["in another format", { format: 1 }, 0x180, 0n],
  ])("%s", async (_, fields, status, result) => {
    const subsystems = [{ nqn, namespaces: [nullDevice({ bytes })], hosts: ["nqn.2026-11.test:host"] }];
    const { port, target } = await serve(undefined, { subsystems });
    const queue = await HostQueue.open(port);
    await queue.greet();
    expect(await queue.connect(fields)).toMatchObject({ status, result, doNotRetry: true });
    await queue.ended();
    expect(target.stats().controllers).toBe(0);
  });

  it("for an I/O queue before the controller is enabled, of another host, and for a number in use", async () => {
    const { port } = await serve();
    const control = await HostQueue.open(port);
    await control.greet();
    const controllerId = Number((await control.connect()).result);
    const connect = async (fields: Partial<ConnectFields>) => {
      const queue = await HostQueue.open(port);
      await queue.greet();
      return (await queue.connect({ queueId: 1, controllerId, ...fields })).status;
    };
    expect(await connect({})).toBe(0x0c);
    await control.setProperty(0x14, 0x460001);
    expect(await connect({ hostId: 2 })).toBe(0x182);
    expect(await connect({})).toBe(0);
    expect(await connect({})).toBe(0x182);
    expect(await connect({ queueId: 17 })).toBe(0x182);
    expect(await connect({ queueId: 2 })).toBe(0);
  });
});

describe("a command that is wrong gets its status, and the next is served", () => {
  const read = { opcode: io.read, nsid: 1, words: blocksOf(0, 1), bytes: 4096 };
  const write = { ...read, opcode: io.write, sglKind: sgl.inCapsule };
  it.each<[string, CommandFields, number, Buffer?]>([
    ["an unknown opcode", { opcode: 0x99, nsid: 1 }, 0x01],
    ["an unknown namespace", { ...read, nsid: 2 }, 0x0b],
    ["a range beyond the end", { ...read, words: blocksOf(bytes / 4096, 1) }, 0x80],
    ["a sum beyond 2^64", { ...read, words: blocksOf(2n ** 64n - 1n, 2) }, 0x80],
    ["a transfer that is too long", { ...read, words: blocksOf(0, 257), bytes: mib + 4096 }, 0x02],
    ["a length that differs from the blocks", { ...read, bytes: 8192 }, 0x0f],
    ["a read into the capsule", { ...read, sglKind: sgl.inCapsule }, 0x11],
    ["an SGL by address", { ...write, sglKind: 0 }, 0x11, Buffer.alloc(4096)],
    ["data in the capsule of a read", read, 0x0f, Buffer.alloc(4096)],
    ["a capsule that is too short", write, 0x0f, Buffer.alloc(2048)],
    ["an offset in the capsule", { ...write, sglOffset: 4 }, 0x16, Buffer.alloc(4096)],
    ["PRPs instead of SGLs", { ...read, flags: 0 }, 0x02],
    ["a second fused command without the first", { ...write, flags: 0x42 }, 0x0a, Buffer.alloc(4096)],
    ["a place in a fused operation that there is not", { ...read, flags: 0x43 }, 0x02],
    ["fabrics commands on an I/O queue", { opcode: fabricsOpcode, nsid: 4 }, 0x0c],
    ["too few ranges", { opcode: 9, nsid: 1, words: [1, 4], bytes: 16, sglKind: 1 }, 0x0f, Buffer.alloc(16)],
  ])("%s", async (_, fields, status, inCapsule) => {
    const { port } = await serve();
    const { queue } = await associate(port);
    const answer = await queue.command(fields, inCapsule === undefined ? {} : { inCapsule });
    expect(answer.status).toBe(status);
    expect((await queue.read(0, 4096)).data.equals(Buffer.alloc(4096))).toBe(true);
  });

  it("data with a wrong digest", async () => {
    const { port, device } = await serve();
    const { queue } = await associate(port);
    const damage = (message: Buffer) => {
      message[message.length - 1] = (message.at(-1) ?? 0) ^ 1;
      return message;
    };
    const original = queue.socket.write.bind(queue.socket);
    const spy = vi.spyOn(queue.socket, "write");
    spy.mockImplementation((message) => original(damage(message as Buffer)));
    expect((await queue.write(0, stamped(4096, 1))).status).toBe(0x22);
    let sent = 0;
    // The command is complete, the data are not.
    spy.mockImplementation((message) =>
      original(sent++ === 0 ? (message as Buffer) : damage(message as Buffer)),
    );
    expect((await queue.write(0, stamped(32_768, 1))).status).toBe(0x22);
    spy.mockRestore();
    expect(await device.compare(0, Buffer.alloc(32_768))).toBe(true);
    expect((await queue.read(0, 4096)).status).toBe(0);
  });

  it("a tag in use", async () => {
    let finish = () => {};
    const isHeld = new Promise<void>((resolve) => (finish = resolve));
    const device = memoryDevice({ bytes });
    vi.spyOn(device, "flush").mockImplementation(() => isHeld);
    const { port } = await serve(device);
    const { queue } = await associate(port);
    queue.sendCommand({ opcode: io.flush, nsid: 1, id: 5 });
    expect((await queue.command({ opcode: io.flush, nsid: 1, id: 5 })).status).toBe(3);
    finish();
    expect((await queue.answer(5)).status).toBe(0);
  });
});

describe("a PDU that is wrong ends its connection with TermReq, and no other", () => {
  const asCommand = (fields: CommandFields) => Buffer.concat([Buffer.alloc(8), commandEntry(fields)]);
  const changed = (message: Buffer, at: number, value: number) => {
    const copy = Buffer.from(message);
    copy.writeUInt8(value, at);
    return copy;
  };
  const flush = { opcode: io.flush, nsid: 1 };
  const cases: readonly [string, number, number, (queue: HostQueue) => void][] = [
    ["an unknown type", 1, 0, (queue) => queue.send(0x55, 0, asCommand(flush))],
    ["a type of the target", 2, 0, (queue) => queue.send(pduType.capsuleResp, 0, Buffer.alloc(24))],
    ["a second ICReq", 2, 0, (queue) => queue.socket.write(icRequest(both))],
    ["another HLEN", 1, 2, (queue) => queue.send(pduType.capsuleCmd, 0, Buffer.alloc(80))],
    ["a length above the limit", 1, 4, (queue) => queue.sendCommand(flush, Buffer.alloc(16_388))],
    ["data that nobody asked for", 1, 10, (queue) => queue.sendData(1, 1, 0, Buffer.alloc(4096))],
    ["data without data", 1, 3, (queue) => queue.send(pduType.h2cData, 4, Buffer.alloc(24))],
    [
      "another digest of the header",
      3,
      0x12345678,
      (queue) => {
        const digest = Buffer.alloc(4);
        digest.writeUInt32LE(0x12345678);
        const header = asCommand(flush);
        queue.socket.cork();
        const message = Buffer.concat([header, digest]);
        message.set([pduType.capsuleCmd, 1, 72, 0, 76, 0, 0, 0]);
        queue.socket.write(message);
        queue.socket.uncork();
      },
    ],
    [
      "no digest where there should be one",
      1,
      1,
      (queue) => {
        const message = asCommand(flush);
        message.set([pduType.capsuleCmd, 0, 72, 0, 72, 0, 0, 0]);
        queue.socket.write(message);
      },
    ],
  ];
  it.each(cases)("%s", async (_, fes, fei, send) => {
    const { port } = await serve();
    const { control, queue } = await associate(port);
    send(queue);
    const { type, header } = await queue.pdu();
    expect([type, header.readUInt16LE(8), header.readUInt32LE(10)]).toEqual([pduType.c2hTermReq, fes, fei]);
    await queue.ended();
    expect((await control.command({ opcode: admin.keepAlive })).status).toBe(0);
  });

  it("of an admin queue, with which its controller and the I/O queues end", async () => {
    const { port } = await serve();
    const { control, queue } = await associate(port);
    control.send(0x55, 0, asCommand(flush));
    const { type, header } = await control.pdu();
    expect([type, header.readUInt16LE(8), header.readUInt32LE(10)]).toEqual([pduType.c2hTermReq, 1, 0]);
    await control.ended();
    await queue.ended();
  });

  it.each<[string, number, (queue: HostQueue, tag: number) => void]>([
    ["outside its place", 4, (queue, tag) => queue.sendData(7, tag, 4096, Buffer.alloc(4096), 0)],
    ["longer than asked for", 4, (queue, tag) => queue.sendData(7, tag, 0, Buffer.alloc(65_536))],
    ["of another command", 1, (queue, tag) => queue.sendData(8, tag, 0, Buffer.alloc(4096), 0)],
    ["that end too early", 1, (queue, tag) => queue.sendData(7, tag, 0, Buffer.alloc(4096), 4)],
    ["that do not end", 1, (queue, tag) => queue.sendData(7, tag, 0, Buffer.alloc(32_768), 0)],
  ])("data %s", async (_, fes, send) => {
    const { port, device } = await serve();
    const { queue } = await associate(port);
    queue.sendCommand({ opcode: io.write, nsid: 1, id: 7, words: blocksOf(0, 8), bytes: 32_768 });
    const request = await queue.pdu();
    expect(request.type).toBe(pduType.r2t);
    send(queue, request.header.readUInt16LE(10));
    expect((await queue.pdu()).header.readUInt16LE(8)).toBe(fes);
    await queue.ended();
    expect(await device.compare(0, Buffer.alloc(32_768))).toBe(true);
  });

  it.each<[string, Buffer, number, number]>([
    ["a command before ICReq", changed(Buffer.alloc(8), 0, pduType.capsuleCmd), 2, 0],
    ["an ICReq that is too long", changed(changed(icRequest(none), 4, 129), 2, 128), 1, 4],
    ["an ICReq that is too short", changed(icRequest(none), 2, 24), 1, 2],
    ["another version", changed(icRequest(none), 8, 1), 6, 8],
    ["an alignment that the target does not have", changed(icRequest(none), 10, 1), 6, 10],
    ["unknown digests", changed(icRequest(none), 11, 8), 1, 11],
  ])("%s", async (_, message, fes, fei) => {
    const { port } = await serve();
    const queue = await HostQueue.open(port, none);
    queue.socket.write(message);
    const { type, header } = await queue.pdu();
    expect([type, header.readUInt16LE(8), header.readUInt32LE(10)]).toEqual([pduType.c2hTermReq, fes, fei]);
    await queue.ended();
  });

  it("more commands than the queue has entries", async () => {
    const device = memoryDevice({ bytes });
    let finish = () => {};
    const isHeld = new Promise<void>((resolve) => (finish = resolve));
    vi.spyOn(device, "flush").mockImplementation(() => isHeld);
    const { port } = await serve(device);
    const { queue } = await associate(port);
    for (let id = 0; id < 65; id++) queue.sendCommand({ opcode: io.flush, nsid: 1, id });
    expect((await queue.pdu()).header.readUInt16LE(8)).toBe(2);
    await queue.ended();
    finish();
  });

  it("a command before Connect", async () => {
    const { port } = await serve();
    const queue = await HostQueue.open(port);
    await queue.greet();
    expect((await queue.command({ opcode: io.flush, nsid: 1 })).status).toBe(0x0c);
    await queue.ended();
  });
});

describe("a host that is silent", () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  function controllerOf(keepAliveMs: number) {
    const abort = vi.fn();
    const controller = new Controller(
      1,
      { nqn: "nqn.2026-11.test:host", id: "1" },
      { nqn, serial: "1", model: "test", namespaces: new Map() },
      { places: [{ transport: "tcp", host: "127.0.0.1", port: 4420 }], nqns: [] },
      { keepAliveMs, adminQueue: bareQueue(abort), maxIoQueues: 1 },
    );
    return { controller, abort };
  }

  it("loses its controller after the keep-alive time: no write is applied later", async () => {
    let finish = () => {};
    const isHeld = new Promise<void>((resolve) => (finish = resolve));
    const device = memoryDevice({ bytes });
    const write = vi.spyOn(device, "write");
    vi.spyOn(device, "flush").mockImplementation(() => isHeld);
    const { port, target } = await serve(device);
    const { control, queue } = await associate(port);
    // One command is in the device, another waits for its data.
    queue.sendCommand({ opcode: io.flush, nsid: 1, id: 1 });
    queue.sendCommand({ opcode: io.write, nsid: 1, id: 2, words: blocksOf(0, 8), bytes: 32_768 });
    expect((await queue.pdu()).type).toBe(pduType.r2t);
    control.sendCommand({ opcode: admin.setFeatures, words: [0x0f, 50] });
    await control.ended();
    await queue.ended();
    expect(target.stats()).toMatchObject({ controllers: 1 });
    // The same host waits for what it left in the device; another does not.
    const next = await HostQueue.open(port);
    await next.greet();
    const connecting = next.connect();
    const other = await HostQueue.open(port);
    await other.greet();
    expect((await other.connect({ hostId: 2 })).status).toBe(0);
    finish();
    expect((await connecting).status).toBe(0);
    expect(write).not.toHaveBeenCalled();
  });

  it("looks at the clock once for all commands that have come together", async () => {
    const { port } = await serve();
    const { queue } = await associate(port, both, { keepAliveMs: 60_000 });
    const looks = vi.spyOn(Controller.prototype, "checkAlive");
    const ids = Array.from({ length: 16 }, (_, index) => index);
    queue.socket.cork();
    for (const id of ids)
      queue.sendCommand({ opcode: io.read, nsid: 1, words: blocksOf(id, 1), bytes: 4096, id });
    queue.socket.uncork();
    for (const id of ids) expect(await queue.answer(id)).toMatchObject({ status: 0 });
    expect(looks.mock.calls.length).toBeLessThan(ids.length / 2);
  });

  it("has no write applied by a target that was stopped for longer, whose timers have not come", async () => {
    const { port, device } = await serve();
    const { queue } = await associate(port, both, { keepAliveMs: 60_000 });
    const now = performance.now();
    vi.spyOn(performance, "now").mockReturnValue(now + 60_000);
    const write = vi.spyOn(device, "write");
    await expect(queue.write(0, Buffer.alloc(4096, 1))).rejects.toThrow("ended");
    expect(write).not.toHaveBeenCalled();
  });

  it("has nothing done that was in its sockets when the time was over", async () => {
    const { port, device } = await serve();
    const { control, queue } = await associate(port);
    const write = vi.spyOn(device, "write");
    expect((await control.command({ opcode: admin.setFeatures, words: [0x0f, 200] })).status).toBe(0);
    const words = blocksOf(0, 1);
    const late = { opcode: io.write, nsid: 1, words, bytes: 4096, sglKind: sgl.inCapsule };
    for (let id = 0; id < 32; id++) queue.sendCommand({ ...late, id }, stamped(4096, 1));
    control.sendCommand({ opcode: admin.keepAlive, id: 1 });
    // The kernel has the bytes, and this process reads none of them until the time is over.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 250);
    await Promise.all([control.ended(), queue.ended()]);
    expect(write).not.toHaveBeenCalled();
  });

  it("keeps it by keep-alive commands", async () => {
    vi.useFakeTimers();
    const { controller, abort } = controllerOf(1000);
    for (let count = 0; count < 3; count++) {
      vi.advanceTimersByTime(900);
      expect(controller.isEnded).toBe(false);
      await controller.execute(parseCommand(commandEntry({ opcode: admin.keepAlive })));
    }
    vi.advanceTimersByTime(1000);
    expect(controller.isEnded).toBe(true);
    expect(abort).toHaveBeenCalledTimes(1);
    await controller.ended;
  });

  it("keeps it for as long as it has asked, also for longer than timers run", () => {
    vi.useFakeTimers();
    const { controller } = controllerOf(2 ** 32 - 1);
    vi.advanceTimersByTime(60_000);
    expect(controller.isEnded).toBe(false);
    controller.end();
  });

  it("in its handshake loses its connection", async () => {
    const { port } = await serve(undefined, { handshakeTimeoutMs: 50 });
    const silent = await HostQueue.open(port);
    await silent.ended();
  });

  it("within a PDU loses its connection", async () => {
    const { port } = await serve(undefined, { stallTimeoutMs: 50 });
    const { queue } = await associate(port);
    queue.socket.write(Buffer.from([pduType.capsuleCmd, 3, 72]));
    await queue.ended();
  });

  it("ends its I/O queues with its admin queue", async () => {
    const { port, target } = await serve();
    const { control, queue } = await associate(port);
    control.socket.destroy();
    await queue.ended();
    await expect.poll(() => target.stats()).toMatchObject({ controllers: 0, open: 0 });
  });
});

describe("options of a target", () => {
  const device = nullDevice({ bytes });
  it.each<[object, string]>([
    [{}, "NvmeTarget.listen: subsystems is missing"],
    [{ subsystems: [] }, "subsystems must be an array of 1 to 1024 items, it has 0"],
    [
      { subsystems: [{ nqn: "disk", namespaces: [device], hosts: "any" }] },
      "subsystems[0].nqn must be an NVMe qualified",
    ],
    [
      { subsystems: [{ nqn, namespaces: [], hosts: "any" }] },
      "subsystems[0].namespaces must be an array of 1 to 1024",
    ],
    [
      { subsystems: [{ nqn, namespaces: [device] }] },
      'subsystems[0].hosts must be an array of NQNs and hosts with secrets, or "any"',
    ],
    [
      { subsystems: [1, 2].map(() => ({ nqn, namespaces: [device], hosts: "any" })) },
      `NvmeTarget.listen: two subsystems have the name ${nqn}`,
    ],
  ])("%# are refused", async (options, message) => {
    await expect(NvmeTarget.listen(options as NvmeTargetOptions)).rejects.toThrow(message);
  });
});
