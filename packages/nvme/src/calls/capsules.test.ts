import { Engine } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { BlockDevice } from "../device/block-device.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { NvmeHost, type NvmeHostOptions } from "../host/nvme-host.ts";
import { admin, io, newEntry } from "../nvme/command.ts";
import { NvmeTarget } from "../nvme/target.ts";
import { Capsules, dataAt, keyBytes } from "./capsule-service.ts";

const mib = 1024 * 1024;
const bytes = 16 * mib;
const nqn = "nqn.2026-11.test:disk";
const ends: (() => Promise<unknown>)[] = [];
let names = 0;

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A URL to listen at. For mem and shm it is unique. */
const urlOf = (scheme: string) =>
  scheme === "mem" || scheme === "shm"
    ? `${scheme}://nvme-${process.pid}-${names++}`
    : `${scheme}://127.0.0.1:0`;

async function serve(scheme: string, device: BlockDevice = memoryDevice({ bytes })) {
  const target = NvmeTarget.open({ subsystems: [{ nqn, namespaces: [device], hosts: "any" }] });
  ends.push(() => target.close());
  const server = await Engine.open({ listen: urlOf(scheme), serve: [target.capsules] });
  ends.push(() => server.close());
  return { target, device, server, url: server.urls[0] as string };
}

async function connectTo(url: string, options: Partial<NvmeHostOptions> = {}) {
  const engine = await Engine.open();
  ends.push(() => engine.close());
  const host = await NvmeHost.connect({ nqn, paths: [{ engine, url }], reconnectMs: 10, ...options });
  ends.push(() => host.close());
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("no namespace");
  return { engine, host, disk };
}

function stamped(length: number, seed: number): Buffer {
  const data = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) data.writeUInt32LE((at * 2_654_435_761 + seed) >>> 0, at);
  return data;
}

describe.each(["mem", "shm", "tcp", "net"])("a disk in calls over %s", (scheme) => {
  it("moves short data in capsules and long data by RMA", async () => {
    const { device, url, target } = await serve(scheme);
    const { host, disk } = await connectTo(url);
    expect(disk).toMatchObject({ bytes, blockBytes: 4096, nsid: 1 });
    for (const [offset, length] of [
      [4096, 4096],
      [40_960, 12_288],
      [81_920, 28_672],
      [409_600, 61_440],
      [mib, 3 * mib + 4096],
    ] as const) {
      const data = stamped(length, offset);
      await disk.write(offset, data, { fua: true });
      const found = Buffer.alloc(length);
      await disk.read(offset, found);
      expect(found.equals(data)).toBe(true);
      expect(await device.compare(offset, data)).toBe(true);
      expect(await disk.compare(offset, data)).toBe(true);
      expect(await disk.compare(offset, stamped(length, 1))).toBe(false);
    }
    await disk.flush();
    await disk.writeZeroes(4096, 4096);
    await disk.trim(mib, mib);
    expect(await device.compare(4096, Buffer.alloc(4096))).toBe(true);
    expect(await device.compare(mib, Buffer.alloc(mib))).toBe(true);
    expect(target.stats().controllers).toBe(1);
    await host.close();
    await expect.poll(() => target.stats().controllers).toBe(0);
  });
});

it("keeps more commands than the queue takes until there is a place", async () => {
  const { device, url } = await serve("mem");
  const { disk } = await connectTo(url, { queueDepth: 2, queues: 2 });
  const blocks = Array.from({ length: 50 }, (_, index) => index);
  await Promise.all(blocks.map((index) => disk.write(4096 * index, stamped(4096, index))));
  for (const index of blocks) expect(await device.compare(4096 * index, stamped(4096, index))).toBe(true);
});

