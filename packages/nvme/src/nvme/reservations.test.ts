import { existsSync } from "node:fs";
import { type FileHandle, mkdir, mkdtemp, open, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { BlockDevice } from "../device/block-device.ts";
import { openFileDevice } from "../device/file-device.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { blocksOf, commandEntry, HostQueue } from "../tcp/host.test-support.ts";
import { pduType } from "../tcp/pdu.ts";
import { io, parseCommand, sgl } from "./command.ts";
import { Reservations, reservationType } from "./reservations.ts";
import { NvmeTarget } from "./target.ts";

const bytes = 1024 * 1024;
const nqn = "nqn.2026-11.test:disk";
const conflict = 0x83;
const invalidField = 2;
const targets: NvmeTarget[] = [];
let folder = "";

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-reservations-"));
});
afterEach(async () => {
  for (const target of targets.splice(0)) await target.close();
  await rm(folder, { recursive: true });
});

async function serve(device: BlockDevice = memoryDevice({ bytes })) {
  const target = await NvmeTarget.listen({
    subsystems: [{ nqn, namespaces: [device], hosts: "any" }],
    port: 0,
  });
  targets.push(target);
  return target;
}

/** A host of its own, by its identifier, with one I/O queue. */
async function hostOf(target: NvmeTarget, hostId: number) {
  const { port } = target.address;
  const control = await HostQueue.open(port);
  await control.greet();
  const fields = { hostId, host: `nqn.2026-11.test:host-${hostId}` };
  const controllerId = Number((await control.connect(fields)).result);
  await control.setProperty(0x14, 0x460001);
  const queue = await HostQueue.open(port);
  await queue.greet();
  expect((await queue.connect({ ...fields, queueId: 1, entries: 64, controllerId })).status).toBe(0);
  return new TestHost(control, queue);
}

interface Registration {
  readonly action?: number;
  readonly ignoresKey?: boolean;
  readonly keeps?: number;
  readonly key?: bigint;
  readonly newKey?: bigint;
}

class TestHost {
  readonly control: HostQueue;
  readonly queue: HostQueue;

  constructor(control: HostQueue, queue: HostQueue) {
    this.control = control;
    this.queue = queue;
  }

  register({ action = 0, ignoresKey = false, keeps = 0, key = 0n, newKey = 0n }: Registration) {
    const word = action + (ignoresKey ? 8 : 0) + keeps * 2 ** 30;
    return this.#send(io.reservationRegister, word, [key, newKey]);
  }

  acquire(type: number, key: bigint, { action = 0, preemptKey = 0n, word = 0 } = {}) {
    return this.#send(io.reservationAcquire, action + (type << 8) + word, [key, preemptKey]);
  }

  preempt(type: number, key: bigint, preemptKey: bigint) {
    return this.acquire(type, key, { action: 1, preemptKey });
  }

  release(type: number, key: bigint, { action = 0, word = 0 } = {}) {
    return this.#send(io.reservationRelease, action + (type << 8) + word, [key]);
  }

  clear(key: bigint) {
    return this.release(0, key, { action: 1 });
  }

  async report() {
    const answer = await this.queue.command({
      ...{ opcode: io.reservationReport, nsid: 1, bytes: 4096, words: [1023, 1] },
    });
    expect(answer.status).toBe(0);
    const { data } = answer;
    const hosts = Array.from({ length: data.readUInt16LE(5) }, (_, index) => {
      const at = 64 * (index + 1);
      expect(data.readUInt16LE(at)).toBe(0xffff);
      return {
        host: data.readUInt8(at + 16),
        key: data.readBigUInt64LE(at + 8),
        isHolder: data.readUInt8(at + 2) === 1,
      };
    });
    return {
      ...{ generation: data.readUInt32LE(0), type: data.readUInt8(4), isKept: data.readUInt8(9) === 1 },
      hosts,
    };
  }

