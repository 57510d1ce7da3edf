import { expect, it, vi } from "vitest";
import { ControllerAuthentication } from "../authentication/controller-side.ts";
import { dhGroupNames } from "../authentication/dh-groups.ts";
import { authenticate } from "../authentication/host-side.ts";
import { hashNames, makeSecret, parseSecret, type Secret } from "../authentication/secret.ts";
import type { BlockDevice } from "../device/block-device.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { numbersFrom } from "../numbers.test-support.ts";
import { Access } from "../nvme/access.ts";
import { admin, fabrics, fabricsOpcode, io, parseCommand, sgl } from "../nvme/command.ts";
import { type Connected, Controller, type Queue } from "../nvme/controller.ts";
import { newUsage } from "../nvme/identify.ts";
import { bareQueue, somePlaces } from "../nvme/queue.test-support.ts";
import { reservationsOf } from "../nvme/reservations.ts";
import { status } from "../nvme/status.ts";
import { blocksOf, type CommandFields, commandEntry, connectFields } from "../tcp/host.test-support.ts";
import { DataMemory } from "./data-memory.ts";
import { FakeMemory, FakePair, hostKey, registered } from "./fake-pair.test-support.ts";
import { RdmaQueue } from "./queue.ts";

const mib = 1024 * 1024;
const nqn = "nqn.2026-11.test:disk";
const place = { transport: "rdma" as const, host: "10.0.0.7", port: 4420 };
const ends = { hostNqn: "nqn.2026-11.test:host", subsystemNqn: nqn };
const block = (value: number, bytes = 4096) => Buffer.alloc(bytes, value);
const inCapsule = { sglKind: sgl.inCapsule };

interface Options {
  readonly device?: BlockDevice;
  readonly queueId?: number;
  readonly entries?: number;
  readonly refused?: Connected;
  readonly admits?: boolean;
  readonly isConnected?: boolean;
  readonly stallTimeoutMs?: number;
  /** What the host must prove. */
  readonly secret?: Secret;
}

/** A queue of an enabled controller, connected by default. */
async function serve(options: Options = {}) {
  const { device = memoryDevice({ bytes: 16 * mib }), queueId = 1, entries = 8 } = options;
  const pair = new FakePair();
  const memories: FakeMemory[] = [];
  const data = new FakeMemory(2 * mib);
  let controller: Controller | undefined;
  const connect = async (own: Queue): Promise<Connected> => {
    if (options.refused !== undefined) return options.refused;
    const subsystem = {
      ...{ nqn, serial: "1", model: "test" },
      namespaces: new Map([
        [
          1,
          {
            nsid: 1,
            device,
            uuid: Buffer.alloc(16, 1),
            access: new Access(),
            usage: newUsage(),
            reservations: reservationsOf(device),
          },
        ],
      ]),
    };
    controller = new Controller(
      1,
      { nqn: "nqn.2026-11.test:host", id: "1" },
      subsystem,
      { places: [place], nqns: [nqn] },
      { keepAliveMs: 0, adminQueue: queueId === 0 ? own : bareQueue(), maxIoQueues: 1 },
    );
    const words = [0, 0x14, 0x460001, 0];
    const enable = { opcode: fabricsOpcode, nsid: fabrics.propertySet, words };
    await controller.execute(parseCommand(commandEntry(enable)));
    const proof = { controllerSecret: undefined, hashes: hashNames, dhGroups: dhGroupNames };
    const authentication =
      options.secret && new ControllerAuthentication(ends, { ...proof, secret: options.secret });
    const isBusy =
      queueId === 0 ? !own.admit() : controller.add(queueId, own, authentication?.done) !== undefined;
    if (isBusy) return { refused: { status: status.controllerBusy } };
    return { controller, queueId, entries, authentication };
  };
  const dataMemory = new DataMemory(registered(data));
  const register = (bytes: number) => {
    const memory = new FakeMemory(bytes);
    memories.push(memory);
    return registered(memory);
  };
  const over = vi.fn();
  const admit = vi.fn(() => options.admits ?? true);
  const queue = new RdmaQueue(
    pair.asPair,
    {
      ...{ places: somePlaces(), place, data: dataMemory, maxBytes: mib, connect, register },
      stallTimeoutMs: options.stallTimeoutMs ?? 30_000,
    },
    { admit, over, refuse: () => pair.close() },
  );
  expect(pair.isAccepted).toBe(true);
  if (options.isConnected ?? true) {
    const { entry, data: fields } = connectFields({ queueId });
    pair.deliver(Buffer.concat([entry, fields]));
    await expect.poll(() => pair.answers.length + Number(pair.isOver)).toBe(1);
  }
  return {
    pair,
    queue,
    device,
    memories,
    dataMemory,
    over,
    admit,
    controller: () => controller as Controller,
  };
}

