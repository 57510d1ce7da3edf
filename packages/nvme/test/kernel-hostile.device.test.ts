import { randomBytes } from "node:crypto";
import { rdmaConnections } from "cinnabar/inspect";
import { afterAll, describe, expect, it } from "vitest";
import { type BlockDevice, memoryDevice, NvmeTarget } from "../src/index.ts";
import { fabrics, fabricsOpcode, io, sgl } from "../src/nvme/command.ts";
import { connectFields } from "../src/tcp/host.test-support.ts";
import { connect, isGuest, type LinuxHost, mib, run, targetHosts, verify } from "./kernel.test-support.ts";
import {
  type AttackingQueue,
  beginAttack,
  type ExposedMemory,
  type KeyedFields,
  keyedEntry,
  privateDataOf,
  RdmaAttacker,
  readFields,
  writeFields,
} from "./rdma-attacker.test-support.ts";
import { openDisk, Stampers } from "./stamps.test-support.ts";

const nqn = "nqn.2026-11.test:attacked";
const bytes = 96 * mib;
/** Blocks of the honest host. The attacker's commands are valid only behind them. */
const blocks = 512;
const theirs = 80 * 256;
const source = "10.77.1.2";
const limits = { maxHandshakes: 16, maxConnections: 24, handshakeTimeoutMs: 3000, stallTimeoutMs: 3000 };
const flood = process.env.CINNABAR_LONG === "1" ? 500 : 200;
const block = (value: number, length = 4096) => Buffer.alloc(length, value);
const inCapsule = { sglKind: sgl.inCapsule };