it("an operation that is given up frees its buffer, and is not done later", async () => {
  const device = memoryDevice({ bytes });
  const read = device.read.bind(device);
  let isHeld = true;
  let isReading = false;
  vi.spyOn(device, "read").mockImplementation(async (offset, into) => {
    isReading = true;
    await expect.poll(() => isHeld).toBe(false);
    return read(offset, into);
  });
  const { url } = await serve("mem", device);
  const { host, disk } = await connectTo(url);
  await device.write(0, stamped(mib, 5));
  const controller = new AbortController();
  const into = Buffer.alloc(mib, 1);
  const reading = disk.read(0, into, { signal: controller.signal });
  await expect.poll(() => isReading).toBe(true);
  controller.abort(new Error("enough"));
  await expect(reading).rejects.toThrow("enough");
  isHeld = false;
  await disk.flush();
  expect(host.stats().underWay).toBe(0);
  const again = Buffer.alloc(mib);
  await disk.read(0, again);
  expect(again.equals(stamped(mib, 5))).toBe(true);
  // The buffer of the abandoned read was not filled later.
  expect(into.equals(Buffer.alloc(mib, 1))).toBe(true);
});

describe("a server that goes", () => {
  it("is connected again where it comes back, and operations go on", async () => {
    const device = memoryDevice({ bytes });
    const { server, url } = await serve("net", device);
    const { host, disk } = await connectTo(url);
    await disk.write(0, stamped(4096, 1));
    await server.close();
    const writing = disk.write(4096, stamped(4096, 2));
    const target = NvmeTarget.open({ subsystems: [{ nqn, namespaces: [device], hosts: "any" }] });
    ends.push(() => target.close());
    const second = await Engine.open({ listen: url, serve: [target.capsules] });
    ends.push(() => second.close());
    await writing;
    const found = Buffer.alloc(8192);
    await disk.read(0, found);
    expect(found.equals(Buffer.concat([stamped(4096, 1), stamped(4096, 2)]))).toBe(true);
    expect(host.stats().paths[0]).toMatchObject({ address: url, isConnected: true, connects: 2 });
  });

  it("hands over to NVMe/TCP, and back: paths of both kinds", async () => {
    const device = memoryDevice({ bytes });
    const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
    const target = await NvmeTarget.listen({ subsystems, port: 0 });
    ends.push(() => target.close());
    const server = await Engine.open({ listen: urlOf("mem"), serve: [target.capsules] });
    ends.push(() => server.close());
    const engine = await Engine.open();
    ends.push(() => engine.close());
    const paths = [{ engine, url: server.urls[0] as string }, target.address];
    const host = await NvmeHost.connect({ nqn, paths, reconnectMs: 10 });
    ends.push(() => host.close());
    await expect.poll(() => host.stats().paths.every(({ isConnected }) => isConnected)).toBe(true);
    const [disk] = host.namespaces;
    await disk?.write(0, stamped(4096, 1));
    await server.close();
    await disk?.write(4096, stamped(4096, 2));
    expect(await device.compare(0, Buffer.concat([stamped(4096, 1), stamped(4096, 2)]))).toBe(true);
    expect(host.stats().paths.map(({ isConnected }) => isConnected)).toEqual([false, true]);
  });

  it("ends the queues of a target that closes", async () => {
    const { target, url } = await serve("mem");
    const { host, disk } = await connectTo(url, { lossTimeoutMs: 50, reconnectMs: 60_000 });
    await target.close();
    await expect(disk.flush()).rejects.toThrow(/^no path to /);
    expect(host.stats().paths[0]?.isConnected).toBe(false);
  });
});

it("a silent host loses its controller after the keep-alive time", async () => {
  const { target, url } = await serve("mem");
  const { host } = await connectTo(url, { keepAliveMs: 0, reconnectMs: 60_000 });
  const engine = await Engine.open();
  ends.push(() => engine.close());
  const client = (await engine.connect(url)).client(Capsules);
  const data = Buffer.alloc(1024);
  data.writeUInt16LE(0xffff, 16);
  data.write(nqn, 256);
  data.write("nqn.2026-11.test:host", 512);
  const entry = newEntry(0x7f, 1, [0, 31, 50]);
  entry.writeUInt32LE(1024, 32);
  entry[39] = 1;
  const items = [];
  for await (const item of client.open(Buffer.concat([Buffer.alloc(keyBytes), entry, data])))
    items.push(item);
  expect(items).toHaveLength(1);
  await expect.poll(() => target.stats().controllers).toBe(1);
  expect(host.stats().paths[0]?.isConnected).toBe(true);
});