/** Sends commands, and gives the statuses of their answers by their numbers. */
async function answers(pair: FakePair, count: number): Promise<Record<number, number>> {
  await expect.poll(() => pair.answers.length).toBe(count);
  return Object.fromEntries(pair.answers.splice(0).map((answer) => [answer.id, answer.status]));
}

const write = (id: number, first: number, bytes: number): CommandFields => ({
  ...{ opcode: io.write, id, nsid: 1, bytes },
  words: blocksOf(first, bytes / 4096),
});
const read = (id: number, first: number, bytes: number): CommandFields => ({
  ...write(id, first, bytes),
  opcode: io.read,
});

it("takes Connect in the capsule and in the memory of the host", async () => {
  const { pair } = await serve();
  expect(pair.answers).toMatchObject([{ status: 0, head: 1, result: 1n }]);
  expect(pair.waiting).toBe(8);
  const { pair: other } = await serve({ queueId: 0, isConnected: false });
  const { data } = connectFields({});
  data.copy(other.memory, 512);
  const fields = { opcode: fabricsOpcode, nsid: fabrics.connect, bytes: 1024, at: 512 };
  other.command({ ...fields, sglKind: sgl.keyedInvalidate });
  await expect.poll(() => other.answers).toMatchObject([{ status: 0, result: 1n }]);
});

it("has a host prove its secret with few places and little memory, and gives it the rest then", async () => {
  const secret = parseSecret(makeSecret()) as Secret;
  const { pair, memories, dataMemory, admit } = await serve({ secret, entries: 64 });
  expect(pair.answers.splice(0)).toMatchObject([{ status: 0, result: 1n | (1n << 17n) }]);
  const pinned = () => memories.reduce((sum, { buffer }) => sum + buffer.length, 0);
  expect(pair.waiting).toBe(4);
  expect(pinned()).toBeLessThan(32 * 1024);
  pair.command(read(1, 0, 4096));
  expect(await answers(pair, 1)).toEqual({ 1: 0x191 });
  const command = async (nsid: number, bytes: number, more: object) => {
    pair.command({ opcode: fabricsOpcode, id: 2, nsid, words: [0xe901_0100, bytes], bytes, ...more });
    expect(await answers(pair, 1)).toEqual({ 2: 0 });
  };
  const way = {
    send: async (message: Buffer) => {
      message.copy(pair.memory);
      await command(fabrics.authenticationSend, message.length, {});
    },
    get: async (into: Buffer) => {
      expect(admit).not.toHaveBeenCalled();
      await command(fabrics.authenticationReceive, into.length, { at: 8192 });
      pair.memory.copy(into, 0, 8192, 8192 + into.length);
    },
  };
  const free = dataMemory.freeBytes;
  await authenticate(way, ends, { secret, controllerSecret: undefined });
  expect(admit).toHaveBeenCalledTimes(1);
  expect(dataMemory.freeBytes).toBe(free);
  expect(pair.waiting).toBe(64);
  for (let id = 0; id < 64; id++) pair.command({ ...write(id, id, 4096), ...inCapsule }, block(id));
  expect(Object.values(await answers(pair, 64))).toEqual(Array(64).fill(0));
});

