import { afterEach, expect, it, vi } from "vitest";
import type { BlockDevice } from "../device/block-device.ts";
import { memoryDevice } from "../device/memory-device.ts";
import { blocksOf, HostQueue } from "../tcp/host.test-support.ts";
import type { NvmeAccess } from "./access.ts";
import { admin, io, sgl } from "./command.ts";
import { NvmeTarget } from "./target.ts";

const bytes = 1024 * 1024;
const nqn = "nqn.2026-11.test:disk";
const targets: NvmeTarget[] = [];

afterEach(async () => {
  for (const target of targets.splice(0)) await target.close();
});

async function serve(access?: NvmeAccess, first: BlockDevice = memoryDevice({ bytes })) {
  const devices = [first, memoryDevice({ bytes })] as const;
  const state = access === undefined ? {} : { access };
  const subsystems = [{ nqn, namespaces: devices, hosts: "any" as const, ...state }];
  const target = await NvmeTarget.listen({ subsystems, port: 0 });
  targets.push(target);
  const open = async (fields: Parameters<HostQueue["connect"]>[0]) => {
    const queue = await HostQueue.open(target.address.port);
    await queue.greet();
    return { queue, answer: await queue.connect(fields) };
  };
  const { queue: control, answer } = await open({});
  await control.setProperty(0x14, 0x460001);
  const { queue } = await open({ queueId: 1, entries: 64, controllerId: Number(answer.result) });
  return { devices, target, control, queue };
}

/** The groups of the log of access: number, change count, state, namespaces. */
async function logOf(control: HostQueue, flags = 0) {
  const { data } = await control.command({
    opcode: admin.getLogPage,
    words: [0x0c | flags | (21 << 16)],
    bytes: 88,
  });
  const groups: (readonly number[])[] = [];
  let at = 16;
  for (let left = data.readUInt16LE(8); left > 0; left--) {
    const count = data.readUInt32LE(at + 4);
    const nsids = Array.from({ length: count }, (_, index) => data.readUInt32LE(at + 32 + 4 * index));
    groups.push([
      data.readUInt32LE(at),
      Number(data.readBigUInt64LE(at + 8)),
      data.readUInt8(at + 16),
      ...nsids,
    ]);
    at += 32 + 4 * count;
  }
  return { changes: Number(data.readBigUInt64LE(0)), groups };
}

it("a controller describes access as Linux asks for it", async () => {
  const { control } = await serve("non-optimized");
  const controller = (await control.identify(1)).data;
  expect(controller.readUInt8(76) & 8).toBe(8);
  expect(controller.readUInt32LE(92)).toBe((1 << 8) | (1 << 11));
  expect(controller.readUInt8(342)).toBeGreaterThan(0);
  expect([controller.readUInt32LE(344), controller.readUInt32LE(348)]).toEqual([2, 2]);
  // Linux refuses a controller with access whose MNAN is 0 or above NN.
  expect([controller.readUInt32LE(516), controller.readUInt32LE(540)]).toEqual([2, 2]);
  expect((await control.identify(0, 2)).data.readUInt32LE(92)).toBe(2);
  expect(await logOf(control)).toEqual({
    changes: 2,
    groups: [
      [1, 1, 2, 1],
      [2, 1, 2, 2],
    ],
  });
  expect((await logOf(control, 1 << 8)).groups).toEqual([
    [1, 1, 2],
    [2, 1, 2],
  ]);
});

it("a change is an event, one until the log was read", async () => {
  const { target, control } = await serve();
  await control.command({ opcode: admin.setFeatures, words: [0x0b, 1 << 11] });
  control.sendCommand({ opcode: admin.asyncEvent, id: 1 });
  await target.setAccess(nqn, "non-optimized", 2);
  expect((await control.answer(1)).result).toBe(0x0c0302n);
  control.sendCommand({ opcode: admin.asyncEvent, id: 2 });
  await target.setAccess(nqn, "inaccessible", 2);
  // With bit 15 the read of the log keeps the event. The next request waits until the log is read without that bit.
  const state = {
    changes: 4,
    groups: [
      [1, 1, 1, 1],
      [2, 3, 3, 2],
    ],
  };
  expect(await logOf(control, 1 << 15)).toEqual(state);
  expect(await logOf(control)).toEqual(state);
  // The host knows the state that it has read. The former state again is not a change.
  await target.setAccess(nqn, "inaccessible", 2);
  expect((await control.command({ opcode: admin.keepAlive })).status).toBe(0);
  await target.setAccess(nqn, "optimized");
  expect((await control.answer(2)).result).toBe(0x0c0302n);
});

