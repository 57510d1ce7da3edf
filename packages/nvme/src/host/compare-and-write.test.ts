import { Engine } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Capsules, dataAt } from "../calls/capsule-service.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { io, newEntry } from "../nvme/command.ts";
import { NvmeTarget } from "../nvme/target.ts";
import { NvmeHost, type NvmeHostOptions, type NvmePath } from "./nvme-host.ts";

const mib = 1024 * 1024;
const nqn = "nqn.2026-11.test:disk";
const ends: (() => Promise<unknown>)[] = [];
let names = 0;

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A target that is reached by one transport; `path` is new for each host. */
async function serve(transport: string) {
  const device = memoryDevice({ bytes: 16 * mib });
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
  if (transport === "nvme-tcp") {
    const target = await NvmeTarget.listen({ subsystems, port: 0 });
    ends.push(() => target.close());
    return { device, target, path: async (): Promise<NvmePath> => target.address };
  }
  const target = NvmeTarget.open({ subsystems });
  ends.push(() => target.close());
  const listen = transport === "tcp" ? "tcp://127.0.0.1:0" : `${transport}://fused-${process.pid}-${names++}`;
  const server = await Engine.open({ listen, serve: [target.capsules] });
  ends.push(() => server.close());
  const url = server.urls[0] as string;
  const path = async (): Promise<NvmePath> => {
    const engine = await Engine.open();
    ends.push(() => engine.close());
    return { engine, url };
  };
  return { device, target, path };
}

async function connectTo(path: NvmePath, options: Partial<NvmeHostOptions> = {}) {
  const host = await NvmeHost.connect({ nqn, paths: [path], reconnectMs: 10, ...options });
  ends.push(() => host.close());
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("no namespace");
  return { host, disk };
}

const filled = (value: number, length = 4096) => Buffer.alloc(length, value);

describe.each(["nvme-tcp", "mem", "shm", "tcp"])("compareAndWrite of a host over %s", (transport) => {
  it("writes where the blocks are as expected, short and long ones", async () => {
    const { device, path } = await serve(transport);
    const { disk } = await connectTo(await path(), { headerDigest: true, dataDigest: true });
    for (const length of [4096, 12_288, 65_536, mib / 2]) {
      await disk.write(4096, filled(1, length));
      expect(await disk.compareAndWrite(4096, filled(2, length), filled(3, length))).toBe(false);
      expect(await device.compare(4096, filled(1, length))).toBe(true);
      expect(await disk.compareAndWrite(4096, filled(1, length), filled(3, length), { fua: true })).toBe(
        true,
      );
      expect(await device.compare(4096, filled(3, length))).toBe(true);
    }
    expect(await disk.compareAndWrite(0, filled(0, 0), filled(0, 0))).toBe(true);
    await expect(disk.compareAndWrite(0, filled(0, mib), filled(0, mib))).rejects.toMatchObject({
      code: "out_of_range",
      message: "namespace 1: compareAndWrite: the target takes at most 524288 bytes, these are 1048576",
    });
    vi.spyOn(device, "compareAndWrite").mockRejectedValueOnce(new Error("broken"));
    await expect(disk.compareAndWrite(0, filled(0), filled(1))).rejects.toMatchObject({ code: "io" });
    expect(await disk.compareAndWrite(0, filled(0), filled(1))).toBe(true);
  });

  it("counts exactly when two hosts race", async () => {
    const { device, path } = await serve(transport);
    const disks = [(await connectTo(await path())).disk, (await connectTo(await path())).disk];
    const each = 50;
    let lost = 0;
    await Promise.all(
      [...disks, ...disks].map(async (disk) => {
        const before = Buffer.alloc(4096);
        for (let count = 0; count < each; ) {
          await disk.read(8192, before);
          const after = Buffer.from(before);
          after.writeUInt32LE(before.readUInt32LE(0) + 1, 0);
          if (await disk.compareAndWrite(8192, before, after)) count++;
          else lost++;
        }
      }),
    );
    const found = Buffer.alloc(4096);
    await device.read(8192, found);
    expect(found.readUInt32LE(0)).toBe(4 * each);
    // They did race.
    expect(lost).toBeGreaterThan(0);
  });

  it("takes turns with itself in a queue of two, and needs that", async () => {
    const { device, path } = await serve(transport);
    const { disk } = await connectTo(await path(), { queueDepth: 2 });
    await Promise.all(
      Array.from({ length: 20 }, (_, index) => [
        disk.compareAndWrite(4096 * index, filled(0), filled(index + 1)),
        disk.write(65_536 * (index + 2), filled(index)),
      ]).flat(),
    );
    for (let index = 0; index < 20; index++)
      expect(await device.compare(4096 * index, filled(index + 1))).toBe(true);
    const { disk: narrow } = await connectTo(await path(), { queueDepth: 1 });
    await expect(narrow.compareAndWrite(0, filled(0), filled(1))).rejects.toMatchObject({
      code: "unsupported",
      message: "namespace 1: compareAndWrite: the target does not have it for this queue",
    });
  });

  it("is not repeated when its target goes after it was sent: it may be done", async () => {
    const { device, target, path } = await serve(transport);
    const { host, disk } = await connectTo(await path(), { reconnectMs: 60_000, lossTimeoutMs: 60_000 });
    let finish = () => {};
    const held = new Promise<void>((resolve) => (finish = resolve));
    const compareAndWrite = device.compareAndWrite.bind(device);
    const spy = vi.spyOn(device, "compareAndWrite").mockImplementation(async (...args) => {
      const isWritten = await compareAndWrite(...args);
      await held;
      return isWritten;
    });
    const writing = disk.compareAndWrite(0, filled(0), filled(1));
    writing.catch(() => {});
    await expect.poll(() => spy.mock.calls.length).toBe(1);
    const closed = target.close();
    await expect(writing).rejects.toMatchObject({
      code: "io",
      message: expect.stringMatching(/; the target may have done it$/),
    });
    finish();
    await closed;
    expect(host.stats().repeated).toBe(0);
    expect(await device.compare(0, filled(1))).toBe(true);
  });

  it("is given up by a signal", async () => {
    const { device, path } = await serve(transport);
    const { disk } = await connectTo(await path());
    let finish = () => {};
    const held = new Promise<void>((resolve) => (finish = resolve));
    const spy = vi.spyOn(device, "compareAndWrite").mockImplementation(async () => {
      await held;
      return true;
    });
    const controller = new AbortController();
    const { signal } = controller;
    const writing = disk.compareAndWrite(0, filled(0), filled(1), { signal });
    writing.catch(() => {});
    await expect.poll(() => spy.mock.calls.length).toBe(1);
    controller.abort(new Error("enough"));
    await expect(writing).rejects.toThrow("enough");
    finish();
    await disk.flush();
  });
});