it("closes a queue behind the failure of its host's proof", async () => {
  const secret = parseSecret(makeSecret()) as Secret;
  const { pair, queue } = await serve({ secret });
  pair.answers.length = 0;
  const fields = { opcode: fabricsOpcode, nsid: fabrics.authenticationReceive, bytes: 64 };
  pair.command({ ...fields, words: [0xe901_0100, 64] });
  await queue.settled;
  expect(pair.answers).toMatchObject([{ status: 0 }]);
  expect(pair.memory.readUInt16BE(0)).toBe(0x00f1);
});

it("ends a host that takes no answer and no data for the time of a stall, and has its memory back", async () => {
  const { pair, queue, dataMemory } = await serve({ stallTimeoutMs: 100 });
  const free = dataMemory.freeBytes;
  pair.isHeld = true;
  pair.command(read(1, 0, mib / 2));
  await expect.poll(() => dataMemory.freeBytes).toBeLessThan(free);
  await expect.poll(() => pair.isOver).toBe(true);
  await queue.settled;
  expect(dataMemory.freeBytes).toBe(free);
});

it("moves short data in capsules, and long data by reads and writes of the host's memory", async () => {
  const { pair, device, dataMemory } = await serve();
  pair.answers.length = 0;
  pair.command({ ...write(1, 1, 4096), ...inCapsule }, block(7));
  pair.memory.fill(9, 8192, 8192 + mib);
  pair.command({ ...write(2, 2, mib), at: 8192 });
  expect(await answers(pair, 2)).toEqual({ 1: 0, 2: 0 });
  expect(await device.compare(4096, block(7))).toBe(true);
  expect(await device.compare(8192, block(9, mib))).toBe(true);
  pair.command({ ...read(3, 1, 8192), at: 2 * mib });
  expect(await answers(pair, 1)).toEqual({ 3: 0 });
  expect(pair.memory.subarray(2 * mib, 2 * mib + 8192).equals(Buffer.concat([block(7), block(9)]))).toBe(
    true,
  );
  expect(dataMemory.freeBytes).toBe(2 * mib);
});

it("tells hosts of keys and of what a capsule takes", async () => {
  const { pair } = await serve({ queueId: 0 });
  pair.answers.length = 0;
  pair.command({ opcode: admin.identify, id: 1, words: [1], bytes: 4096 });
  expect(await answers(pair, 1)).toEqual({ 1: 0 });
  expect(pair.memory.readUInt32LE(536)).toBe(1 | (1 << 2) | (1 << 20));
  expect(pair.memory.readUInt32LE(1792) * 16).toBe(64 + 4096);
});

it("serves many times the entries, and posts each receive before the answer that frees its place", async () => {
  const { pair, dataMemory } = await serve({ entries: 4 });
  pair.answers.length = 0;
  for (let round = 0; round < 50; round++) {
    for (let id = 0; id < 4; id++) pair.command({ ...read(id, id, 4096), at: id * 4096 });
    expect(pair.waiting).toBe(0);
    await expect.poll(() => pair.answers.length).toBe(4);
    expect(pair.waiting).toBe(4);
    pair.answers.length = 0;
  }
  expect(dataMemory.freeBytes).toBe(2 * mib);
});

it("answers when there is a place, where the device is slow to say that answers have left", async () => {
  const { pair } = await serve({ entries: 4 });
  pair.answers.length = 0;
  pair.isHeld = true;
  // The answers of these commands take all places. The host has the answers before our device reports them as sent.
  for (let id = 0; id < 4; id++) pair.command({ opcode: io.flush, id, nsid: 1, bytes: 0 });
  await expect.poll(() => pair.waiting).toBe(4);
  for (let id = 4; id < 8; id++) pair.command({ opcode: io.flush, id, nsid: 1, bytes: 0 });
  pair.release();
  expect(Object.keys(await answers(pair, 8))).toHaveLength(8);
});