  /** The status of a command on the first block. */
  async status(name: keyof typeof commands): Promise<number> {
    const { queue } = this;
    const block = Buffer.alloc(4096);
    switch (name) {
      case "read":
        return (await queue.read(0, 4096)).status;
      case "write":
        return (await queue.write(0, block)).status;
      case "flush":
        return (await queue.command({ opcode: io.flush, nsid: 1 })).status;
      case "write zeroes":
        return (await queue.command({ opcode: io.writeZeroes, nsid: 1, words: blocksOf(0, 1) })).status;
      case "trim": {
        const range = Buffer.alloc(16);
        range.writeUInt32LE(1, 4);
        const fields = { opcode: io.datasetManagement, nsid: 1, words: [0, 4], bytes: 16 };
        return (await queue.command({ ...fields, sglKind: sgl.inCapsule }, { inCapsule: range })).status;
      }
      default: {
        const fields = { nsid: 1, words: blocksOf(0, 1), bytes: 4096, sglKind: sgl.inCapsule };
        if (name === "compare")
          return (await queue.command({ ...fields, opcode: io.compare }, { inCapsule: block })).status;
        queue.sendCommand({ ...fields, opcode: io.compare, flags: 0x41, id: 1 }, block);
        queue.sendCommand({ ...fields, opcode: io.write, flags: 0x42, id: 2 }, block);
        const statuses = [];
        while (statuses.length < 2) {
          const { type, header } = await queue.pdu();
          expect(type).toBe(pduType.capsuleResp);
          statuses.push((header.readUInt16LE(22) >>> 1) & 0x7ff);
        }
        return statuses.find((one) => one !== 0 && one !== 9) ?? 0;
      }
    }
  }

  async #send(opcode: number, word: number, keys: readonly bigint[]): Promise<number> {
    const data = Buffer.alloc(8 * keys.length);
    for (const [index, key] of keys.entries()) data.writeBigUInt64LE(key, 8 * index);
    const fields = { opcode, nsid: 1, words: [word], bytes: data.length, sglKind: sgl.inCapsule };
    return (await this.queue.command(fields, { inCapsule: data })).status;
  }
}

/** Whether a command reads or writes, as reservations see it. */
const commands = {
  read: "reads",
  compare: "reads",
  write: "writes",
  flush: "writes",
  "write zeroes": "writes",
  trim: "writes",
  "compare and write": "writes",
} as const;

/** Which commands each type refuses, of a registered host that does not hold it and of one that is not registered. */
const refused = [
  ["writeExclusive", ["writes"], ["writes"]],
  ["exclusiveAccess", ["reads", "writes"], ["reads", "writes"]],
  ["writeExclusiveRegistrants", [], ["writes"]],
  ["exclusiveAccessRegistrants", [], ["reads", "writes"]],
  ["writeExclusiveAll", [], ["writes"]],
  ["exclusiveAccessAll", [], ["reads", "writes"]],
] as const satisfies readonly [keyof typeof reservationType, readonly string[], readonly string[]][];

describe.each(refused)("a reservation %s", (name, ofRegistrant, ofStranger) => {
  it.each(Object.keys(commands) as (keyof typeof commands)[])("lets %s pass by role", async (command) => {
    const target = await serve();
    const [holder, registrant, stranger] = [
      await hostOf(target, 1),
      await hostOf(target, 2),
      await hostOf(target, 3),
    ];
    const all = { holder, registrant, stranger };
    const statuses = async () => ({
      holder: await all.holder.status(command),
      registrant: await all.registrant.status(command),
      stranger: await all.stranger.status(command),
    });
    await holder.register({ newKey: 1n });
    await registrant.register({ newKey: 2n });
    expect(await statuses()).toEqual({ holder: 0, registrant: 0, stranger: 0 });
    expect(await holder.acquire(reservationType[name], 1n)).toBe(0);
    const of = (kinds: readonly string[]) => (kinds.includes(commands[command]) ? conflict : 0);
    const expected = { holder: 0, registrant: of(ofRegistrant), stranger: of(ofStranger) };
    expect(await statuses()).toEqual(expected);
    expect(await holder.release(reservationType[name], 1n)).toBe(0);
    expect(await statuses()).toEqual({ holder: 0, registrant: 0, stranger: 0 });
  });
});

