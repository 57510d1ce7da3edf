import { once } from "node:events";
import { mkdtemp, rm, truncate } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import type { BlockDevice } from "../device/block-device.ts";
import { openFileDevice } from "../device/file-device.ts";
import { memoryDevice, nullDevice } from "../device/memory-device.ts";
import { admin } from "../nvme/command.ts";
import { Controller } from "../nvme/controller.ts";
import { status } from "../nvme/status.ts";
import { NvmeTarget, type NvmeTargetOptions } from "../nvme/target.ts";
import { ByteReader } from "../socket/byte-reader.ts";
import { type Digests, fatal, pduFlag, pduParts, pduType } from "../tcp/pdu.ts";
import { NvmeHost, type NvmeHostOptions } from "./nvme-host.ts";

const mib = 1024 * 1024;
const bytes = 16 * mib;
const nqn = "nqn.2026-11.test:disk";
const ends: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function serve(
  device: BlockDevice = memoryDevice({ bytes }),
  options: Partial<NvmeTargetOptions> = {},
) {
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
  const target = await NvmeTarget.listen({ subsystems, port: 0, ...options });
  ends.push(() => target.close());
  return { target, device, port: target.address.port };
}

async function connectTo(ports: readonly number[], options: Partial<NvmeHostOptions> = {}) {
  const paths = ports.map((port) => ({ host: "127.0.0.1", port }));
  const host = await NvmeHost.connect({ nqn, paths, reconnectMs: 10, ...options });
  ends.push(() => host.close());
  const [disk] = host.namespaces;
  if (disk === undefined) throw new Error("no namespace");
  return { host, disk };
}

function stamped(length: number, seed: number): Buffer {
  const data = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) data.writeUInt32LE((at * 2_654_435_761 + seed) >>> 0, at);
  return data;
}

async function readOf(disk: BlockDevice, offset: number, length: number): Promise<Buffer> {
  const into = Buffer.alloc(length);
  await disk.read(offset, into);
  return into;
}

/** A device whose writes wait until they are let go, one or all. */
function heldWrites(device: BlockDevice) {
  const held: (() => void)[] = [];
  const write = device.write.bind(device);
  let areHeld = true;
  const spy = vi.spyOn(device, "write").mockImplementation(async (...args) => {
    if (areHeld) await new Promise<void>((resolve) => held.push(resolve));
    return write(...args);
  });
  const release = () => {
    areHeld = false;
    for (const go of held) go();
  };
  return { spy, held, release };
}

/** Targets do not support Cross-Controller Reset, as targets of other projects. */
function withoutEndOther(): void {
  const execute = Controller.prototype.execute;
  vi.spyOn(Controller.prototype, "execute").mockImplementation(function (this: Controller, command) {
    return command.opcode === admin.endOther
      ? Promise.resolve({ status: status.invalidOpcode })
      : execute.call(this, command);
  });
}

/** A way to a target that can be cut: a proxy. */
async function cuttable(port: number) {
  const sockets = new Set<Socket>();
  let isCut = false;
  const server: Server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket
        .on("error", () => {})
        .on("close", () => {
          near.destroy();
          far.destroy();
        });
    }
    if (isCut) near.destroy();
    near.pipe(far);
    far.pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    port: (server.address() as { port: number }).port,
    cut() {
      isCut = true;
      for (const socket of sockets) socket.destroy();
    },
    mend() {
      isCut = false;
    },
  };
}