it("does both commands of a compare-and-write, from capsules and from memory", async () => {
  const { pair, device } = await serve();
  pair.answers.length = 0;
  const [first, second] = [
    { ...write(1, 1, 4096), opcode: io.compare, flags: 0x41 },
    { ...write(2, 1, 4096), flags: 0x42 },
  ];
  pair.command({ ...first, ...inCapsule }, block(0));
  pair.memory.fill(5, 0, 4096);
  pair.command(second);
  expect(await answers(pair, 2)).toEqual({ 1: 0, 2: 0 });
  expect(await device.compare(4096, block(5))).toBe(true);
  pair.command(first);
  pair.command(second);
  expect(await answers(pair, 2)).toEqual({ 1: 0, 2: 0 });
  pair.command({ ...first, ...inCapsule }, block(0));
  pair.command(second);
  expect(await answers(pair, 2)).toEqual({ 1: 0x285, 2: 0x09 });
});

it.each<[string, CommandFields & { at?: number; key?: number }, Buffer | undefined, number]>([
  [
    "a kind of descriptor that is not of RDMA",
    { ...write(1, 0, 4096), sglKind: sgl.transport },
    undefined,
    0x11,
  ],
  ["a list of descriptors", { ...read(1, 0, 4096), sglKind: 0x20 }, undefined, 0x11],
  ["a read into the capsule", { ...read(1, 0, 4096), ...inCapsule }, undefined, 0x11],
  ["an offset in the capsule", { ...write(1, 0, 4096), ...inCapsule, sglOffset: 8 }, block(1), 0x16],
  ["less data than it names", { ...write(1, 0, 4096), ...inCapsule }, block(1, 4000), 0x0f],
  ["data beside memory", write(1, 0, 4096), block(1, 64), 0x0f],
  ["a length that is not that of the blocks", { ...write(1, 0, 4096), bytes: 8192 }, undefined, 0x0f],
  ["a read of more than it names", { ...read(1, 0, 4096), bytes: 512 }, undefined, 0x0f],
  ["more than a command may move", write(1, 0, 2 * mib), undefined, 0x02],
  ["blocks beyond the end", read(1, 4096, 4096), undefined, 0x80],
  ["an opcode that there is not", { opcode: 0x33, id: 1, nsid: 1, bytes: 0 }, undefined, 0x01],
])("answers %s by its status, and serves the next command", async (_, fields, data, expected) => {
  const { pair, dataMemory } = await serve();
  pair.answers.length = 0;
  pair.command(fields, data);
  expect(await answers(pair, 1)).toEqual({ 1: expected });
  pair.command({ ...write(2, 0, 4096), ...inCapsule }, block(1));
  expect(await answers(pair, 1)).toEqual({ 2: 0 });
  expect([pair.waiting, dataMemory.freeBytes]).toEqual([8, 2 * mib]);
});

it.each<[string, (pair: FakePair) => void]>([
  ["a capsule that is too short", (pair) => pair.deliver(Buffer.alloc(63))],
  ["an empty capsule", (pair) => pair.deliver(Buffer.alloc(0))],
  ["a capsule that is too long", (pair) => pair.deliver(Buffer.alloc(64 + 4097))],
  ["a write whose key is wrong", (pair) => pair.command({ ...write(1, 0, 4096), key: hostKey + 1 })],
  ["a read whose key is wrong", (pair) => pair.command({ ...read(1, 0, 4096), key: 1 })],
  ["a read beyond the memory", (pair) => pair.command({ ...read(1, 0, 4096), at: 4 * mib })],
])("ends the queue after %s, and gives its memory back", async (_, wrong) => {
  const { pair, queue, memories, dataMemory, over } = await serve();
  wrong(pair);
  await queue.settled;
  expect(pair.isOver).toBe(true);
  await expect.poll(() => memories.map(({ isReleased }) => isReleased)).toEqual([true, true]);
  expect(dataMemory.freeBytes).toBe(2 * mib);
  expect(over).toHaveBeenCalled();
});