/** A target at Soft-RoCE, Linux as its honest host whose writers go on all the time, and an attacker beside it. */
describe.skipIf(!isGuest)("a target of NVMe/RDMA under attack", () => {
  let device: BlockDevice;
  let target: NvmeTarget;
  let port: number;
  let host: LinuxHost;
  let disk: BlockDevice;
  let attacker: RdmaAttacker;
  let memory: ExposedMemory;
  let honest = 0;
  const stampers = new Stampers(blocks, 4);

  /** In the first test, since `expect.poll` works in none of the hooks. */
  async function begin(): Promise<void> {
    device = memoryDevice({ bytes });
    target = NvmeTarget.open({ subsystems: [{ nqn, namespaces: [device], hosts: "any" }] });
    // The least memory for data: the honest host lacks what an attack keeps.
    const dataBytes = 2 * mib;
    ({ port } = await target.listenRdma({ host: targetHosts.rdma, port: 0, dataBytes, ...limits }));
    host = await connect(nqn, [port], ["--keep-alive-tmo=30"], "rdma");
    honest = target.stats().open;
    disk = await openDisk(host.disk, blocks);
    stampers.start(disk);
    attacker = await RdmaAttacker.start(targetHosts.rdma, port, source);
    memory = await attacker.expose(2 * mib);
    await undisturbed();
  }
  afterAll(async () => {
    await attacker?.kill();
    await disk?.close();
    await host?.disconnect();
    await target?.close();
    await device?.close();
  });

  /** The honest host writes and reads on, at the connections that it had. */
  async function undisturbed(): Promise<void> {
    const before = stampers.written;
    await stampers.until(() => stampers.written > before + 50);
    await expect
      .poll(() => target.stats(), { timeout: 30_000 })
      .toMatchObject({ open: honest, controllers: 1 });
  }

  /**
   * Gives the attack a queue of a controller of its own. The queue must be over afterwards, unless the attack ends it.
   */
  async function attack(work: (queue: AttackingQueue) => Promise<void>, entries?: number): Promise<void> {
    const controller = await beginAttack(attacker, nqn, entries);
    await work(controller.io);
    await controller.io.close();
    await controller.admin.close();
    await undisturbed();
  }

  it("serves a host that behaves, so that the attacks are what fails", async () => {
    await begin();
    await attack(async (queue) => {
      const data = randomBytes(8192);
      await attacker.poke(memory, 4096, data);
      expect(await queue.command({ ...writeFields(1, theirs, 8192), memory, at: 4096 })).toMatchObject({
        status: 0,
      });
      expect(await device.compare(theirs * 4096, data)).toBe(true);
      expect(await queue.command({ ...readFields(2, theirs, 8192), memory, at: 65_536 })).toMatchObject({
        status: 0,
      });
      expect(await attacker.peek(memory, 65_536, 8192)).toEqual(data);
      expect(await queue.command({ ...writeFields(3, theirs, 4096), ...inCapsule }, block(3))).toMatchObject({
        id: 3,
        status: 0,
      });
    });
  });

  it.each<[string, KeyedFields, Buffer | undefined, number]>([
    [
      "a kind of descriptor of TCP",
      { ...writeFields(1, theirs, 4096), sglKind: sgl.transport },
      undefined,
      0x11,
    ],
    ["a list of descriptors", { ...readFields(1, theirs, 4096), sglKind: 0x20 }, undefined, 0x11],
    ["a kind that there is not", { ...writeFields(1, theirs, 4096), sglKind: 0xf3 }, undefined, 0x11],
    ["a read into the capsule", { ...readFields(1, theirs, 4096), ...inCapsule }, undefined, 0x11],
    [
      "an offset in the capsule",
      { ...writeFields(1, theirs, 4096), ...inCapsule, sglOffset: 8 },
      block(1),
      0x16,
    ],
    ["less data than it names", { ...writeFields(1, theirs, 4096), ...inCapsule }, block(1, 4000), 0x0f],
    ["data beside memory", writeFields(1, theirs, 4096), block(1, 64), 0x0f],
    ["more bytes than blocks", { ...writeFields(1, theirs, 4096), bytes: 8192 }, undefined, 0x0f],
    ["a read of fewer bytes than blocks", { ...readFields(1, theirs, 4096), bytes: 512 }, undefined, 0x0f],
    ["more than a command may move", writeFields(1, theirs, 2 * mib), undefined, 0x02],
    ["blocks beyond the end", readFields(1, bytes / 4096, 4096), undefined, 0x80],
    ["an opcode that there is not", { opcode: 0x33, id: 1, nsid: 1, bytes: 0 }, undefined, 0x01],
    ["a namespace that there is not", { ...readFields(1, theirs, 4096), nsid: 7 }, undefined, 0x0b],
  ])("answers %s by its status, and serves that queue on", async (_, fields, data, status) => {
    await attack(async (queue) => {
      expect(await queue.command({ ...fields, memory }, data)).toMatchObject({ id: 1, status });
      expect(await queue.command({ ...writeFields(2, theirs, 4096), memory })).toMatchObject({
        id: 2,
        status: 0,
      });
    });
  });

  it.each<[string, (queue: AttackingQueue) => Promise<unknown>]>([
    ["a capsule that is too short", (queue) => queue.send(Buffer.alloc(63))],
    ["a capsule of one byte", (queue) => queue.send(Buffer.alloc(1))],
    ["a capsule that is too long", (queue) => queue.send(Buffer.alloc(64 + 4097))],
    [
      "a write whose key nobody has",
      (queue) => queue.send(keyedEntry({ ...writeFields(1, theirs, 4096), memory, key: 0x7fff_1234 })),
    ],
    [
      "a read whose key nobody has",
      (queue) => queue.send(keyedEntry({ ...readFields(1, theirs, 4096), memory, key: 0x7fff_1234 })),
    ],
    [
      "a write from beyond the memory",
      (queue) => queue.send(keyedEntry({ ...writeFields(1, theirs, 8192), memory, at: 2 * mib - 4096 })),
    ],
    [
      "a read to before the memory",
      (queue) => queue.send(keyedEntry({ ...readFields(1, theirs, 4096), memory, at: -4096 })),
    ],
    [
      "a write from the end of all addresses",
      (queue) => queue.send(keyedEntry({ ...writeFields(1, theirs, 4096), key: memory.key, at: -1 })),
    ],
  ])("ends the queue after %s", async (_, send) => {
    await attack(async (queue) => {
      await queue.receive(1);
      await send(queue);
      expect(await queue.hear()).toBe("over");
    });
  });

  it("ends the queue that uses a key that was withdrawn, or that is of another process", async () => {
    const withdrawn = await attacker.expose(mib);
    await attacker.withdraw(withdrawn);
    await using other = await RdmaAttacker.start(targetHosts.rdma, port, source);
    const foreign = await other.expose(mib);
    for (const used of [withdrawn, foreign])
      for (const fields of [writeFields(1, theirs, 4096), readFields(1, theirs, 4096)])
        await attack(async (queue) => {
          await queue.receive(1);
          await queue.send(keyedEntry({ ...fields, memory: used }));
          expect(await queue.hear()).toBe("over");
        });
    expect(await other.peek(foreign, 0, 4096)).toEqual(Buffer.alloc(4096));
  });

  it("takes more commands than the queue has entries, or ends that queue", async () => {
    await attack(async (queue) => {
      const many = 64;
      await queue.receive(many);
      for (let id = 0; id < many; id++)
        await queue.send(keyedEntry({ ...readFields(id, theirs, mib), memory }));
      for (let id = 0; id < many; id++) {
        const heard = await queue.hear();
        if (heard === "over") return;
        expect(heard.status).toBe(0);
      }
    }, 4);
  });

  it("ends a host that posts no receives for its answers", async () => {
    const { refused } = target.stats();
    await attack(async (queue) => {
      for (let id = 0; id < 8; id++)
        await queue.send(keyedEntry({ ...readFields(id, theirs, 65_536), memory }));
      expect(await queue.hear()).toBe("over");
    });
    expect(target.stats().refused).toBeGreaterThan(refused);
  });

  it("has its memory back from hosts that go while data are on their way", async () => {
    for (let round = 0; round < 8; round++)
      await attack(async (queue) => {
        await queue.receive(8);
        for (let id = 0; id < 8; id++) {
          const fields = id % 2 === 0 ? readFields(id, theirs, mib) : writeFields(id, theirs, mib);
          await queue.send(keyedEntry({ ...fields, memory }));
        }
      });
    // So does a process that is killed.
    await using other = await RdmaAttacker.start(targetHosts.rdma, port, source);
    const far = await other.expose(mib);
    const { io: queue } = await beginAttack(other, nqn);
    for (let id = 0; id < 8; id++)
      await queue.send(keyedEntry({ ...readFields(id, theirs, mib), memory: far }));
    await other.kill();
    await undisturbed();
  });

  it.each<[string, (queueId: number) => Buffer]>([
    ["no private data", () => Buffer.alloc(0)],
    ["one byte of private data", () => Buffer.of(0xff)],
    ["private data of an unknown format", (queueId) => privateDataOf(queueId, 32, 0xffff)],
    ["private data of another queue, and without entries", () => privateDataOf(0x7777, 0)],
    ["random private data", () => randomBytes(48)],
  ])("goes by Connect where a request has %s", async (_, dataOf) => {
    const queue = await attacker.connect(dataOf(0));
    if (queue === undefined) return;
    await queue.receive(1);
    const { entry, data } = connectFields({ nqn: "nqn.2026-11.test:none" });
    await queue.send(entry, data);
    expect(await queue.hear()).toMatchObject({ status: 0x182 });
    expect(await queue.hear()).toBe("over");
    await queue.close();
    await undisturbed();
  });

  it.each<[string, () => readonly Buffer[], number | undefined]>([
    ["another command than Connect", () => [keyedEntry({ opcode: io.flush, id: 0, nsid: 1 })], 0x0c],
    ["too short a Connect", () => [Buffer.alloc(60)], undefined],
    ["a Connect that is too long", () => [connectFields({ nqn }).entry, Buffer.alloc(1025)], undefined],
    ["a Connect with too few data", () => [connectFields({ nqn }).entry, Buffer.alloc(1000)], 0x0f],
    [
      "an I/O queue of a controller that there is not",
      () => Object.values(connectFields({ nqn, queueId: 1, controllerId: 999 })),
      0x182,
    ],
    [
      "a Connect whose data nobody has",
      () => [
        keyedEntry({ opcode: fabricsOpcode, nsid: fabrics.connect, bytes: 1024, memory, key: 0x7fff_1234 }),
      ],
      undefined,
    ],
  ])("ends a connection that begins with %s", async (_, capsule, status) => {
    const queue = await attacker.connect();
    await queue?.receive(1);
    await queue?.send(...capsule());
    if (status !== undefined) expect(await queue?.hear()).toMatchObject({ status });
    expect(await queue?.hear()).toBe("over");
    await queue?.close();
    await undisturbed();
  });

  it("bounds what many connections cost that say nothing, and keeps nothing of them", async () => {
    const rssBytes: number[] = [];
    for (let round = 0; round < 4; round++) {
      for (let asked = 0; asked < flood; asked += 50) {
        const { connected, refused, silent } = await attacker.flood(50);
        expect([connected + refused, silent]).toEqual([50, 0]);
        expect(target.stats().inHandshake).toBeLessThanOrEqual(limits.maxHandshakes);
        await undisturbed();
      }
      await expect.poll(() => target.stats().inHandshake, { timeout: 30_000 }).toBe(0);
      rssBytes.push(process.memoryUsage().rss);
    }
    console.log(`resident: ${rssBytes.map((one) => Math.round(one / mib)).join(", ")} MiB`);
    expect((rssBytes.at(-1) ?? 0) - (rssBytes[0] ?? 0)).toBeLessThan(24 * mib);
    // The listener, and the queues of the honest host.
    const left = () => rdmaConnections().map(({ state }) => state);
    const expected = ["listen", ...Array.from({ length: honest }, () => "connect")];
    await expect.poll(() => left().sort(), { timeout: 30_000 }).toEqual(expected.sort());
  }, 600_000);

  it("has left the honest host as it was", async () => {
    expect(await stampers.stop()).toEqual([]);
    expect(await stampers.wrongBlocks(disk, "acknowledged")).toEqual([]);
    expect(await stampers.wrongBlocks(device, "acknowledged")).toEqual([]);
    // Long transfers need all memory for data.
    await verify(host.disk);
    const messages = await run("dmesg");
    expect(messages).not.toMatch(/nvme.*(reconnect|reset|timeout|error)/i);
  });
});