it("fused commands in calls that are wrong get their statuses", async () => {
  const { device, target } = await serve("mem");
  const server = await Engine.open({ listen: `mem://fused-raw-${names++}`, serve: [target.capsules] });
  ends.push(() => server.close());
  const engine = await Engine.open();
  ends.push(() => engine.close());
  const client = (await engine.connect(server.urls[0] as string)).client(Capsules);
  const open = async (queueId: number, controllerId: number) => {
    const data = Buffer.alloc(1024);
    data.writeUInt16LE(controllerId, 16);
    data.write(nqn, 256);
    data.write("nqn.2026-11.test:host", 512);
    const entry = newEntry(0x7f, 1, [queueId * 65_536, 31, 0]);
    entry.writeUInt32LE(1024, 32);
    entry[39] = 1;
    const items = client.open(Buffer.concat([Buffer.alloc(8), entry, data]))[Symbol.asyncIterator]();
    const answer = Buffer.from((await items.next()).value ?? []);
    return { key: answer.subarray(dataAt.answer), result: answer.readUInt16LE(0) };
  };
  const control = await open(0, 0xffff);
  await client.submit(Buffer.concat([control.key, newEntry(0x7f, 0, [0, 0x14, 0x460001, 0])]));
  const { key } = await open(1, control.result);

  const half = (opcode: number, flags: number, at: number, { first = 0, bytes = 4096, kind = 1 } = {}) => {
    const entry = newEntry(opcode, 1, [first, 0, 0]);
    entry[1] = flags;
    entry.writeBigUInt64LE(BigInt(at), 24);
    entry.writeUInt32LE(bytes, 32);
    entry[39] = kind;
    return entry;
  };
  const statuses = (answers: Uint8Array) =>
    [14, 30].map((at) => (Buffer.from(answers).readUInt16LE(at) >>> 1) & 0x7ff);
  const compare = half(io.compare, 0x41, 0);
  const write = half(io.write, 0x42, 4096);
  const data = Buffer.concat([filled(0), filled(7)]);
  const fuse = async (one: Buffer, other: Buffer, inCapsule = data, by = key) =>
    statuses(await client.fuse(Buffer.concat([by, one, other, inCapsule])));
  expect(await fuse(compare, half(io.write, 0x42, 4096, { first: 2 }))).toEqual([0x02, 0x02]);
  expect(await fuse(compare, half(io.compare, 0x42, 4096))).toEqual([0x02, 0x02]);
  expect(await fuse(compare, half(io.write, 0x40, 4096))).toEqual([0x0a, 0x0a]);
  expect(await fuse(write, compare)).toEqual([0x0a, 0x0a]);
  expect(await fuse(compare, half(io.write, 0x42, 0))).toEqual([0x09, 0x16]);
  expect(await fuse(compare, half(io.write, 0x42, 4096, { kind: 0x5a }))).toEqual([0x09, 0x11]);
  expect(await fuse(compare, half(io.write, 0x42, 4096, { bytes: 512 }))).toEqual([0x09, 0x0f]);
  expect(await fuse(compare, write, data.subarray(1))).toEqual([0x0f, 0x0f]);
  expect(await fuse(compare, write, data, control.key)).toEqual([0x02, 0x02]);
  const alone = async (entry: Buffer) => {
    const answer = Buffer.from(await client.submit(Buffer.concat([key, entry, filled(7)])));
    return (answer.readUInt16LE(14) >>> 1) & 0x7ff;
  };
  expect(await alone(compare)).toBe(0x0a);
  expect(await alone(half(io.write, 0x42, 0))).toBe(0x0a);
  using memory = engine.expose(Buffer.alloc(4096), { access: "read" });
  const long = Buffer.concat([key, ...[compare, write].map((entry) => Buffer.from(entry))]);
  for (const at of [8, 72]) long[at + 39] = 0x5a;
  expect(statuses(await client.gatherFused({ capsule: long, memory }))).toEqual([0x0f, 0x0f]);
  expect(await device.compare(0, filled(0, 65_536))).toBe(true);
  expect(await fuse(compare, write)).toEqual([0, 0]);
  expect(await device.compare(0, filled(7))).toBe(true);
});
