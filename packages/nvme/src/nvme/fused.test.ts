import { afterEach, describe, expect, it, vi } from "vitest";
import { memoryDevice } from "../device/memory-device.ts";
import { blocksOf, type CommandFields, HostQueue } from "../tcp/host.test-support.ts";
import { pduType } from "../tcp/pdu.ts";
import { io, sgl } from "./command.ts";
import { NvmeTarget } from "./target.ts";

const mib = 1024 * 1024;
const bytes = 16 * mib;
const nqn = "nqn.2026-11.test:disk";
const targets: NvmeTarget[] = [];

afterEach(async () => {
  for (const target of targets.splice(0)) await target.close();
});

async function serve(isReadOnly = false) {
  const device = memoryDevice({ bytes, isReadOnly });
  const target = await NvmeTarget.listen({
    subsystems: [{ nqn, namespaces: [device, memoryDevice({ bytes })], hosts: "any" }],
    ...{ port: 0, maxBytesPerConnection: mib },
  });
  targets.push(target);
  const { port } = target.address;
  const control = await HostQueue.open(port);
  await control.greet();
  const controllerId = Number((await control.connect()).result);
  await control.setProperty(0x14, 0x460001);
  const openQueue = async (queueId: number) => {
    const queue = await HostQueue.open(port);
    await queue.greet();
    expect((await queue.connect({ queueId, entries: 64, controllerId })).status).toBe(0);
    return queue;
  };
  return { device, control, queue: await openQueue(1), openQueue };
}

const first = { opcode: io.compare, nsid: 1, words: blocksOf(1, 1), bytes: 4096, flags: 0x41, id: 1 };
const second = { ...first, opcode: io.write, flags: 0x42, id: 2 };
const block = (value: number, length = 4096) => Buffer.alloc(length, value);

/** Answers in the order in which they come, by the number of the command. Data are sent where they are asked for. */
async function answers(queue: HostQueue, count: number, data: Readonly<Record<number, Buffer>> = {}) {
  const found: Record<number, number> = {};
  while (Object.keys(found).length < count) {
    const { type, header } = await queue.pdu();
    if (type === pduType.r2t) {
      const id = header.readUInt16LE(8);
      queue.sendData(id, header.readUInt16LE(10), header.readUInt32LE(12), data[id] as Buffer);
    } else if (type === pduType.capsuleResp)
      found[header.readUInt16LE(20)] = (header.readUInt16LE(22) >>> 1) & 0x7ff;
    else throw new Error(`a PDU of type ${type}`);
  }
  return found;
}

function sendBoth(queue: HostQueue, expected: Buffer, data: Buffer, change: Partial<CommandFields> = {}) {
  queue.sendCommand({ ...first, sglKind: sgl.inCapsule }, expected);
  queue.sendCommand({ ...second, sglKind: sgl.inCapsule, ...change }, data);
}

describe("compare and write, fused", () => {
  it("is offered, and does both or neither", async () => {
    const { device, control, queue } = await serve();
    const controller = (await control.identify(1)).data;
    expect(controller.readUInt16LE(522)).toBe(1);
    expect(controller.readUInt16LE(532) + 1).toBe(128);
    sendBoth(queue, block(0), block(7));
    expect(await answers(queue, 2)).toEqual({ 1: 0, 2: 0 });
    expect(await device.compare(4096, block(7))).toBe(true);
    sendBoth(queue, block(0), block(8));
    expect(await answers(queue, 2)).toEqual({ 1: 0x285, 2: 0x09 });
    expect(await device.compare(4096, block(7))).toBe(true);
  });

  it("takes long data by R2T, of both at once", async () => {
    const { device, queue } = await serve();
    const length = mib / 2;
    const words = blocksOf(0, length / 4096);
    for (const value of [1, 2]) {
      queue.sendCommand({ ...first, words, bytes: length });
      queue.sendCommand({ ...second, words, bytes: length });
      const asked: number[] = [];
      const found: Record<number, number> = {};
      while (Object.keys(found).length < 2) {
        const { type, header } = await queue.pdu();
        if (type === pduType.capsuleResp)
          found[header.readUInt16LE(20)] = (header.readUInt16LE(22) >>> 1) & 0x7ff;
        else asked.push(header.readUInt16LE(8), header.readUInt16LE(10));
        if (asked.length < 4) continue;
        for (const [id = 0, tag = 0] of [asked.splice(0, 2), asked.splice(0, 2)])
          for (let at = 0; at < length; at += queue.maxHostDataBytes) {
            const isLast = at + queue.maxHostDataBytes === length;
            const part = block(id === 1 ? value - 1 : value, queue.maxHostDataBytes);
            queue.sendData(id, tag, at, part, isLast ? 4 : 0);
          }
      }
      expect(found).toEqual({ 1: 0, 2: 0 });
      expect(await device.compare(0, block(value, length))).toBe(true);
    }
  });

  it("lets no write of another queue come between", async () => {
    const { device, queue, openQueue } = await serve();
    const other = await openQueue(2);
    const read = device.read.bind(device);
    const compared = vi.spyOn(device, "compareAndWrite");
    for (let round = 1; round < 50; round++) {
      await device.write(4096, block(round));
      sendBoth(queue, block(round), block(100));
      const written = other.write(1, block(200));
      const found = await answers(queue, 2);
      expect((await written).status).toBe(0);
      const holds = block(0);
      await read(4096, holds);
      // Neither write is lost, in any order: the write is there, or it came first and the comparison failed.
      expect(holds.equals(block(200))).toBe(true);
      expect([found[1], found[2]]).toEqual(found[1] === 0 ? [0, 0] : [0x285, 0x09]);
    }
    expect(compared).toHaveBeenCalledTimes(49);
  });
});