it("a target that was stopped for longer than the keep-alive time, whose timers have not come, does no old command", async () => {
  const { device, url } = await serve("mem");
  const { host, disk } = await connectTo(url, { keepAliveMs: 60_000, reconnectMs: 60_000 });
  const write = vi.spyOn(device, "write");
  // The clock goes on: engines count by it, too.
  const now = performance.now.bind(performance);
  const later = vi.spyOn(performance, "now").mockImplementation(() => now() + 60_000);
  const giveUp = new AbortController();
  // The first command ends the controller. The others do not get a status for that, but wait for another controller.
  const writing = [0, 1, 2].map((index) =>
    disk.write(4096 * index, Buffer.alloc(4096, 1), { signal: giveUp.signal }),
  );
  const settled = Promise.allSettled(writing);
  // `expect.poll` looks at the same clock.
  while (host.stats().paths[0]?.isConnected) await new Promise(setImmediate);
  later.mockRestore();
  giveUp.abort(new Error("enough"));
  for (const end of await settled) expect(end).toMatchObject({ reason: { message: "enough" } });
  expect(write).not.toHaveBeenCalled();
});

it("a short write does not wait behind reads that wait for memory", async () => {
  const device = memoryDevice({ bytes });
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
  const target = NvmeTarget.open({ subsystems, maxBytesPerConnection: mib });
  ends.push(() => target.close());
  const server = await Engine.open({ listen: urlOf("mem"), serve: [target.capsules] });
  ends.push(() => server.close());
  const { disk } = await connectTo(server.urls[0] as string, { queues: 1 });
  let finish = () => {};
  const isFinished = new Promise<void>((resolve) => (finish = resolve));
  ends.push(async () => finish());
  const read = vi.spyOn(device, "read").mockImplementation(() => isFinished);
  const reads = [0, mib].map((offset) => disk.read(offset, Buffer.alloc(mib)));
  await expect.poll(() => read.mock.calls.length).toBe(1);
  await disk.write(0, Buffer.alloc(4096, 1));
  expect(read).toHaveBeenCalledOnce();
  finish();
  await Promise.all(reads);
});