it.each<[string, Options, (pair: FakePair) => void, number]>([
  [
    "another command than Connect",
    {},
    (pair) => pair.command({ opcode: io.flush, id: 0, nsid: 1, bytes: 0 }),
    0x0c,
  ],
  [
    "a Connect that is refused",
    { refused: { refused: { status: status.connectParameters, result: 256n } } },
    (pair) => pair.deliver(Buffer.concat(Object.values(connectFields({ nqn: "nqn.2026-11.test:other" })))),
    0x182,
  ],
  [
    "a Connect with too few data",
    {},
    (pair) => pair.deliver(Buffer.concat(Object.values(connectFields({}))).subarray(0, 1000)),
    0x0f,
  ],
])("ends the connection after the answer to %s", async (_, options, send, expected) => {
  const { pair, queue, memories } = await serve({ ...options, isConnected: false });
  send(pair);
  await queue.settled;
  expect(pair.answers).toMatchObject([{ status: expected }]);
  await expect.poll(() => memories.map(({ isReleased }) => isReleased)).toEqual([true]);
});

it.each([0, 1])("answers that it is busy where there is no place for queue %i", async (queueId) => {
  const { queue, pair, memories } = await serve({ queueId, admits: false, isConnected: false });
  pair.deliver(Buffer.concat(Object.values(connectFields({ queueId }))));
  await queue.settled;
  expect(pair.answers).toMatchObject([{ status: 0x181 }]);
  await expect.poll(() => memories.map(({ isReleased }) => isReleased)).toEqual([true]);
});

it("keeps the memory of a write that the device works on, when the host has gone", async () => {
  const device = memoryDevice({ bytes: mib });
  let finish = () => {};
  const working = vi.spyOn(device, "write").mockImplementation(() => new Promise((done) => (finish = done)));
  const { pair, queue, memories, controller } = await serve({ device, queueId: 1 });
  pair.command({ ...write(1, 0, 4096), ...inCapsule }, block(1));
  await expect.poll(() => working.mock.calls.length).toBe(1);
  pair.close();
  let isSettled = false;
  void queue.settled.then(() => (isSettled = true));
  await new Promise((resolve) => setImmediate(resolve));
  expect([isSettled, memories.some(({ isReleased }) => isReleased)]).toEqual([false, false]);
  finish();
  await queue.settled;
  await expect.poll(() => memories.every(({ isReleased }) => isReleased)).toBe(true);
  expect(controller().isEnded).toBe(false);
});

it("survives capsules of any bytes, and leaves nothing", async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const next = numbersFrom(seed);
  for (let round = 0; round < 60; round++) {
    const served = await serve({ queueId: next(2) });
    const { pair, queue, memories, dataMemory } = served;
    for (let count = 0; count < 40 && !pair.isOver; count++) {
      if (pair.waiting === 0) await new Promise((resolve) => setImmediate(resolve));
      if (pair.waiting === 0) continue;
      const opcode = [
        io.read,
        io.write,
        io.compare,
        io.flush,
        io.datasetManagement,
        admin.identify,
        fabricsOpcode,
      ];
      const capsule = Buffer.alloc(64 + 4096 * next(2));
      const fields = {
        ...write(count, next(4096), 4096 * (1 + next(300))),
        opcode: opcode[next(opcode.length)] ?? 0,
      };
      commandEntry(fields).copy(capsule);
      capsule[39] = [sgl.keyed, sgl.keyedInvalidate, sgl.inCapsule, sgl.transport, next(256)][next(5)] ?? 0;
      for (let change = next(6); change > 0; change--) capsule[next(64)] = next(256);
      pair.deliver(next(50) === 0 ? capsule.subarray(0, next(64)) : capsule);
    }
    await expect.poll(() => pair.isOver || pair.waiting > 0, { message: `seed ${seed}` }).toBe(true);
    queue.end();
    await queue.settled;
    await expect.poll(() => dataMemory.freeBytes, { message: `seed ${seed}` }).toBe(2 * mib);
    expect(memories.length).toBeLessThanOrEqual(2);
  }
});