/** A way to a target on which a host is lost without the target's notice. What was held back comes later. */
async function halfOpen(port: number) {
  const ways: { readonly near: Socket; readonly far: Socket; readonly held: Buffer[] }[] = [];
  let isHolding = false;
  const server: Server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    const way = { near, far, held: [] as Buffer[] };
    ways.push(way);
    for (const socket of [near, far]) socket.on("error", () => {});
    near.on("data", (data) => void (isHolding ? way.held.push(data) : far.write(data)));
    far.on("data", (data) => void (near.writable && near.write(data)));
    far.on("close", () => near.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(async () => {
    for (const { far } of ways) far.destroy();
    server.close();
  });
  return {
    port: (server.address() as { port: number }).port,
    hold() {
      isHolding = true;
    },
    heldBytes: () => ways.flatMap(({ held }) => held).reduce((sum, { length }) => sum + length, 0),
    lose() {
      isHolding = false;
      for (const { near } of ways) near.destroy();
    },
    /** Gives the target what was held back, on the old connections. Says whether it has ended those. */
    deliver() {
      const old = ways.filter(({ held }) => held.length > 0);
      for (const { far, held } of old) for (const data of held) if (far.writable) far.write(data);
      return () => old.every(({ far }) => far.destroyed);
    },
  };
}

describe.each([
  { headerDigest: false, dataDigest: false },
  { headerDigest: true, dataDigest: true },
])("a host, digests %j", (digests) => {
  it("has the namespaces of a target as devices", async () => {
    const { device, port } = await serve();
    const { host, disk } = await connectTo([port], digests);
    expect(disk).toMatchObject({ bytes, blockBytes: 4096, isReadOnly: false, trimsToZero: true, nsid: 1 });
    expect(disk.uuid).toBe(device.uuid);
    // Other hosts write it, too.
    expect(disk.isShared).toBe(true);
    for (const [offset, length] of [
      [4096, 4096],
      [40_960, 16_384],
      [409_600, 20_480],
      [mib, 3 * mib + 4096],
    ] as const) {
      const data = stamped(length, offset);
      await disk.write(offset, data, { fua: length < mib });
      expect((await readOf(disk, offset, length)).equals(data)).toBe(true);
      expect(await device.compare(offset, data)).toBe(true);
      expect(await disk.compare(offset, data)).toBe(true);
      expect(await disk.compare(offset, stamped(length, 1))).toBe(false);
    }
    await disk.flush();
    await disk.writeZeroes(4096, 4096, { fua: true });
    await disk.trim(mib, mib);
    expect(await device.compare(4096, Buffer.alloc(4096))).toBe(true);
    expect(await device.compare(mib, Buffer.alloc(mib))).toBe(true);
    await expect(disk.read(bytes, Buffer.alloc(4096))).rejects.toMatchObject({ code: "out_of_range" });
    await expect(disk.read(1, Buffer.alloc(4096))).rejects.toMatchObject({ code: "unaligned" });
    expect(host.stats()).toMatchObject({
      underWay: 0,
      repeated: 0,
      paths: [{ isConnected: true, connects: 1 }],
    });
    await host.close();
    await expect(disk.flush()).rejects.toMatchObject({ code: "closed" });
  });
});

it("keeps more commands than the queue takes until there is a place", async () => {
  const { device, port } = await serve();
  const { disk } = await connectTo([port], { queueDepth: 2, queues: 3 });
  const blocks = Array.from({ length: 100 }, (_, index) => index);
  await Promise.all(blocks.map((index) => disk.write(4096 * index, stamped(4096, index))));
  for (const index of blocks) expect(await device.compare(4096 * index, stamped(4096, index))).toBe(true);
});

it("speaks twice in the keep-alive time, so that the target keeps its controller", async () => {
  const { port, target } = await serve();
  const execute = vi.spyOn(Controller.prototype, "execute");
  // Long enough for a machine that stands still for seconds.
  const { host } = await connectTo([port], { keepAliveMs: 5000 });
  const beats = () => execute.mock.calls.filter(([{ opcode }]) => opcode === admin.keepAlive).length;
  await expect.poll(beats).toBe(2);
  expect(host.stats().paths[0]?.connects).toBe(1);
  expect(target.stats().controllers).toBe(1);
});

describe("what a target refuses is an error of the device", () => {
  it("for a device without writes, and one without power", async () => {
    const { port } = await serve(memoryDevice({ bytes, isReadOnly: true }));
    const { disk } = await connectTo([port]);
    expect(disk.isReadOnly).toBe(true);
    await expect(disk.write(0, Buffer.alloc(4096))).rejects.toMatchObject({ code: "read_only" });
  });

  it("after repetitions for what may go away", async () => {
    const device = memoryDevice({ bytes });
    const { port } = await serve(device);
    const { host, disk } = await connectTo([port]);
    const flush = vi.spyOn(device, "flush");
    flush.mockRejectedValueOnce(new Error("once"));
    await disk.flush();
    expect(host.stats().repeated).toBe(1);
    flush.mockRejectedValue(new Error("always"));
    await expect(disk.flush()).rejects.toMatchObject({ code: "io" });
    expect(flush).toHaveBeenCalledTimes(8);
  });
});

describe("an operation that is given up", () => {
  it("rejects with the reason, frees its buffer, and the next one is served", async () => {
    const device = memoryDevice({ bytes });
    const { held } = heldWrites(device);
    const { port } = await serve(device);
    const { host, disk } = await connectTo([port], { queueDepth: 1 });
    const controller = new AbortController();
    const writing = disk.write(0, stamped(4096, 1), { signal: controller.signal });
    await expect.poll(() => held.length).toBe(1);
    // One write waits for a place in the queue.
    const waiting = disk.write(4096, stamped(4096, 2), { signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(writing).rejects.toThrow("enough");
    await expect(waiting).rejects.toThrow("enough");
    await expect(disk.read(0, Buffer.alloc(4096), { signal: controller.signal })).rejects.toThrow("enough");
    const flushed = disk.flush();
    held[0]?.();
    await flushed;
    expect(host.stats()).toMatchObject({ underWay: 0, repeated: 0 });
    // The write that waited was never sent.
    expect(await device.compare(4096, Buffer.alloc(4096))).toBe(true);
  });

  it("sends the data of then when the target asks for them later", async () => {
    const device = memoryDevice({ bytes });
    const { release } = heldWrites(device);
    const { port } = await serve(device, { maxBytesPerConnection: mib });
    const { host, disk } = await connectTo([port]);
    // One takes all memory of the target, so that it does not ask for the data of the next.
    const first = disk.write(mib, Buffer.alloc(mib));
    const controller = new AbortController();
    const data = stamped(65_536, 3);
    const second = disk.write(0, data, { signal: controller.signal });
    await expect.poll(() => host.stats().underWay).toBe(2);
    controller.abort(new Error("enough"));
    await expect(second).rejects.toThrow("enough");
    data.fill(0xff);
    release();
    await first;
    await expect.poll(() => device.compare(0, stamped(65_536, 3))).toBe(true);
  });
});

describe("a path that is lost", () => {
  it("is connected again, and what had no answer is repeated: reads and writes", async () => {
    const { device, port } = await serve();
    const way = await cuttable(port);
    const { host, disk } = await connectTo([way.port]);
    await disk.write(0, stamped(4096, 1));
    const { held, spy } = heldWrites(device);
    const writing = disk.write(8192, stamped(4096, 2));
    await expect.poll(() => held.length).toBe(1);
    way.cut();
    const reading = readOf(disk, 0, 4096);
    held[0]?.();
    way.mend();
    await expect.poll(() => held.length).toBe(2);
    held[1]?.();
    await writing;
    expect((await reading).equals(stamped(4096, 1))).toBe(true);
    expect(await device.compare(8192, stamped(4096, 2))).toBe(true);
    expect(spy).toHaveBeenCalledTimes(2);
    expect(host.stats().paths[0]).toMatchObject({ isConnected: true, lastError: expect.any(Error) });
  });

  it("gives its commands to another path: reads at once, a write in doubt when the target has ended it", async () => {
    const shared = memoryDevice({ bytes });
    const [first, second] = [await serve(shared), await serve(shared)];
    const way = await cuttable(first.port);
    const { host, disk } = await connectTo([way.port, second.port], { keepAliveMs: 0 });
    await expect.poll(() => host.stats().paths.every(({ isConnected }) => isConnected)).toBe(true);
    const { held } = heldWrites(shared);
    let isWritten = false;
    const writing = disk.write(0, stamped(4096, 1)).then(() => (isWritten = true));
    await expect.poll(() => held.length).toBe(1);
    way.cut();
    expect((await readOf(disk, 0, 4096)).equals(Buffer.alloc(4096))).toBe(true);
    await disk.flush();
    // Without keep-alive only the first path can confirm that the earlier write does not happen any more.
    expect([held.length, isWritten]).toEqual([1, false]);
    held[0]?.();
    way.mend();
    await expect.poll(() => held.length).toBe(2);
    held[1]?.();
    await writing;
    expect(await shared.compare(0, stamped(4096, 1))).toBe(true);
  });

  it("gives a write in doubt to another path when twice the keep-alive time has gone", async () => {
    const shared = memoryDevice({ bytes });
    const [first, second] = [await serve(shared), await serve(shared)];
    const way = await cuttable(first.port);
    const { host, disk } = await connectTo([way.port, second.port], { keepAliveMs: 500 });
    await expect.poll(() => host.stats().paths.every(({ isConnected }) => isConnected)).toBe(true);
    const { held, release, spy } = heldWrites(shared);
    const writing = disk.write(0, stamped(4096, 1));
    await expect.poll(() => held.length).toBe(1);
    way.cut();
    const lostMs = performance.now();
    release();
    await writing;
    expect(performance.now() - lostMs).toBeGreaterThan(990);
    expect(spy.mock.calls.length).toBeGreaterThan(1);
    expect(host.stats().paths[0]?.isConnected).toBe(false);
  });

  describe("without the target's notice", () => {
    /** Loses a write on its way. Gives what says whether a late one is refused, when a newer write is there. */
    async function lateWrite(options: Partial<NvmeHostOptions>) {
      const { device, target, port } = await serve();
      const way = await halfOpen(port);
      const { disk } = await connectTo([way.port], options);
      const spy = vi.spyOn(device, "write");
      way.hold();
      const writing = disk.write(0, stamped(4096, 1));
      await expect.poll(way.heldBytes).toBeGreaterThan(4096);
      const lostMs = performance.now();
      way.lose();
      await writing;
      const doneMs = performance.now();
      await disk.write(0, stamped(4096, 2));
      const hasEnded = way.deliver();
      await expect.poll(() => hasEnded() || spy.mock.calls.length > 2).toBe(true);
      expect(await device.compare(0, stamped(4096, 2))).toBe(true);
      await expect.poll(() => target.stats().controllers).toBe(1);
      return doneMs - lostMs;
    }

    it("has it end what was there, so that a write on its way does not come after a newer one", async () => {
      await lateWrite({ keepAliveMs: 0 });
    });

    it("waits for twice the keep-alive time where the target does not do that", async () => {
      withoutEndOther();
      expect(await lateWrite({ keepAliveMs: 400 })).toBeGreaterThan(790);
    });

    it("gives a write up where the target does neither", async () => {
      withoutEndOther();
      const writing = lateWrite({ keepAliveMs: 0, lossTimeoutMs: 300 });
      await expect(writing).rejects.toMatchObject({
        code: "io",
        message: "no target has ended what was lost 300 ms ago; the target may have done it",
      });
    });

    it("has it end what was there by another path", async () => {
      const { device, port } = await serve();
      const way = await cuttable(port);
      const { host, disk } = await connectTo([way.port, port], { keepAliveMs: 0 });
      await expect.poll(() => host.stats().paths.every(({ isConnected }) => isConnected)).toBe(true);
      const { held, release } = heldWrites(device);
      const writing = disk.write(0, stamped(4096, 1));
      await expect.poll(() => held.length).toBe(1);
      way.cut();
      release();
      await writing;
      expect(host.stats().paths.map(({ isConnected }) => isConnected)).toEqual([false, true]);
    });
  });

  it("ends operations when none has been connected for too long, and says that a write may be done", async () => {
    const device = memoryDevice({ bytes });
    const { port } = await serve(device);
    const way = await cuttable(port);
    const { disk } = await connectTo([way.port], { lossTimeoutMs: 100 });
    const { held } = heldWrites(device);
    const writing = disk.write(0, stamped(4096, 1));
    await expect.poll(() => held.length).toBe(1);
    way.cut();
    held[0]?.();
    await expect(writing).rejects.toMatchObject({
      code: "io",
      message: expect.stringMatching(/^no path to \S+ for 100 ms: .*; the target may have done it$/),
    });
    await expect(disk.flush()).rejects.toThrow(/^no path to (?!.*may have)/);
  });

  it("is not used when it leads to another disk afterwards", async () => {
    const { target, port } = await serve();
    const way = await cuttable(port);
    const { host, disk } = await connectTo([way.port], { lossTimeoutMs: 200 });
    await target.close();
    const subsystems = [{ nqn, namespaces: [memoryDevice({ bytes: 2 * bytes })], hosts: "any" as const }];
    const other = await NvmeTarget.listen({ subsystems, port });
    ends.push(() => other.close());
    const why = "this path leads to other namespaces than the first one";
    await expect.poll(() => host.stats().paths[0]?.lastError?.message).toContain(why);
    await expect(disk.flush()).rejects.toThrow(why);
    expect(host.stats().paths[0]?.isConnected).toBe(false);
  });

  it("for a target that is silent: after the time of a command", async () => {
    const device = memoryDevice({ bytes });
    const { port } = await serve(device);
    const { host, disk } = await connectTo([port], { timeoutMs: 200 });
    const flush = vi.spyOn(device, "flush");
    let finish = () => {};
    flush.mockImplementationOnce(() => new Promise<void>((resolve) => (finish = resolve)));
    const flushing = disk.flush();
    await expect
      .poll(() => host.stats().paths[0]?.lastError?.message)
      .toMatch(/did not answer a command within 200 ms/);
    finish();
    await flushing;
  });
});

describe("what cannot be connected", () => {
  it("says why, path by path", async () => {
    const subsystems = [{ nqn, namespaces: [nullDevice({ bytes })], hosts: ["nqn.2026-11.test:friend"] }];
    const { port } = await serve(undefined, { subsystems });
    await expect(connectTo([port])).rejects.toThrow(
      "the target refused Connect: it does not admit this host",
    );
    await connectTo([port], { hostNqn: "nqn.2026-11.test:friend" });
    await expect(connectTo([port], { nqn: `${nqn}x` })).rejects.toThrow("it has no such subsystem");
    await expect(connectTo([1])).rejects.toThrow(
      /^NvmeHost\.connect: no path to \S+: 127\.0\.0\.1:1: .*ECONNREFUSED/,
    );
  });

  it.each<[object, string]>([
    [{ nqn }, "NvmeHost.connect: paths is missing"],
    [{ nqn: "disk", paths: [{ host: "a" }] }, "NvmeHost.connect: nqn must be an NVMe qualified name"],
    [{ nqn, paths: [] }, "paths must be an array of 1 to 16 items, it has 0"],
    [{ nqn, paths: [{ port: 1 }] }, "NvmeHost.connect: paths[0].host is missing"],
    [{ nqn, paths: [{ host: "a", port: 70_000 }] }, "paths[0].port must be an integer from 1 to 65535"],
    [{ nqn, paths: [{ host: "a" }], queueDepth: 0 }, "queueDepth must be an integer from 1 to 1023"],
  ])("%# is refused", async (options, message) => {
    await expect(NvmeHost.connect(options as NvmeHostOptions)).rejects.toThrow(message);
  });
});

it("lists what a discovery service has for a host", async () => {
  const hosts = ["nqn.2026-11.test:friend"];
  const subsystems = [
    { nqn, namespaces: [nullDevice({ bytes })], hosts },
    { nqn: `${nqn}-2`, namespaces: [nullDevice({ bytes })], hosts: "any" as const },
  ];
  const { port } = await serve(undefined, { subsystems });
  const address = { transport: "tcp", host: "127.0.0.1", service: String(port) };
  const at = { host: "127.0.0.1", port };
  expect(
    await NvmeHost.discover({ ...at, headerDigest: true, dataDigest: true, hostNqn: hosts[0] ?? "" }),
  ).toEqual([
    { nqn, ...address },
    { nqn: `${nqn}-2`, ...address },
  ]);
  expect(await NvmeHost.discover(at)).toEqual([{ nqn: `${nqn}-2`, ...address }]);
  await expect(NvmeHost.discover({ host: "127.0.0.1", port: 1 })).rejects.toThrow(
    "NvmeHost.discover: 127.0.0.1:1: ",
  );
});

/** A correct target until a command of the I/O queue comes, which `answer` answers. */
async function hostileTarget(digests: Digests, answer: (send: Send, id: number, end: () => void) => void) {
  const { port } = await serve();
  let queues = 0;
  const terminations: { fes: number; fei: number }[] = [];
  const server = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    near.on("error", () => {}).on("close", () => far.destroy());
    far.on("error", () => {}).on("close", () => near.destroy());
    far.pipe(near);
    if (queues++ % 2 === 0) {
      near.pipe(far);
      return;
    }
    void (async () => {
      const reader = new ByteReader(near);
      // ICReq, and Connect with 1024 bytes of data.
      for (const length of [128, 72 + 1024 + (digests.header ? 4 : 0) + (digests.data ? 4 : 0)]) {
        const passed = Buffer.alloc(length);
        if (!(await reader.readInto(passed))) return;
        far.write(passed);
      }
      for (;;) {
        const head = await reader.read(8);
        if (head === undefined) return;
        const [type, length] = [head.readUInt8(0), head.readUInt32LE(4)];
        const rest = Buffer.from((await reader.readRest(length - 8)) ?? []);
        if (type === pduType.h2cTermReq) {
          terminations.push({ fes: rest.readUInt16LE(0), fei: rest.readUInt32LE(2) });
          near.destroy();
          return;
        }
        const send: Send = (kind, flags, fill, data, change) => {
          const header = Buffer.alloc(24);
          fill(header);
          const message = Buffer.concat(pduParts(kind, flags, header, digests, data));
          change?.(message);
          near.write(message);
        };
        if (type === pduType.capsuleCmd) answer(send, rest.readUInt16LE(2), () => near.destroy());
      }
    })();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(async () => server.close());
  return { port: (server.address() as { port: number }).port, terminations };
}

type Send = (
  kind: number,
  flags: number,
  fill: (header: Buffer) => void,
  data?: Buffer,
  change?: (message: Buffer) => void,
) => void;

describe("a target that breaks the protocol loses its connection by TermReq, and the buffer keeps what it had", () => {
  const data = (id: number, offset: number, length: number) => (header: Buffer) => {
    header.writeUInt16LE(id, 8);
    header.writeUInt32LE(offset, 12);
    header.writeUInt32LE(length, 16);
  };
  const block = Buffer.alloc(4096, 0xee);
  const { c2hData, capsuleResp, r2t } = pduType;
  it.each<[string, number, number, (send: Send, id: number) => void]>([
    [
      "data of an unknown command",
      fatal.field,
      8,
      (send, id) => send(c2hData, 4, data(id + 1, 0, 4096), block),
    ],
    ["data beyond the request", fatal.range, 12, (send, id) => send(c2hData, 4, data(id, 4096, 4096), block)],
    [
      "data longer than the request",
      fatal.range,
      12,
      (send, id) => send(c2hData, 4, data(id, 0, 8192), Buffer.alloc(8192, 0xee)),
    ],
    ["another length of data", fatal.field, 16, (send, id) => send(c2hData, 4, data(id, 0, 512), block)],
    [
      "data that are not said to be the last",
      fatal.field,
      1,
      (send, id) => send(c2hData, 0, data(id, 0, 4096), block),
    ],
    [
      "data that end too early",
      fatal.field,
      1,
      (send, id) => send(c2hData, 4, data(id, 0, 2048), block.subarray(0, 2048)),
    ],
    [
      "success without data",
      fatal.sequence,
      0,
      (send, id) => send(capsuleResp, 0, (header) => header.writeUInt16LE(id, 20)),
    ],
    [
      "an answer to nothing",
      fatal.field,
      20,
      (send, id) => send(capsuleResp, 0, (header) => header.writeUInt16LE(id + 9, 20)),
    ],
    ["a request for data of a read", fatal.field, 8, (send, id) => send(r2t, 0, data(id, 0, 4096))],
    ["an unknown type", fatal.field, 0, (send) => send(0x55, 0, () => {})],
    ["a type of the host", fatal.sequence, 0, (send) => send(pduType.h2cData, 4, () => {}, block)],
    [
      "a PDU that is too short",
      fatal.field,
      4,
      (send, id) =>
        send(
          capsuleResp,
          0,
          (header) => header.writeUInt16LE(id, 20),
          undefined,
          (message) => message.writeUInt32LE(9, 4),
        ),
    ],
    [
      "a PDU that is too long",
      fatal.field,
      4,
      (send, id) =>
        send(
          capsuleResp,
          0,
          (header) => header.writeUInt16LE(id, 20),
          undefined,
          (message) => message.writeUInt32LE(2 ** 31, 4),
        ),
    ],
  ])("%s", async (_, fes, fei, answer) => {
    const digests = { header: true, data: true };
    const { port, terminations } = await hostileTarget(digests, answer);
    const { disk } = await connectTo([port], {
      ...{ headerDigest: true, dataDigest: true, lossTimeoutMs: 1 },
      reconnectMs: 60_000,
    });
    const into = Buffer.alloc(4096, 1);
    await expect(disk.read(0, into)).rejects.toThrow(/the target broke the protocol: wrong/);
    await expect.poll(() => terminations).toEqual([{ fes, fei }]);
    expect(into.equals(Buffer.alloc(4096, 1))).toBe(true);
  });

  it("another digest of a header; one of data alone is repeated until it is given up", async () => {
    const wrong = await hostileTarget({ header: true, data: true }, (send, id) =>
      send(c2hData, 4, data(id, 0, 4096), block, (message) => message.writeUInt8((message[24] ?? 0) ^ 1, 24)),
    );
    const { disk } = await connectTo([wrong.port], {
      ...{ headerDigest: true, dataDigest: true, lossTimeoutMs: 1 },
      reconnectMs: 60_000,
    });
    await expect(disk.read(0, Buffer.alloc(4096))).rejects.toThrow("digest of a header");
    await expect.poll(() => wrong.terminations).toMatchObject([{ fes: fatal.headerDigest }]);
    let answers = 0;
    const damaged = await hostileTarget({ header: false, data: true }, (send, id) => {
      answers++;
      const isRight = answers === 3;
      send(c2hData, pduFlag.last | pduFlag.success, data(id, 0, 4096), block, (message) => {
        if (!isRight) message.writeUInt8((message.at(-1) ?? 0) ^ 1, message.length - 1);
      });
    });
    const second = await connectTo([damaged.port], { dataDigest: true });
    expect((await readOf(second.disk, 0, 4096)).equals(block)).toBe(true);
    expect(answers).toBe(3);
    expect(second.host.stats().repeated).toBe(2);
  });
});

it("a namespace grows with its device, and stays one disk on a path that comes later", async () => {
  const folder = await mkdtemp(join(tmpdir(), "cinnabar-resize-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, "disk.img");
  await using device = await openFileDevice(path, { bytes: 65_536 });
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
  const target = await NvmeTarget.listen({ subsystems, port: 0 });
  const host = await NvmeHost.connect({ nqn, paths: [target.address], reconnectMs: 10 });
  const [disk] = host.namespaces;
  await truncate(path, 131_072);
  await device.grow();
  target.resized();
  await expect.poll(() => disk?.bytes).toBe(131_072);
  await disk?.write(126_976, Buffer.alloc(4096, 3));
  await target.close();
  await truncate(path, 196_608);
  await device.grow();
  await using again = await NvmeTarget.listen({ subsystems, port: target.address.port });
  await expect.poll(() => disk?.bytes).toBe(196_608);
  await disk?.write(192_512, Buffer.alloc(4096, 4));
  expect(await device.compare(192_512, Buffer.alloc(4096, 4))).toBe(true);
  await host.close();
  expect(again.stats().refused).toBe(0);
});

// Node cannot reset a socket that is being shut down. It would keep the handle, and the process would not end.
it("a connection that its target ends under a command leaves no socket", async () => {
  const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === "TCPSocketWrap").length;
  const before = sockets();
  const none = { header: false, data: false };
  const hostile = await hostileTarget(none, (_send, _id, end) => end());
  const { host, disk } = await connectTo([hostile.port], { reconnectMs: 60_000 });
  const written = disk.write(0, Buffer.alloc(4096));
  await expect.poll(() => host.stats().paths[0]?.isConnected).toBe(false);
  const refused = expect(written).rejects.toThrow();
  await host.close();
  await refused;
  for (const end of ends.splice(0).reverse()) await end();
  await expect.poll(sockets).toBeLessThanOrEqual(before);
});

it("a target that does not speak NVMe/TCP is refused", async () => {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(async () => server.close());
  const { port } = server.address() as { port: number };
  await expect(connectTo([port])).rejects.toThrow("the answer is not that of NVMe/TCP");
});