describe("a fused operation that is wrong gets its statuses, changes nothing, and the next command is served", () => {
  it.each<[string, Partial<CommandFields>, Record<number, number>]>([
    ["another range", { words: blocksOf(2, 1) }, { 1: 0x02, 2: 0x02 }],
    ["another length", { words: blocksOf(1, 2) }, { 1: 0x02, 2: 0x02 }],
    ["another namespace", { nsid: 2 }, { 1: 0x02, 2: 0x02 }],
    ["an operation that there is not", { opcode: io.compare }, { 1: 0x02, 2: 0x02 }],
    ["PRPs instead of SGLs", { flags: 0x02 }, { 1: 0x09, 2: 0x02 }],
    ["a length of data that differs from the blocks", { bytes: 2048 }, { 1: 0x09, 2: 0x0f }],
    ["another kind of SGL", { sglKind: 0x40 }, { 1: 0x09, 2: 0x11 }],
    ["a tag in use", { id: 1 }, { 1: 0x0a }],
  ])("%s in the second command", async (_, change, expected) => {
    const { device, queue } = await serve();
    sendBoth(queue, block(0), block(7), change);
    const { id = 2 } = change;
    if (id === 1) {
      // The answer about the tag and the answer of the first command have the same number.
      const found = [await queue.pdu(), await queue.pdu()];
      expect(found.map(({ header }) => (header.readUInt16LE(22) >>> 1) & 0x7ff)).toEqual([0x0a, 0x03]);
    } else expect(await answers(queue, 2)).toEqual(expected);
    expect(await device.compare(0, block(0, 65_536))).toBe(true);
    expect((await queue.read(0, 4096)).status).toBe(0);
  });

  it("a first command without the second, and a second without the first", async () => {
    const { device, queue } = await serve();
    queue.sendCommand({ ...first, sglKind: sgl.inCapsule }, block(0));
    queue.sendCommand({ opcode: io.flush, nsid: 1, id: 3 });
    queue.sendCommand({ ...second, sglKind: sgl.inCapsule }, block(7));
    expect(await answers(queue, 3)).toEqual({ 1: 0x0a, 2: 0x0a, 3: 0 });
    queue.sendCommand({ ...first, sglKind: sgl.inCapsule }, block(0));
    queue.sendCommand({ ...first, id: 4, sglKind: sgl.inCapsule }, block(0));
    queue.sendCommand({ ...second, sglKind: sgl.inCapsule }, block(8));
    expect(await answers(queue, 3)).toEqual({ 1: 0x0a, 4: 0, 2: 0 });
    expect(await device.compare(4096, block(8))).toBe(true);
  });

  it("a range beyond the end, an unknown namespace, more blocks than are taken, and a disk without writes", async () => {
    const { queue } = await serve();
    const both = async (fields: Partial<CommandFields>, length = 4096) => {
      queue.sendCommand({ ...first, ...fields, bytes: length });
      queue.sendCommand({ ...second, ...fields, bytes: length });
      return answers(queue, 2);
    };
    expect(await both({ words: blocksOf(bytes / 4096, 1) })).toEqual({ 1: 0x80, 2: 0x09 });
    expect(await both({ nsid: 9 })).toEqual({ 1: 0x0b, 2: 0x09 });
    expect(await both({ words: blocksOf(0, 129) }, 129 * 4096)).toEqual({ 1: 0x02, 2: 0x02 });
    const readOnly = await serve(true);
    sendBoth(readOnly.queue, block(0), block(7));
    expect(await answers(readOnly.queue, 2)).toEqual({ 1: 0x09, 2: 0x182 });
  });

  it("data with a wrong digest", async () => {
    const { device, queue } = await serve();
    queue.sendCommand({ ...first, sglKind: sgl.inCapsule }, block(0));
    const write = queue.socket.write.bind(queue.socket);
    vi.spyOn(queue.socket, "write").mockImplementationOnce((message) => {
      const damaged = Buffer.from(message as Buffer);
      damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1;
      return write(damaged);
    });
    queue.sendCommand({ ...second, sglKind: sgl.inCapsule }, block(7));
    expect(await answers(queue, 2)).toEqual({ 1: 0x09, 2: 0x22 });
    expect(await device.compare(4096, block(0))).toBe(true);
  });
});