const { writeExclusive, exclusiveAccess, writeExclusiveRegistrants, writeExclusiveAll, exclusiveAccessAll } =
  reservationType;

describe("a reservation", () => {
  it("is of a host, whatever controller or name it has", async () => {
    const target = await serve();
    const [one, again, other] = [await hostOf(target, 1), await hostOf(target, 1), await hostOf(target, 2)];
    await one.register({ newKey: 7n });
    expect(await again.acquire(exclusiveAccess, 7n)).toBe(0);
    expect([await one.status("write"), await again.status("read")]).toEqual([0, 0]);
    expect(await other.status("read")).toBe(conflict);
    // The end of its controllers does not end it.
    for (const host of [one, again]) host.control.socket.destroy();
    await expect.poll(() => target.stats().controllers).toBe(1);
    expect(await other.status("read")).toBe(conflict);
    expect(await (await hostOf(target, 1)).status("write")).toBe(0);
  });

  it("holds at every target of the device", async () => {
    const device = memoryDevice({ bytes });
    const one = await hostOf(await serve(device), 1);
    const other = await hostOf(await serve(device), 2);
    await one.register({ newKey: 7n });
    expect(await one.acquire(writeExclusive, 7n)).toBe(0);
    expect([await other.status("read"), await other.status("write")]).toEqual([0, conflict]);
  });

  it("needs a registration with the key, one of the six types, and no bit to ignore the key", async () => {
    const target = await serve();
    const [one, other] = [await hostOf(target, 1), await hostOf(target, 2)];
    expect(await one.acquire(writeExclusive, 0n)).toBe(conflict);
    await one.register({ newKey: 7n });
    expect(await one.acquire(writeExclusive, 8n)).toBe(conflict);
    for (const type of [0, 7, 255]) expect(await one.acquire(type, 7n)).toBe(invalidField);
    for (const action of [2, 3, 7])
      expect(await one.acquire(writeExclusive, 7n, { action })).toBe(invalidField);
    expect(await one.acquire(writeExclusive, 7n, { word: 8 })).toBe(invalidField);
    expect((await one.report()).type).toBe(0);
    expect(await one.acquire(writeExclusive, 7n)).toBe(0);
    expect(await one.acquire(writeExclusive, 7n)).toBe(0);
    expect(await one.acquire(exclusiveAccess, 7n)).toBe(conflict);
    await other.register({ newKey: 7n });
    expect(await other.acquire(writeExclusive, 7n)).toBe(conflict);
    expect(await one.report()).toMatchObject({ type: writeExclusive, generation: 2 });
  });

  it("of all registrants is acquired and released by any of them, and ends with the last", async () => {
    const target = await serve();
    const [one, other] = [await hostOf(target, 1), await hostOf(target, 2)];
    await one.register({ newKey: 1n });
    await other.register({ newKey: 2n });
    expect(await one.acquire(writeExclusiveAll, 1n)).toBe(0);
    expect(await other.acquire(writeExclusiveAll, 2n)).toBe(0);
    expect(await other.acquire(exclusiveAccessAll, 2n)).toBe(conflict);
    expect((await one.report()).hosts.map(({ isHolder }) => isHolder)).toEqual([true, true]);
    expect(await one.register({ action: 1, key: 1n })).toBe(0);
    expect((await one.report()).type).toBe(writeExclusiveAll);
    expect(await one.status("write")).toBe(conflict);
    expect(await other.release(writeExclusiveAll, 2n)).toBe(0);
    expect(await one.status("write")).toBe(0);
    expect(await other.acquire(exclusiveAccessAll, 2n)).toBe(0);
    expect(await other.register({ action: 1, key: 2n })).toBe(0);
    expect(await one.report()).toMatchObject({ type: 0, hosts: [] });
  });

  it("is released by its holder with its type, and cleared by any registrant", async () => {
    const target = await serve();
    const [one, other, stranger] = [
      await hostOf(target, 1),
      await hostOf(target, 2),
      await hostOf(target, 3),
    ];
    await one.register({ newKey: 1n });
    await other.register({ newKey: 2n });
    expect(await one.release(writeExclusive, 1n)).toBe(0);
    await one.acquire(writeExclusive, 1n);
    expect(await stranger.release(writeExclusive, 0n)).toBe(conflict);
    expect(await one.release(writeExclusive, 9n)).toBe(conflict);
    expect(await one.release(exclusiveAccess, 1n)).toBe(invalidField);
    expect(await one.release(writeExclusive, 1n, { word: 8 })).toBe(invalidField);
    expect(await one.release(writeExclusive, 1n, { action: 2 })).toBe(invalidField);
    // That of a host that holds none changes nothing.
    for (const type of [writeExclusive, exclusiveAccess, 0]) expect(await other.release(type, 2n)).toBe(0);
    expect((await one.report()).type).toBe(writeExclusive);
    expect(await stranger.clear(0n)).toBe(conflict);
    expect(await other.clear(2n)).toBe(0);
    expect(await one.report()).toMatchObject({ type: 0, hosts: [], generation: 3 });
  });
});