describe("a host that breaks the rules", () => {
  /** An enabled admin queue of a raw client. */
  async function raw(url: string) {
    const engine = await Engine.open();
    ends.push(() => engine.close());
    const client = (await engine.connect(url)).client(Capsules);
    const open = async (
      fields: {
        queueId?: number;
        controllerId?: number;
        bytes?: number;
        opcode?: number;
        hostId?: number;
      } = {},
    ) => {
      const data = Buffer.alloc(1024);
      data.fill(fields.hostId ?? 0, 0, 16);
      data.writeUInt16LE(fields.controllerId ?? 0xffff, 16);
      data.write(nqn, 256);
      data.write("nqn.2026-11.test:host", 512);
      const entry = newEntry(fields.opcode ?? 0x7f, 1, [(fields.queueId ?? 0) * 65_536, 1, 0]);
      entry.writeUInt32LE(fields.bytes ?? 1024, 32);
      entry[39] = 1;
      const stream = client.open(Buffer.concat([Buffer.alloc(keyBytes), entry, data]));
      const iterator = stream[Symbol.asyncIterator]();
      const { value } = await iterator.next();
      const answer = Buffer.from(value ?? []);
      return {
        iterator,
        status: (answer.readUInt16LE(14) >>> 1) & 0x7ff,
        result: answer.readUInt16LE(0),
        key: answer.subarray(dataAt.answer),
      };
    };
    const submit = async (key: Buffer, entry: Buffer, inCapsule: Buffer = Buffer.alloc(0)) => {
      const answer = Buffer.from(await client.submit(Buffer.concat([key, entry, inCapsule])));
      return (answer.readUInt16LE(14) >>> 1) & 0x7ff;
    };
    return { engine, client, open, submit };
  }

  function command(opcode: number, words: readonly number[], length: number, kind: number, nsid = 1): Buffer {
    const entry = newEntry(opcode, nsid, words);
    entry.writeUInt32LE(length, 32);
    entry[39] = kind;
    return entry;
  }

  it("asks for two events under one identifier: the second is refused, and the target can close", async () => {
    const { url } = await serve("mem");
    const { open, submit } = await raw(url);
    const control = await open();
    expect(await submit(control.key, command(0x7f, [0, 0x14, 0x460001, 0], 0, 0x5a, 0))).toBe(0);
    const asked = submit(control.key, command(admin.asyncEvent, [], 0, 0x5a, 0));
    expect(await submit(control.key, command(admin.asyncEvent, [], 0, 0x5a, 0))).toBe(3);
    await control.iterator.return?.();
    await asked.catch(() => {});
  });

  it("reserves a disk, and the other hosts get the status", async () => {
    const { url } = await serve("mem");
    const hosts = await Promise.all(
      [1, 2, 0].map(async (hostId) => {
        const { open, submit } = await raw(url);
        const control = await open({ hostId });
        await submit(control.key, command(0x7f, [0, 0x14, 0x460001, 0], 0, 0x5a, 0));
        const queue = await open({ hostId, queueId: 1, controllerId: control.result });
        return (...parts: Parameters<typeof command>) =>
          (data?: Buffer) =>
            submit(queue.key, command(...parts), data);
      }),
    );
    const [one, other, nobody] = hosts as [(typeof hosts)[0], (typeof hosts)[0], (typeof hosts)[0]];
    const [none, key, newKey] = [Buffer.alloc(8), Buffer.alloc(8, 5), Buffer.alloc(8, 5)];
    expect(await nobody(io.reservationRegister, [0], 16, 1)(Buffer.concat([none, newKey]))).toBe(0x0c);
    expect(await one(io.reservationRegister, [0], 15, 1)(Buffer.alloc(15))).toBe(0x0f);
    expect(await one(io.reservationRegister, [0], 16, 1)(Buffer.concat([none, newKey]))).toBe(0);
    expect(await one(io.reservationAcquire, [1 << 8], 16, 1)(Buffer.concat([key, none]))).toBe(0);
    const block = Buffer.alloc(4096, 7);
    expect(await one(io.write, [0, 0, 0], 4096, 1)(block)).toBe(0);
    expect(await other(io.read, [0, 0, 0], 4096, 0x5a)()).toBe(0);
    expect(await other(io.write, [0, 0, 0], 4096, 1)(block)).toBe(0x83);
    expect(await other(io.reservationReport, [31, 1], 128, 0x5a)()).toBe(0);
    expect(await one(io.reservationRelease, [1 << 8], 8, 1)(key)).toBe(0);
    expect(await other(io.write, [0, 0, 0], 4096, 1)(block)).toBe(0);
  });

  it("gets the status for it, and the next command is served", async () => {
    const { url, device } = await serve("mem");
    const { engine, client, open, submit } = await raw(url);
    expect((await open({ bytes: 512 })).status).toBe(0x0f);
    expect((await open({ opcode: io.read })).status).toBe(0x0c);
    expect((await open({ queueId: 1, controllerId: 77 })).status).toBe(0x182);
    const control = await open();
    expect(control.status).toBe(0);
    expect(await submit(control.key, command(0x7f, [0, 0x14, 0x460001, 0], 0, 0x5a, 0))).toBe(0);
    const queue = await open({ queueId: 1, controllerId: control.result });
    expect(queue.status).toBe(0);
    const block = Buffer.alloc(4096, 7);
    expect(await submit(queue.key, command(io.write, [0, 0, 0], 4096, 1), block)).toBe(0);
    expect(await submit(queue.key, command(io.write, [0, 0, 0], 4096, 1), block.subarray(1))).toBe(0x0f);
    expect(await submit(queue.key, command(io.write, [0, 0, 1], 4096, 1), block)).toBe(0x0f);
    expect(await submit(queue.key, command(io.write, [0, 0, 0], 4096, 0x40), block)).toBe(0x11);
    expect(await submit(queue.key, command(io.read, [0, 0, 0], 4096, 1))).toBe(0x11);
    expect(await submit(queue.key, command(io.read, [0, 0, 0], 8192, 0x5a))).toBe(0x0f);
    expect(await submit(queue.key, command(io.read, [0, 0, 0], 4096, 0x5a), block)).toBe(0x0f);
    expect(await submit(queue.key, command(io.read, [4096, 0, 0], 4096, 0x5a))).toBe(0x80);
    expect(await submit(queue.key, command(io.read, [0, 0, 0], 4096, 0x5a, 9))).toBe(0x0b);
    using memory = engine.expose(Buffer.alloc(4096), { access: "read_write" });
    const moved = async (name: "gather" | "scatter", entry: Buffer) => {
      const input = { capsule: Buffer.concat([queue.key, entry]), memory };
      const answer = Buffer.from(await client[name](input));
      return (answer.readUInt16LE(14) >>> 1) & 0x7ff;
    };
    expect(await moved("gather", command(io.read, [0, 0, 0], 4096, 0x5a))).toBe(0x0f);
    expect(await moved("scatter", command(io.write, [0, 0, 0], 4096, 0x5a))).toBe(0x0f);
    expect(await moved("scatter", command(io.read, [0, 0, 1], 8192, 0x5a))).toBe(0x0f);
    expect(await moved("scatter", command(io.flush, [], 0, 0x5a))).toBe(0x0f);
    expect(await moved("scatter", command(io.read, [0, 0, 0], 4096, 0x5a))).toBe(0);
    expect(memory.bytes.every((byte) => byte === 7)).toBe(true);
    expect(await device.compare(0, block)).toBe(true);
    await control.iterator.return?.();
    // The end of the stream is on its way.
    const refusal = () =>
      submit(queue.key, command(io.flush, [], 0, 0x5a)).catch(({ message }: Error) => message);
    await expect.poll(refusal).toContain("this queue has ended, or never was");
  });

  it("cannot use the queue of another, nor one that never was, nor a capsule that is too short", async () => {
    const { url } = await serve("mem");
    const [one, other] = [await raw(url), await raw(url)];
    const control = await one.open();
    const keepAlive = command(admin.keepAlive, [], 0, 0x5a, 0);
    expect(await one.submit(control.key, keepAlive)).toBe(0);
    await expect(other.submit(control.key, keepAlive)).rejects.toThrow("this queue has ended, or never was");
    await expect(one.submit(Buffer.alloc(8), keepAlive)).rejects.toThrow(
      "this queue has ended, or never was",
    );
    await expect(one.client.submit(Buffer.alloc(71))).rejects.toThrow();
  });

  it("gets no more commands done at once than the queue has entries", async () => {
    const device = memoryDevice({ bytes });
    let finish = () => {};
    const held = new Promise<void>((resolve) => (finish = resolve));
    vi.spyOn(device, "flush").mockImplementation(() => held);
    const { url } = await serve("mem", device);
    const { open, submit } = await raw(url);
    const control = await open();
    await submit(control.key, command(0x7f, [0, 0x14, 0x460001, 0], 0, 0x5a, 0));
    const queue = await open({ queueId: 1, controllerId: control.result });
    const flush = command(io.flush, [], 0, 0x5a);
    const first = [submit(queue.key, flush), submit(queue.key, flush)];
    expect(await submit(queue.key, flush)).toBe(0x82);
    finish();
    expect(await Promise.all(first)).toEqual([0, 0]);
  });
});