it("a host that has not asked for events gets none", async () => {
  const { target, control } = await serve();
  control.sendCommand({ opcode: admin.asyncEvent, id: 1 });
  await target.setAccess(nqn, "non-optimized");
  expect((await control.command({ opcode: admin.keepAlive })).status).toBe(0);
  // The host gets the missed event when it asks.
  control.sendCommand({ opcode: admin.setFeatures, id: 2, words: [0x0b, 1 << 11] });
  const answers = new Map<number, bigint>();
  for (let count = 0; count < 2; count++) {
    const { header } = await control.pdu();
    answers.set(header.readUInt16LE(20), header.readBigUInt64LE(8));
  }
  expect(answers.get(1)).toBe(0x0c0302n);
});

it.each<[NvmeAccess, number]>([
  ["optimized", 0],
  ["non-optimized", 0],
  ["persistent-loss", 0x301],
  ["inaccessible", 0x302],
  ["change", 0x303],
])(
  "commands of a namespace that is %s get their status; those of others are done",
  async (access, status) => {
    const { target, queue } = await serve();
    await target.setAccess(nqn, access, 1);
    const refused = { status, doNotRetry: false };
    expect(await queue.write(0, Buffer.alloc(4096, 1))).toMatchObject(refused);
    expect(await queue.read(0, 4096)).toMatchObject(refused);
    expect(await queue.command({ opcode: io.flush, nsid: 1 })).toMatchObject(refused);
    expect((await queue.command({ opcode: io.flush, nsid: 2 })).status).toBe(0);
    await target.setAccess(nqn, "optimized");
    expect((await queue.read(0, 4096)).status).toBe(0);
  },
);

it("a path that is made inaccessible ends what a device has begun, and begins nothing that waits", async () => {
  const { target, queue, devices } = await serve();
  let finish = () => {};
  const write = vi.spyOn(devices[0], "write");
  write.mockImplementationOnce(() => new Promise<void>((resolve) => (finish = resolve)));
  const fields = { opcode: io.write, nsid: 1, words: blocksOf(0, 1), bytes: 4096 };
  queue.sendCommand({ ...fields, id: 1, sglKind: sgl.inCapsule }, Buffer.alloc(4096, 1));
  queue.sendCommand({ ...fields, id: 2 });
  const request = await queue.pdu();
  let isQuiet = false;
  const quiet = target.setAccess(nqn, "inaccessible").then(() => (isQuiet = true));
  queue.sendData(2, request.header.readUInt16LE(10), 0, Buffer.alloc(4096, 2));
  const refused = await queue.answer(2);
  const [wasQuiet, begun] = [isQuiet, write.mock.calls.length];
  finish();
  expect([refused.status, wasQuiet, begun]).toEqual([0x302, false, 1]);
  await quiet;
  expect((await queue.answer(1)).status).toBe(0);
});

it("a path that is made inaccessible keeps the reservation that it has begun, and begins no other", async () => {
  let finish = () => {};
  const write = vi.fn(() => new Promise<void>((resolve) => (finish = resolve)));
  const device = Object.assign(memoryDevice({ bytes }), { reservations: { kept: undefined, write } });
  const { target, queue } = await serve(undefined, device);
  const fields = { nsid: 1, bytes: 16 };
  const registration = { ...fields, opcode: io.reservationRegister, words: [3 * 2 ** 30] };
  const keys = Buffer.alloc(16);
  keys.writeBigUInt64LE(7n, 8);
  queue.sendCommand({ ...registration, id: 1, sglKind: sgl.inCapsule }, keys);
  queue.sendCommand({ ...fields, id: 2, opcode: io.reservationAcquire, words: [1 << 8] });
  const request = await queue.pdu();
  await expect.poll(() => write.mock.calls.length).toBe(1);
  let isQuiet = false;
  const quiet = target.setAccess(nqn, "inaccessible").then(() => (isQuiet = true));
  keys.writeBigUInt64LE(7n, 0);
  queue.sendData(2, request.header.readUInt16LE(10), 0, keys);
  const refused = await queue.answer(2);
  const wasQuiet = isQuiet;
  finish();
  expect([refused.status, wasQuiet]).toEqual([0x302, false]);
  await quiet;
  expect((await queue.answer(1)).status).toBe(0);
  expect(write).toHaveBeenCalledOnce();
});

it("setAccess refuses what there is not", async () => {
  const { target } = await serve();
  await expect(target.setAccess(`${nqn}x`, "optimized")).rejects.toThrow(
    `NvmeTarget.setAccess: there is no subsystem ${nqn}x`,
  );
  await expect(target.setAccess(nqn, "optimized", 3)).rejects.toThrow(`${nqn} has no namespace 3`);
  await expect(target.setAccess(nqn, "best" as NvmeAccess)).rejects.toThrow(
    "NvmeTarget.setAccess: access must be one of optimized, non-optimized, inaccessible, persistent-loss, change",
  );
  const subsystems = [{ nqn, namespaces: [memoryDevice({ bytes })], hosts: "any" as const, access: "best" }];
  await expect(NvmeTarget.listen({ subsystems, port: 0 } as never)).rejects.toThrow(
    "NvmeTarget.listen: subsystems[0].access must be one of optimized",
  );
});