describe("a registration", () => {
  it("has one key, which its host replaces and removes by it, or without it", async () => {
    const target = await serve();
    const host = await hostOf(target, 1);
    expect(await host.register({ newKey: 0n })).toBe(invalidField);
    for (const action of [1, 2]) expect(await host.register({ action, newKey: 1n })).toBe(conflict);
    expect(await host.register({ newKey: 1n })).toBe(0);
    expect(await host.register({ newKey: 1n })).toBe(0);
    expect(await host.register({ newKey: 2n })).toBe(conflict);
    expect(await host.register({ action: 2, key: 9n, newKey: 2n })).toBe(conflict);
    expect(await host.register({ action: 2, key: 1n, newKey: 2n })).toBe(0);
    expect(await host.register({ action: 2, ignoresKey: true, newKey: 3n })).toBe(0);
    expect(await host.register({ action: 1, key: 2n })).toBe(conflict);
    expect((await host.report()).hosts).toEqual([{ host: 1, key: 3n, isHolder: false }]);
    expect(await host.register({ action: 1, ignoresKey: true })).toBe(0);
    expect((await host.report()).hosts).toEqual([]);
    for (const wrong of [{ action: 3 }, { keeps: 1 }])
      expect(await host.register({ newKey: 1n, ...wrong })).toBe(invalidField);
  });

  it("begins by a replacement that ignores the key", async () => {
    const target = await serve();
    const host = await hostOf(target, 1);
    expect(await host.register({ action: 2, newKey: 3n })).toBe(conflict);
    expect(await host.register({ action: 2, ignoresKey: true, key: 9n, newKey: 3n })).toBe(0);
    expect((await host.report()).hosts).toEqual([{ host: 1, key: 3n, isHolder: false }]);
  });

  it("ends by a replacement with the key 0", async () => {
    const target = await serve();
    const [host, other] = [await hostOf(target, 1), await hostOf(target, 2)];
    await other.register({ newKey: 2n });
    for (const ignoresKey of [false, true])
      expect(await host.register({ action: 2, ignoresKey, newKey: 0n })).toBe(conflict);
    for (const proof of [{ key: 1n }, { ignoresKey: true, key: 9n }]) {
      await host.register({ newKey: 1n });
      await host.acquire(writeExclusive, 1n);
      expect(await host.register({ action: 2, key: 9n, newKey: 0n })).toBe(conflict);
      expect(await host.report()).toMatchObject({ type: writeExclusive, hosts: [{ host: 2 }, { host: 1 }] });
      expect(await host.register({ action: 2, newKey: 0n, ...proof })).toBe(0);
      expect(await host.report()).toMatchObject({ type: 0, hosts: [{ host: 2, key: 2n }] });
    }
    expect(await host.register({ action: 3, newKey: 0n })).toBe(invalidField);
  });

  it("that ends, ends the reservation of its host", async () => {
    const target = await serve();
    const [one, other] = [await hostOf(target, 1), await hostOf(target, 2)];
    await one.register({ newKey: 1n });
    await other.register({ newKey: 2n });
    await one.acquire(writeExclusiveRegistrants, 1n);
    expect(await one.register({ action: 1, key: 1n })).toBe(0);
    expect(await other.report()).toMatchObject({ type: 0, hosts: [{ host: 2, key: 2n }] });
  });

  it("is one of 256, of hosts that have an identifier", async () => {
    const reservations = new Reservations(memoryDevice({ bytes }));
    const data = Buffer.alloc(16, 1);
    const register = async (id: number, word = 0) => {
      const fields = { opcode: io.reservationRegister, nsid: 1, bytes: 16, words: [word] };
      const command = parseCommand(commandEntry(fields));
      const work = reservations.workOf(command, id.toString(16).padStart(32, "0"));
      if (work === undefined) throw new Error("no work");
      return "code" in work ? work.code : (await work.run(data)).status.code;
    };
    expect(await register(0)).toBe(0x0c);
    for (let id = 1; id <= 256; id++) expect(await register(id)).toBe(0);
    expect(await register(257)).toBe(6);
    const replaceAndIgnoreKey = 2 + 8;
    expect(await register(257, replaceAndIgnoreKey)).toBe(6);
    expect(await register(256, replaceAndIgnoreKey)).toBe(0);
    expect(await register(1)).toBe(0);
  });

  it("is reported in the extended structure, as far as the host wants it", async () => {
    const target = await serve();
    const { queue, register } = await hostOf(target, 1).then((host) => ({
      queue: host.queue,
      register: () => host.register({ newKey: 5n }),
    }));
    await register();
    const report = (dwords: number, extended: number) =>
      queue.command({
        ...{ opcode: io.reservationReport, nsid: 1, bytes: 4 * dwords, words: [dwords - 1, extended] },
      });
    expect((await report(16, 0)).status).toBe(0x18);
    expect((await report(2, 1)).data.length).toBe(8);
    expect((await report(32, 1)).data.readBigUInt64LE(64 + 8)).toBe(5n);
  });
});

describe("a preemption", () => {
  it("of the holder takes its reservation and its registration", async () => {
    const target = await serve();
    const [one, other] = [await hostOf(target, 1), await hostOf(target, 2)];
    await one.register({ newKey: 1n });
    await other.register({ newKey: 2n });
    await one.acquire(writeExclusive, 1n);
    expect(await other.preempt(exclusiveAccess, 2n, 1n)).toBe(0);
    expect(await other.report()).toMatchObject({
      type: exclusiveAccess,
      generation: 3,
      hosts: [{ host: 2, isHolder: true }],
    });
    expect(await one.status("read")).toBe(conflict);
    // The host that was preempted cannot do it in turn.
    expect(await one.preempt(exclusiveAccess, 1n, 2n)).toBe(conflict);
    // The holder changes the type.
    expect(await other.preempt(writeExclusive, 2n, 2n)).toBe(0);
    expect([await one.status("read"), await one.status("write")]).toEqual([0, conflict]);
  });

  it("of other registrants leaves the reservation as it is", async () => {
    const target = await serve();
    const [one, other, third] = [await hostOf(target, 1), await hostOf(target, 2), await hostOf(target, 3)];
    await one.register({ newKey: 1n });
    for (const host of [other, third]) await host.register({ newKey: 2n });
    expect(await one.preempt(writeExclusive, 1n, 0n)).toBe(invalidField);
    expect(await one.preempt(writeExclusive, 1n, 5n)).toBe(conflict);
    await one.acquire(writeExclusive, 1n);
    expect(await third.preempt(exclusiveAccess, 2n, 2n)).toBe(0);
    expect(await one.report()).toMatchObject({ type: writeExclusive, hosts: [{ host: 1, isHolder: true }] });
    expect(await third.acquire(writeExclusive, 2n)).toBe(conflict);
  });

  it("of a reservation of all takes it with the key 0, and single hosts by their keys", async () => {
    const target = await serve();
    const [one, other, third] = [await hostOf(target, 1), await hostOf(target, 2), await hostOf(target, 3)];
    for (const [index, host] of [one, other, third].entries())
      await host.register({ newKey: BigInt(index + 1) });
    await one.acquire(exclusiveAccessAll, 1n);
    expect(await one.preempt(writeExclusive, 1n, 3n)).toBe(0);
    expect(await one.report()).toMatchObject({ type: exclusiveAccessAll, hosts: [{ host: 1 }, { host: 2 }] });
    expect(await third.status("read")).toBe(conflict);
    expect(await other.preempt(writeExclusive, 2n, 0n)).toBe(0);
    expect(await one.report()).toMatchObject({ type: writeExclusive, hosts: [{ host: 2, isHolder: true }] });
    expect([await one.status("read"), await one.status("write")]).toEqual([0, conflict]);
  });
});

describe("the reservations of a file", () => {
  const path = () => join(folder, "disk.img");
  const beside = () => `${path()}.reservations`;

  /** Does something with a disk that is served, and closes it. */
  async function served(work: (target: NvmeTarget) => Promise<void>, device?: BlockDevice): Promise<void> {
    await using opened = device ?? (await openFileDevice(path(), { bytes }));
    const target = await serve(opened);
    await work(target);
    await target.close();
  }

  it("outlive the server from when a host asks for it until one takes that back", async () => {
    const capabilities = async (host: TestHost) => (await host.control.identify(0, 1)).data.readUInt8(31);
    await served(async (target) => {
      const host = await hostOf(target, 1);
      expect(await capabilities(host)).toBe(0xff);
      expect(await host.register({ newKey: 0xfedcba9876543210n })).toBe(0);
      expect((await host.report()).isKept).toBe(false);
    });
    expect(existsSync(beside())).toBe(false);
    await served(async (target) => {
      const host = await hostOf(target, 1);
      expect(await host.report()).toMatchObject({ hosts: [] });
      expect(await host.register({ newKey: 0xfedcba9876543210n, keeps: 3 })).toBe(0);
      expect(await host.acquire(exclusiveAccess, 0xfedcba9876543210n)).toBe(0);
    });
    await served(async (target) => {
      const [host, other] = [await hostOf(target, 1), await hostOf(target, 2)];
      expect([await host.status("write"), await other.status("read")]).toEqual([0, conflict]);
      expect(await host.report()).toEqual({
        ...{ generation: 1, type: exclusiveAccess, isKept: true },
        hosts: [{ host: 1, key: 0xfedcba9876543210n, isHolder: true }],
      });
      expect(await other.register({ newKey: 2n, keeps: 2 })).toBe(0);
      expect((await host.report()).isKept).toBe(false);
      expect(await other.status("read")).toBe(conflict);
    });
    expect(existsSync(beside())).toBe(false);
    await served(async (target) => {
      expect(await (await hostOf(target, 2)).report()).toMatchObject({ type: 0, hosts: [] });
    });
  });

  it("are not those of another disk, and a file that cannot be read is not served", async () => {
    await served(async (target) => {
      expect(await (await hostOf(target, 1)).register({ newKey: 1n, keeps: 3 })).toBe(0);
    });
    const text = await readFile(beside(), "utf8");
    const uuid = "7a4d0c5e-9a3b-4b6a-8a53-3b8d1a1f6a10";
    await served(
      async (target) => {
        expect((await (await hostOf(target, 1)).report()).hosts).toEqual([]);
      },
      await openFileDevice(path(), { uuid }),
    );
    for (const wrong of ["{", text.replace('"type":0', '"type":7'), text.replace(/\[\["/, '[["0')]) {
      await writeFile(beside(), wrong);
      await using device = await openFileDevice(path());
      await expect(serve(device)).rejects.toThrow(/cannot be read: remove the file FILE.reservations/);
    }
  });

  it("that the system cannot read keep the file from being opened", async () => {
    await mkdir(beside());
    const opening = openFileDevice(path(), { bytes });
    await expect(opening).rejects.toMatchObject({ code: "io", message: expect.stringContaining(beside()) });
    await rm(beside(), { recursive: true });
    await served(async () => {});
  });

  it("stay as they are where they cannot be kept", async () => {
    await served(async (target) => {
      const host = await hostOf(target, 1);
      await host.register({ newKey: 1n, keeps: 3 });
      await rm(folder, { recursive: true });
      expect(await host.acquire(writeExclusive, 1n)).toBe(6);
      expect((await host.report()).type).toBe(0);
      // The next one is not held up.
      expect(await host.register({ newKey: 2n })).toBe(conflict);
    });
    folder = await mkdtemp(join(tmpdir(), "cinnabar-reservations-"));
  });

  it("stay as they are in the file, too, where the system cannot write its folder", async () => {
    await served(async (target) => {
      const host = await hostOf(target, 1);
      const failing = async (work: () => Promise<unknown>) => {
        const handle = await open(folder);
        const sync: (this: FileHandle) => Promise<void> = handle.sync;
        const spy = vi.spyOn(Object.getPrototypeOf(handle), "sync");
        spy.mockImplementation(async function (this: unknown) {
          const file = this as FileHandle;
          if ((await file.stat()).isDirectory()) throw new Error("EIO");
          return sync.call(file);
        });
        await handle.close();
        try {
          expect(await work()).toBe(6);
          expect(spy).toHaveBeenCalled();
        } finally {
          spy.mockRestore();
        }
      };
      await failing(() => host.register({ newKey: 1n, keeps: 3 }));
      expect(existsSync(beside())).toBe(false);
      expect(await host.register({ newKey: 1n, keeps: 3 })).toBe(0);
      const before = await readFile(beside(), "utf8");
      await failing(() => host.acquire(writeExclusive, 1n));
      expect(await readFile(beside(), "utf8")).toBe(before);
      await failing(() => host.register({ newKey: 1n, keeps: 2 }));
      expect(await readFile(beside(), "utf8")).toBe(before);
      expect(await host.report()).toMatchObject({ type: 0, isKept: true, hosts: [{ key: 1n }] });
      expect((await readdir(folder)).filter((name) => name.includes(".reservations."))).toEqual([]);
    });
    await served(async (target) => {
      expect(await (await hostOf(target, 1)).report()).toMatchObject({ type: 0, hosts: [{ key: 1n }] });
    });
  });

  it("do not exist where others share it", async () => {
    await served(
      async (target) => {
        const host = await hostOf(target, 1);
        expect((await host.control.identify(0, 1)).data.readUInt8(31)).toBe(0);
        expect(await host.register({ newKey: 1n })).toBe(1);
      },
      await openFileDevice(path(), { bytes, isShared: true }),
    );
  });
});

it("memory has reservations that it does not keep", async () => {
  const host = await hostOf(await serve(), 1);
  expect((await host.control.identify(0, 1)).data.readUInt8(31)).toBe(0xfe);
  expect((await host.control.identify(1)).data.readUInt16LE(520) & 0x20).toBe(0x20);
  expect(await host.register({ newKey: 1n, keeps: 3 })).toBe(0);
  expect((await host.report()).isKept).toBe(false);
});
