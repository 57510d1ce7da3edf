import { once } from "node:events";
import { link, lstat, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { afterEach, describe, expect, it } from "vitest";
import { type BlockDevice, BlockDeviceError } from "../device/block-device.ts";
import { losesPower } from "../device/loses-power.ts";
import { memoryDevice, nullDevice } from "../device/memory-device.ts";
import { FakeSocket } from "../fake-socket.test-support.ts";
import { Exports } from "./exports.ts";
import {
  contextMessage,
  goMessage,
  NbdClient,
  named,
  oneExport,
  optionMessage,
  pathOf,
  requestMessage,
  uint32,
} from "./nbd-client.test-support.ts";
import { type NbdOptions, type NbdServer, nbdConnection, serveNbd } from "./nbd-server.ts";
import { command, errno, option, optionReply } from "./protocol.ts";

const mib = 1024 * 1024;
const bytes = 64 * mib;
const servers: NbdServer[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

async function serve(device: BlockDevice = memoryDevice({ bytes }), options: NbdOptions = {}) {
  const server = await serveNbd(device, options);
  servers.push(server);
  return { device, server, uri: server.uri };
}

/** A socket whose peer takes nothing of what is written. */
class UnreadSocket extends Duplex {
  #untaken: (error: Error) => void = () => {};
  override _read(): void {}
  override _write(_part: Buffer, _encoding: string, done: (error: Error) => void): void {
    this.#untaken = done;
  }
  override _destroy(_error: Error | null, done: () => void): void {
    this.#untaken(new Error("the peer has gone"));
    done();
  }
}

/** A device of which one operation is another. */
const withOperation = (device: BlockDevice, operation: Partial<BlockDevice>): BlockDevice =>
  new Proxy(device, {
    get: (target, name) => {
      const own = Reflect.get(operation, name) ?? Reflect.get(target, name, target);
      return typeof own === "function" ? own.bind(target) : own;
    },
  });

function stamped(length: number, seed: number): Buffer {
  const data = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) data.writeUInt32LE((at * 2_654_435_761 + seed) >>> 0, at);
  return data;
}

describe("the handshake", () => {
  it("greets, lists the export, and describes it", async () => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    expect((await client.greet()).toString("latin1", 0, 16)).toBe("NBDMAGICIHAVEOPT");
    client.send(optionMessage(option.list));
    expect(await client.optionReply()).toMatchObject({ type: optionReply.server, data: named("disk") });
    expect(await client.optionReply()).toMatchObject({ option: option.list, type: optionReply.ack });
    client.send(goMessage("disk", [3, 1, 77], option.info));
    const described = await client.optionReply();
    expect(described.data.readUInt16BE(0)).toBe(0);
    expect(described.data.readBigUInt64BE(2)).toBe(BigInt(bytes));
    // Has flags, flush, FUA, trim, zeroes, several connections, fast zeroes; DF comes with structured replies.
    expect(described.data.readUInt16BE(10)).toBe(1 | 4 | 8 | 32 | 64 | 256 | 2048);
    expect((await client.optionReply()).data.toString("latin1", 2)).toBe("disk");
    const sizes = (await client.optionReply()).data;
    expect([2, 6, 10].map((at) => sizes.readUInt32BE(at))).toEqual([1, 4096, 32 * mib]);
    expect((await client.optionReply()).type).toBe(optionReply.ack);
    client.send(optionMessage(option.abort));
    expect((await client.optionReply()).type).toBe(optionReply.ack);
    await client.ended();
  });

  it.each<[string, Buffer, number]>([
    ["an unknown export", goMessage("other"), optionReply.unknown],
    ["an option that nobody knows", optionMessage(99), optionReply.unsupported],
    ["TLS, without a certificate", optionMessage(option.startTls), optionReply.policy],
    ["extended headers", optionMessage(11), optionReply.unsupported],
    ["data where none belongs", optionMessage(option.list, Buffer.alloc(4)), optionReply.invalid],
    [
      "structured replies with data",
      optionMessage(option.structuredReply, Buffer.alloc(1)),
      optionReply.invalid,
    ],
    ["a name longer than the option", optionMessage(option.go, uint32(1000)), optionReply.invalid],
    ["a name of 2^32 - 1 bytes", optionMessage(option.go, uint32(0xffffffff)), optionReply.invalid],
    [
      "more information than is there",
      optionMessage(option.go, Buffer.concat([named("disk"), Buffer.from([255, 255])])),
      optionReply.invalid,
    ],
    [
      "bytes behind the end",
      optionMessage(option.go, Buffer.concat([named("disk"), Buffer.from([0, 0, 9])])),
      optionReply.invalid,
    ],
    ["contexts without structured replies", contextMessage(["base:allocation"]), optionReply.invalid],
    [
      "more contexts than are there",
      optionMessage(option.setMetaContext, Buffer.concat([named("disk"), uint32(0xffffffff)])),
      optionReply.invalid,
    ],
  ])("refuses %s, and goes on", async (_, message, type) => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(message);
    expect((await client.optionReply()).type).toBe(type);
    client.send(goMessage(""));
    while ((await client.optionReply()).type !== optionReply.ack);
    client.send(requestMessage({ type: command.flush }));
    expect((await client.simple()).error).toBe(0);
  });

  it.each<[string, Buffer]>([
    ["unknown flags", uint32(4)],
    ["another magic number", Buffer.concat([uint32(3), Buffer.alloc(16)])],
    [
      "an option longer than 64 KiB",
      Buffer.concat([uint32(3), optionMessage(3).subarray(0, 12), uint32(65_537)]),
    ],
    [
      "an unknown export by EXPORT_NAME",
      Buffer.concat([uint32(3), optionMessage(option.exportName, Buffer.from("x"))]),
    ],
  ])("ends the connection after %s", async (_, message) => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    client.send(message);
    await client.ended();
  });

  it.each([
    [3, 10],
    [1, 134],
  ])("takes EXPORT_NAME with the flags %i: %i bytes", async (flags, length) => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet(flags);
    client.send(optionMessage(option.exportName, Buffer.from("disk")));
    expect((await client.take(length)).readBigUInt64BE(0)).toBe(BigInt(bytes));
    client.send(requestMessage({ type: command.read, offset: 4096, bytes: 4096 }));
    expect(await client.simple(4096)).toMatchObject({ error: 0, cookie: 1, data: Buffer.alloc(4096) });
  });

  it("offers and selects base:allocation", async () => {
    const { uri } = await serve();
    const client = await NbdClient.connect(uri);
    await client.greet();
    client.send(optionMessage(option.structuredReply));
    await client.optionReply();
    for (const queries of [[], ["base:"], ["other:x", "base:allocation"]]) {
      client.send(contextMessage(queries, option.listMetaContext));
      expect((await client.optionReply()).data.toString("latin1", 4)).toBe("base:allocation");
      expect((await client.optionReply()).type).toBe(optionReply.ack);
    }
    client.send(contextMessage(["other:x"]));
    expect((await client.optionReply()).type).toBe(optionReply.ack);
  });
});

describe("several disks", () => {
  /** Disks of different lengths, by their names. */
  async function serveSeveral() {
    const disks = new Map(
      ["a.img", "b/c d.img", "é"].map((name, index) => [name, memoryDevice({ bytes: (index + 1) * mib })]),
    );
    const server = await serveNbd(disks);
    servers.push(server);
    return { disks, server };
  }

  it("are listed, and each is chosen by its name", async () => {
    const { disks, server } = await serveSeveral();
    const ends = ["a.img", "b%2Fc%20d.img", "%C3%A9"];
    const path = pathOf(server.uri);
    expect(server.uris).toEqual(ends.map((end) => `nbd+unix:///${end}?socket=${path}`));
    expect(server.uri).toBe(server.uris[0]);
    for (const [name, device] of disks) {
      const client = await NbdClient.connect(server.uri);
      await client.greet();
      client.send(optionMessage(option.list));
      for (const listed of disks.keys())
        expect(await client.optionReply()).toMatchObject({ type: optionReply.server, data: named(listed) });
      expect((await client.optionReply()).type).toBe(optionReply.ack);
      client.send(optionMessage(option.structuredReply));
      await client.acknowledged();
      client.send(goMessage(name, [1]));
      expect((await client.optionReply()).data.readBigUInt64BE(2)).toBe(BigInt(device.bytes));
      expect((await client.optionReply()).data.toString("utf8", 2)).toBe(name);
      await client.acknowledged();
      const data = stamped(4096, device.bytes);
      const offset = device.bytes - 4096;
      expect(await client.errorOf({ type: command.write, offset, bytes: 4096 }, data)).toBe(0);
      expect(await client.errorOf({ type: command.write, offset: device.bytes, bytes: 4096 }, data)).toBe(
        errno.noSpace,
      );
    }
    for (const device of disks.values()) {
      const data = Buffer.alloc(4096);
      await device.read(device.bytes - 4096, data);
      expect(data.equals(stamped(4096, device.bytes))).toBe(true);
    }
    const client = await NbdClient.connect(server.uri);
    await client.greet();
    client.send(optionMessage(option.exportName, Buffer.from("b/c d.img")));
    expect((await client.take(10)).readBigUInt64BE(0)).toBe(BigInt(2 * mib));
  });

  it("have no default, and the refusal says how to choose", async () => {
    const { server } = await serveSeveral();
    const client = await NbdClient.connect(server.uri);
    await client.greet();
    for (const [name, message] of [
      ["", "this server has several exports: choose one by its name, as LIST shows them"],
      ["disk", "this server has no export of that name: LIST shows the names"],
    ] as const)
      for (const number of [option.info, option.go]) {
        client.send(goMessage(name, [], number));
        expect(await client.optionReply()).toEqual({
          option: number,
          type: optionReply.unknown,
          data: Buffer.from(message),
        });
      }
    const older = await NbdClient.connect(server.uri);
    await older.greet();
    older.send(optionMessage(option.exportName));
    await older.ended();
  });

  it("do not share what was agreed for another one", async () => {
    const { server } = await serveSeveral();
    const client = await NbdClient.connect(server.uri);
    await client.greet();
    client.send(optionMessage(option.structuredReply));
    await client.acknowledged();
    client.send(contextMessage(["base:allocation"], option.setMetaContext, "a.img"));
    await client.acknowledged();
    client.send(goMessage("é"));
    await client.acknowledged();
    expect(await client.errorOf({ type: command.blockStatus, bytes: 4096 })).toBe(errno.invalid);
  });

  it("need names that fit", async () => {
    const device = nullDevice({ bytes });
    const many = (count: number, length: number) =>
      new Map(Array.from({ length: count }, (_, index) => [`${index}`.padStart(length, "x"), device]));
    for (const [disks, options, message] of [
      [new Map(), {}, "serveNbd: give 1 to 256 disks, not 0"],
      [many(257, 4), {}, "serveNbd: give 1 to 256 disks, not 257"],
      [
        new Map([["", device]]),
        {},
        "serveNbd: the name of a disk must be a well-formed string of 1 to 4096 bytes",
      ],
      [new Map([["a\ud800", device]]), {}, "serveNbd: the name of a disk must be a well-formed string of"],
      [many(1, 1), { path: "/tmp/\udc00" }, "serveNbd: path must be a well-formed string"],
      [many(1, 4097), {}, "serveNbd: the name of a disk must be a well-formed string of 1 to 4096 bytes"],
      [many(17, 4096), {}, "serveNbd: the names of all disks may have 65536 bytes, they have 69632"],
      [
        many(2, 4),
        { name: "x" },
        "serveNbd: name is for a single disk: the names of several are the keys of the map",
      ],
    ] as const)
      await expect(serveNbd(disks, options)).rejects.toThrow(message);
  });
});

describe("a rate for each host", () => {
  /** After the first read the host is in debt for more than four minutes. */
  const slow = { maxBytesPerSecond: 4096 };
  const read = requestMessage({ type: command.read, bytes: mib });

  it("lets requests wait, which the counts show, over all connections of a host", async () => {
    const { uri, server } = await serve(nullDevice({ bytes }), slow);
    const [first, second] = [await NbdClient.open(uri), await NbdClient.open(uri)];
    expect((await first.read(0, mib)).length).toBe(mib);
    expect(server.stats()).toMatchObject({ waiting: 0, waitingBytes: 0 });
    // One request of a connection waits, and what is behind it is not read.
    first.send(read, read);
    second.send(read, requestMessage({ type: command.flush }));
    await expect
      .poll(() => server.stats())
      .toMatchObject({ waiting: 2, waitingBytes: 2 * mib, open: 2, reads: 1 });
    // A client that goes does not wait for its turn, and neither does the end of the server.
    first.socket.destroy();
    await expect.poll(() => server.stats()).toMatchObject({ waiting: 1, waitingBytes: mib, open: 1 });
    await server.close();
    expect(server.stats()).toMatchObject({ waiting: 0, waitingBytes: 0, open: 0, reads: 1, failed: 0 });
  });

  it("holds for a host that connects again", async () => {
    const { uri, server } = await serve(nullDevice({ bytes }), slow);
    const first = await NbdClient.open(uri);
    await first.read(0, mib);
    first.socket.destroy();
    await expect.poll(() => server.stats().open).toBe(0);
    const second = await NbdClient.open(uri);
    second.send(read);
    await expect.poll(() => server.stats()).toMatchObject({ waiting: 1, reads: 1 });
  });

  it("takes no bytes of it for reads that are refused", async () => {
    const { uri } = await serve(nullDevice({ bytes }), slow);
    const client = await NbdClient.open(uri);
    for (const refused of [{ bytes: 2 ** 32 - 4096 }, { bytes: mib, offset: 2 ** 50 }])
      expect(await client.errorOf({ type: command.read, ...refused })).toBe(errno.invalid);
    expect((await client.read(0, mib)).length).toBe(mib);
  });

  it("does not bind another host", async () => {
    const { server } = await serve(nullDevice({ bytes }), { ...slow, port: 0 });
    const [one, other] = [
      await NbdClient.open(server.uri, { localAddress: "127.0.0.1" }),
      await NbdClient.open(server.uri, { localAddress: "127.0.0.2" }),
    ];
    await one.read(0, mib);
    one.send(read);
    await expect.poll(() => server.stats().waiting).toBe(1);
    await other.read(0, mib);
    expect(server.stats()).toMatchObject({ waiting: 1, reads: 2 });
  });

  it("lets a write wait before its data are read, and nothing of it is done after the end", async () => {
    const device = memoryDevice({ bytes });
    const { uri, server } = await serve(device, slow);
    const client = await NbdClient.open(uri);
    expect(await client.errorOf({ type: command.write, bytes: mib }, stamped(mib, 1))).toBe(0);
    client.send(requestMessage({ type: command.write, bytes: 4096 }), stamped(4096, 2));
    await expect.poll(() => server.stats()).toMatchObject({ waiting: 1, waitingBytes: 4096, writes: 1 });
    await server.close();
    await client.ended();
    expect(await device.compare(0, stamped(mib, 1))).toBe(true);
  });
});

describe("zeroes that must be fast", () => {
  const fast = { type: command.writeZeroes, flags: 16 };
  const filled = async (device: BlockDevice) => {
    await device.write(0, Buffer.alloc(3 * 4096, 7));
    return device;
  };
  const bytesOf = async (device: BlockDevice) => {
    const all = Buffer.alloc(3 * 4096);
    await device.read(0, all);
    return all;
  };
  /** Only trims are fast here, and they may leave the blocks as they are. */
  const slowDevice = () =>
    withOperation(memoryDevice({ bytes }), {
      writeZeroes: async (_offset, _bytes, { onlyFast = false } = {}) => {
        if (onlyFast) throw new BlockDeviceError("unsupported", "slow");
      },
    });

  it("zero the edges of their range too, where whole blocks between them are fast", async () => {
    const device = await filled(memoryDevice({ bytes }));
    const { uri } = await serve(device);
    const client = await NbdClient.open(uri);
    expect(await client.errorOf({ ...fast, offset: 100, bytes: 3 * 4096 - 200 })).toBe(0);
    const expected = Buffer.alloc(3 * 4096, 7).fill(0, 100, 3 * 4096 - 100);
    expect((await bytesOf(device)).equals(expected)).toBe(true);
  });

  it.each([
    ["parts of one block", memoryDevice, 100, 200],
    ["parts of two blocks", memoryDevice, 4000, 200],
    ["whole blocks that are slow", slowDevice, 0, 8192],
    ["blocks with edges, where whole ones are slow", slowDevice, 100, 10_000],
  ])("are refused for %s, and nothing changes", async (_, newDevice, offset, length) => {
    const device = await filled(newDevice({ bytes }));
    const { uri } = await serve(device);
    const client = await NbdClient.open(uri);
    expect(await client.errorOf({ ...fast, offset, bytes: length })).toBe(errno.notSupported);
    expect((await bytesOf(device)).equals(Buffer.alloc(3 * 4096, 7))).toBe(true);
  });
});

describe("requests", () => {
  it("write and read in pieces of any order, and report what takes space", async () => {
    const { uri } = await serve();
    const client = await NbdClient.open(uri);
    const data = stamped(3 * mib + 4096, 1);
    expect(await client.errorOf({ type: command.write, offset: mib, bytes: data.length }, data)).toBe(0);
    expect((await client.read(mib, data.length)).equals(data)).toBe(true);
    client.send(requestMessage({ type: command.blockStatus, bytes: 8 * mib }));
    const { type, payload } = await client.chunk();
    expect(type).toBe(5);
    const numbers = Array.from({ length: payload.length / 4 }, (_, index) => payload.readUInt32BE(4 * index));
    const written = 3 * mib + 65_536;
    expect(numbers).toEqual([1, mib, 3, written, 0, 7 * mib - written, 3]);
    client.send(requestMessage({ type: command.blockStatus, bytes: 8 * mib, flags: 8 }));
    expect((await client.chunk()).payload.length).toBe(12);
  });

  it("have simple replies without structured ones, of which a long one is not interrupted", async () => {
    const { uri, device } = await serve();
    const data = stamped(4 * mib, 2);
    await device.write(0, data);
    const client = await NbdClient.open(uri, { isStructured: false });
    const long = requestMessage({ type: command.read, cookie: 7, bytes: data.length });
    const short = (cookie: number) => requestMessage({ type: command.read, cookie, bytes: 4096 });
    client.send(long, ...Array.from({ length: 100 }, (_, index) => short(100 + index)), long);
    const seen: number[] = [];
    for (let count = 0; count < 102; count++) {
      const head = await client.take(16);
      const cookie = Number(head.readBigUInt64BE(8));
      const read = await client.take(cookie === 7 ? data.length : 4096);
      expect(read.equals(data.subarray(0, read.length))).toBe(true);
      seen.push(cookie);
    }
    expect(new Set(seen).size).toBe(101);
  });

  it("that fail within a long simple reply end the connection, and no other answer fills the reply", async () => {
    const healthy = memoryDevice({ bytes });
    let fail = () => {};
    const failing = new Promise<void>(
      (_, reject) => (fail = () => reject(new BlockDeviceError("io", "gone"))),
    );
    failing.catch(() => {});
    const read: BlockDevice["read"] = async (offset, into) => {
      if (offset === mib) await failing;
      return healthy.read(offset, into);
    };
    const { uri, server } = await serve(withOperation(healthy, { read }));
    const client = await NbdClient.open(uri, { isStructured: false });
    const long = requestMessage({ type: command.read, cookie: 7, bytes: 4 * mib });
    const short = requestMessage({ type: command.read, cookie: 8, offset: 8 * mib, bytes: 4 * mib });
    client.send(long, short, short);
    await client.take(16 + mib);
    // Both others wait for their turn.
    while (server.stats().reads < 3) await new Promise(setImmediate);
    fail();
    await expect(client.take(3 * mib)).rejects.toThrow();
  });

  it("trim, write zeroes and flush; FUA and flush survive the loss of power, and nothing else", async () => {
    const device = losesPower(memoryDevice({ bytes }));
    const { uri } = await serve(device);
    const client = await NbdClient.open(uri);
    const block = stamped(4096, 9);
    const at = (index: number) => ({ offset: index * 4096, bytes: 4096 });
    expect(await client.errorOf({ type: command.write, ...at(0), flags: 1 }, block)).toBe(0);
    expect(await client.errorOf({ type: command.write, ...at(1) }, block)).toBe(0);
    expect(await client.errorOf({ type: command.flush })).toBe(0);
    expect(await client.errorOf({ type: command.writeZeroes, ...at(1), flags: 1 | 2 })).toBe(0);
    expect(await client.errorOf({ type: command.write, ...at(2) }, block)).toBe(0);
    expect(await client.errorOf({ type: command.trim, ...at(0) })).toBe(0);
    expect((await client.read(0, 4096)).equals(Buffer.alloc(4096))).toBe(true);
    await device.cutPower();
    expect(await client.errorOf({ type: command.flush })).toBe(errno.io);
    await device.restorePower();
    const after = await client.read(0, 3 * 4096);
    expect(after.equals(Buffer.concat([block, Buffer.alloc(8192)]))).toBe(true);
  });

  it.each<[string, object, number]>([
    ["a read beyond the end", { type: command.read, offset: bytes, bytes: 4096 }, errno.invalid],
    ["a read from 2^64 - 1", { type: command.read, offset: 2n ** 64n - 1n, bytes: 4096 }, errno.invalid],
    ["a write beyond the end", { type: command.write, offset: bytes - 4096, bytes: 8192 }, errno.noSpace],
    ["a write from 2^63", { type: command.write, offset: 2n ** 63n, bytes: 4096 }, errno.noSpace],
    ["zeroes beyond the end", { type: command.writeZeroes, offset: bytes, bytes: 4096 }, errno.noSpace],
    ["a trim beyond the end", { type: command.trim, bytes: 0xfffff000 }, errno.invalid],
    ["a length of 0", { type: command.read }, errno.invalid],
    ["a read of more than 32 MiB", { type: command.read, bytes: 32 * mib + 4096 }, errno.invalid],
    ["a read in one piece that is too long", { type: command.read, bytes: mib, flags: 4 }, errno.overflow],
    ["an unknown request", { type: 55 }, errno.invalid],
    ["CACHE, which is not offered", { type: 5, bytes: 4096 }, errno.invalid],
    ["unknown flags", { type: command.read, bytes: 4096, flags: 0x4000 }, errno.invalid],
    ["unknown flags of a write", { type: command.write, bytes: 4096, flags: 16 }, errno.invalid],
    ["a flush of a range", { type: command.flush, bytes: 4096 }, errno.invalid],
  ])("that are wrong get their error, and the next is served: %s", async (_, request, expected) => {
    const { uri, server } = await serve();
    const client = await NbdClient.open(uri);
    const fields = { type: 0, bytes: 0, ...request };
    const data = Buffer.alloc(fields.type === command.write ? fields.bytes : 0, 0xaa);
    expect(await client.errorOf(fields, data)).toBe(expected);
    expect((await client.read(0, 4096)).equals(Buffer.alloc(4096))).toBe(true);
    expect(server.stats().failed).toBe(1);
  });

  it("have a simple reply to a long read that begins and ends within a block", async () => {
    const { uri, device } = await serve();
    const data = stamped(mib, 2);
    await device.write(0, data);
    const client = await NbdClient.open(uri, { isStructured: false });
    client.send(requestMessage({ type: command.read, offset: 1001, bytes: 700_001 }));
    expect((await client.simple(700_001)).data.equals(data.subarray(1001, 701_002))).toBe(true);
  });

  it("for fast zeroes are refused where the device would write them, and change nothing", async () => {
    const { uri, device } = await serve();
    const client = await NbdClient.open(uri);
    const data = stamped(mib, 3);
    await device.write(0, data);
    const zeroes = { type: command.writeZeroes, offset: 100, bytes: mib - 200 };
    expect(await client.errorOf({ ...zeroes, flags: 2 | 16 })).toBe(errno.notSupported);
    expect(await device.compare(0, data)).toBe(true);
    expect(await client.errorOf({ ...zeroes, flags: 16 })).toBe(0);
    data.fill(0, 100, mib - 100);
    expect(await device.compare(0, data)).toBe(true);
  });

  it("of block status need its context", async () => {
    const { uri } = await serve();
    const client = await NbdClient.open(uri, { hasAllocation: false });
    expect(await client.errorOf({ type: command.blockStatus, bytes: 4096 })).toBe(errno.invalid);
  });

  it.each([command.write, command.trim, command.writeZeroes])(
    "of type %i to a read-only device are not permitted",
    async (type) => {
      const { uri } = await serve(memoryDevice({ bytes, isReadOnly: true }));
      const client = await NbdClient.open(uri);
      const data = Buffer.alloc(type === command.write ? 4096 : 0);
      expect(await client.errorOf({ type, bytes: 4096 }, data)).toBe(errno.perm);
    },
  );

  it("that the device fails get the number of its error", async () => {
    const failing = async () => {
      throw new BlockDeviceError("no_space", "the test's disk is full");
    };
    const { uri } = await serve(
      withOperation(memoryDevice({ bytes }), {
        write: failing,
        trim: failing,
        read: () => Promise.reject(new Error("a fault")),
      }),
    );
    const client = await NbdClient.open(uri);
    expect(await client.errorOf({ type: command.write, bytes: mib }, Buffer.alloc(mib))).toBe(errno.noSpace);
    expect(await client.errorOf({ type: command.trim, bytes: mib })).toBe(errno.noSpace);
    expect(await client.errorOf({ type: command.read, bytes: mib })).toBe(errno.io);
    expect(await client.errorOf({ type: command.flush })).toBe(0);
  });

  it("end the connection where a simple reply fails in its middle", async () => {
    const device = memoryDevice({ bytes });
    const { uri } = await serve(
      withOperation(device, {
        read: (offset, into) =>
          offset === 0 ? device.read(offset, into) : Promise.reject(new Error("a fault")),
      }),
    );
    const client = await NbdClient.open(uri, { isStructured: false });
    client.send(requestMessage({ type: command.read, bytes: mib }));
    await client.take(16 + 256 * 1024);
    await client.ended();
  });
});

describe("requests that begin or end within a block", () => {
  it.each([512, 4096, 65_536])("are served, on blocks of %i bytes", async (blockBytes) => {
    const { uri, device, server } = await serve(memoryDevice({ bytes, blockBytes }));
    const client = await NbdClient.open(uri);
    const model = stamped(mib, 1);
    await device.write(0, model);
    const ranges: readonly (readonly [offset: number, length: number])[] = [
      ...([
        [0, 1],
        [1, 1],
        [511, 2],
        [4095, 2],
        [100, 300],
        [513, 511],
        [65_535, 65_538],
      ] as const),
      ...([
        [512, 512],
        [4096, 100],
        [4000, 96],
        [1, mib - 2],
        [300_000, 262_144],
        [255, 600_001],
      ] as const),
    ];
    for (const [offset, length] of ranges) {
      const data = stamped(length + 4 - (length % 4), offset).subarray(0, length);
      expect(await client.errorOf({ type: command.write, offset, bytes: length, flags: 1 }, data)).toBe(0);
      data.copy(model, offset);
      expect((await client.read(offset, length)).equals(data)).toBe(true);
      const [at, zeroes] = [offset + Math.floor(length / 3), Math.ceil(length / 3)];
      expect(await client.errorOf({ type: command.writeZeroes, offset: at, bytes: zeroes })).toBe(0);
      model.fill(0, at, at + zeroes);
      expect(await device.compare(0, model)).toBe(true);
    }
    // The bytes of a trim are lost where it is of whole blocks. No others are.
    const [from, to] = [blockBytes - 1, 3 * blockBytes + 1];
    expect(await client.errorOf({ type: command.trim, offset: from, bytes: to - from })).toBe(0);
    model.fill(0, blockBytes, 3 * blockBytes);
    expect(await device.compare(0, model)).toBe(true);
    expect(await client.errorOf({ type: command.trim, offset: 1, bytes: 1 })).toBe(0);
    expect(await device.compare(0, model)).toBe(true);
    client.send(requestMessage({ type: command.blockStatus, offset: mib - 1, bytes: 70_002 }));
    const { payload } = await client.chunk();
    expect(Array.from({ length: payload.length / 4 }, (_, index) => payload.readUInt32BE(4 * index))).toEqual(
      [1, 1, 0, 70_001, 3],
    );
    expect(server.stats().failed).toBe(0);
  });

  it("lose no bytes of others that write the same blocks, at another server too", async () => {
    // Each operation takes one to three turns of the event loop, so that all orders come.
    let turns = 0;
    const slow = async () => {
      for (let left = turns++ % 3; left >= 0; left--) await new Promise(setImmediate);
    };
    const memory = memoryDevice({ bytes });
    const device = withOperation(memory, {
      read: async (offset, into) => {
        await memory.read(offset, into);
        await slow();
      },
      write: async (offset, data, options) => {
        await slow();
        await memory.write(offset, data, options);
      },
    });
    const { uri } = await serve(device);
    const other = await serve(device);
    const width = 1000;
    // Five clients have bytes of their own in two blocks, and write them again and again.
    const owners = [0, 1, 2, 3, 4].map(async (index) => {
      const client = await NbdClient.open(index % 2 === 0 ? uri : other.uri);
      const offset = index * width;
      for (let round = 1; round <= 40; round++) {
        const fields = { type: command.write, offset, bytes: width };
        expect(await client.errorOf(fields, Buffer.alloc(width, 16 * index + (round % 16)))).toBe(0);
        expect(
          (await client.read(offset, width)).equals(Buffer.alloc(width, 16 * index + (round % 16))),
        ).toBe(true);
      }
    });
    // A client writes whole blocks, of which another changes a part at the same time.
    const whole = await NbdClient.open(uri);
    const part = await NbdClient.open(other.uri);
    for (let round = 1; round <= 40; round++) {
      const place = { type: command.write, offset: 8192 };
      await Promise.all([
        whole.errorOf({ ...place, bytes: 4096 }, Buffer.alloc(4096, round)),
        part.errorOf({ ...place, bytes: 100 }, Buffer.alloc(100, 200)),
      ]);
      expect((await whole.read(8292, 3996)).equals(Buffer.alloc(3996, round))).toBe(true);
    }
    await Promise.all(owners);
  });

  it("of many parts of one block at the same time are all done", async () => {
    const { uri } = await serve(memoryDevice({ bytes, blockBytes: 65_536 }));
    const client = await NbdClient.open(uri, { isStructured: false });
    const parts = Array.from({ length: 128 }, (_, index) => index);
    const messages = parts.flatMap((index) => [
      requestMessage({ type: command.write, cookie: index, offset: index * 512, bytes: 512 }),
      Buffer.alloc(512, index),
    ]);
    client.send(...messages);
    for (const _ of parts) expect((await client.simple()).error).toBe(0);
    client.send(requestMessage({ type: command.read, bytes: 65_536 }));
    const { data } = await client.simple(65_536);
    for (const index of parts)
      expect(data.subarray(index * 512, index * 512 + 512).equals(Buffer.alloc(512, index))).toBe(true);
  });
});

describe("a client that breaks the protocol", () => {
  it.each<[string, Buffer]>([
    ["with another magic number", Buffer.alloc(28, 1)],
    ["with a write of 4 GiB", requestMessage({ type: command.write, bytes: 0xffffffff })],
  ])("loses its connection, and no other does: %s", async (_, message) => {
    const { uri } = await serve();
    const other = await NbdClient.open(uri);
    const client = await NbdClient.open(uri);
    client.send(message);
    await client.ended();
    expect(await other.errorOf({ type: command.flush })).toBe(0);
  });

  it.each([
    [0, 4096],
    [0, 4 * mib],
    [513, 3 * mib],
  ])("by leaving within a write at %i of %i bytes changes nothing", async (offset, length) => {
    const { uri, device, server } = await serve();
    const client = await NbdClient.open(uri);
    client.send(requestMessage({ type: command.write, offset, bytes: length }), Buffer.alloc(length - 1, 1));
    client.socket.end();
    await client.ended();
    await expect.poll(() => server.stats().open).toBe(0);
    expect(await device.extents(0, bytes)).toEqual([{ bytes, kind: "hole" }]);
  });

  it("by leaving within a write that is longer than its memory may have changed what it sent", async () => {
    const { uri, device, server } = await serve(memoryDevice({ bytes }), { maxBytesPerConnection: mib });
    const client = await NbdClient.open(uri);
    client.send(requestMessage({ type: command.write, bytes: 2 * mib }), Buffer.alloc(2 * mib - 1, 1));
    client.socket.end();
    await client.ended();
    await expect.poll(() => server.stats().open).toBe(0);
    expect(await device.compare(0, Buffer.alloc(mib, 1))).toBe(true);
    expect((await device.extents(2 * mib, bytes - 2 * mib))[0]?.kind).toBe("hole");
  });
});

describe("clients that are silent or slow", () => {
  it("are ended when a thousand of them wait in their handshake, and no other is disturbed", async () => {
    const { uri, server } = await serve(nullDevice({ bytes }), { maxHandshakes: 64 });
    const good = await NbdClient.open(uri);
    const silent = [];
    for (let count = 0; count < 1000; count++) {
      const socket = connect(pathOf(uri)).on("error", () => {});
      await once(socket, "connect");
      silent.push(socket);
    }
    expect(await good.errorOf({ type: command.flush })).toBe(0);
    const late = await NbdClient.open(uri);
    expect(await late.errorOf({ type: command.flush })).toBe(0);
    expect(server.stats()).toMatchObject({ open: 2 });
    expect(server.stats().inHandshake).toBeLessThanOrEqual(64);
    expect(server.stats().refused).toBeGreaterThanOrEqual(1000 - 64);
    for (const socket of silent) socket.destroy();
  });

  it("are ended when their handshake takes too long", async () => {
    const { uri } = await serve(nullDevice({ bytes }), { handshakeTimeoutMs: 20 });
    const client = await NbdClient.connect(uri);
    await client.ended();
  });

  it("are ended when they stop within a write, and not when they ask for nothing", async () => {
    const { uri, server } = await serve(nullDevice({ bytes }), { stallTimeoutMs: 50 });
    const idle = await NbdClient.open(uri);
    const client = await NbdClient.open(uri);
    client.send(requestMessage({ type: command.write, bytes: mib }), Buffer.alloc(mib - 1));
    await client.ended();
    const other = await NbdClient.open(uri);
    other.send(requestMessage({ type: command.flush }).subarray(0, 5));
    await other.ended();
    expect(await idle.errorOf({ type: command.flush })).toBe(0);
    expect(server.stats()).toMatchObject({ open: 1, refused: 2 });
  });

  it("take memory for a bounded number of bytes when they do not read their answers, and are ended", async () => {
    let bytesRead = 0;
    const device = nullDevice({ bytes });
    const counting = withOperation(device, {
      read: (offset, into) => {
        bytesRead += into.length;
        return device.read(offset, into);
      },
    });
    const { uri } = await serve(counting, { stallTimeoutMs: 200 });
    const client = await NbdClient.open(uri);
    client.socket.pause();
    const request = requestMessage({ type: command.read, bytes: 32 * mib });
    client.send(...Array.from({ length: 1000 }, () => request));
    const good = await NbdClient.open(uri);
    expect((await good.read(0, 4096)).length).toBe(4096);
    await expect.poll(() => servers[0]?.stats().open).toBe(1);
    // 4 MiB of the connection, what the kernel took of it, and what the other client read; of 31 GiB asked for.
    expect(bytesRead).toBeLessThan(16 * mib);
    client.socket.destroy();
  });

  it("are turned away when there are as many as may be", async () => {
    const { uri, server } = await serve(nullDevice({ bytes }), { maxConnections: 1 });
    const first = await NbdClient.open(uri);
    const second = await NbdClient.connect(uri);
    await second.greet();
    // Questions are answered, and take no place.
    second.send(goMessage("disk", [], option.info));
    await second.acknowledged();
    second.send(goMessage("disk"));
    expect(await second.optionReply()).toMatchObject({
      type: optionReply.policy,
      data: Buffer.from("this server serves as many connections as it may"),
    });
    await second.ended();
    const third = await NbdClient.connect(uri);
    await third.greet();
    third.send(optionMessage(option.exportName, Buffer.from("disk")));
    await third.ended();
    expect(await first.errorOf({ type: command.flush })).toBe(0);
    await expect.poll(() => server.stats()).toMatchObject({ open: 1, inHandshake: 0, refused: 2 });
    first.socket.destroy();
    await expect.poll(() => server.stats().open).toBe(0);
    expect(await (await NbdClient.open(uri)).errorOf({ type: command.flush })).toBe(0);
  });

  const longNames = Array.from({ length: 256 }, (_, index) => `${index}`.padStart(256, "d"));
  it.each([
    {
      what: "INFO",
      flooded: goMessage("", [1, 3], option.info),
      names: ["d".repeat(1024)],
      most: 8192,
    },
    // Behind the greeting: each answer to LIST has all names.
    { what: "LIST", flooded: optionMessage(option.list), names: longNames, most: 18 + 256 * (256 + 24) + 20 },
  ])("hold little memory where they flood $what and read no answer", async ({ flooded, names, most }) => {
    const socket = new UnreadSocket().on("error", () => {}); // "close" follows
    const device = nullDevice({ bytes });
    const exports = new Exports("test", new Map(names.map((name) => [name, device])));
    const connection = nbdConnection(socket, exports, {
      ...{ maxBytes: mib, admit: () => true },
      counts: { reads: 0, writes: 0, others: 0, failed: 0 },
    });
    const run = connection.run();
    socket.push(uint32(3));
    const flood = Buffer.concat(Array.from({ length: 4000 }, () => flooded));
    let pushed = 0;
    // A socket that is paused has a full buffer of its own, and the kernel's.
    for (let round = 0; round < 200; round++) {
      if (socket.readableFlowing !== false || round === 0) {
        socket.push(flood);
        pushed++;
      }
      await new Promise(setImmediate);
    }
    expect(pushed).toBeLessThan(4);
    // One option is answered at a time.
    expect(socket.writableLength).toBeGreaterThan(0);
    expect(socket.writableLength).toBeLessThanOrEqual(most);
    socket.destroy();
    await run;
  });

  it("let others run where they flood options and read all answers", async () => {
    const socket = new FakeSocket();
    const connection = nbdConnection(socket, oneExport(nullDevice({ bytes })), {
      ...{ maxBytes: mib, admit: () => true },
      counts: { reads: 0, writes: 0, others: 0, failed: 0 },
    });
    const run = connection.run();
    let turns = 0;
    let isOver = false;
    void (async () => {
      for (; !isOver; turns++) await new Promise(setImmediate);
    })();
    const options = 500;
    socket.push(uint32(3));
    socket.push(Buffer.concat(Array.from({ length: options }, () => goMessage("", [1, 3], option.info))));
    socket.push(optionMessage(option.abort));
    await run;
    isOver = true;
    expect(turns).toBeGreaterThanOrEqual(options - 1);
  });
});

describe("serving", () => {
  it("ends with the answers of what was under way", async () => {
    let finish = () => {};
    const isHeld = new Promise<void>((resolve) => (finish = resolve));
    const { uri, server } = await serve(withOperation(nullDevice({ bytes }), { flush: () => isHeld }));
    const client = await NbdClient.open(uri);
    client.send(requestMessage({ type: command.flush, cookie: 5 }));
    await expect.poll(() => server.stats().others).toBe(1);
    const closed = server.close();
    finish();
    expect((await client.chunk()).cookie).toBe(5);
    await closed;
    await client.ended();
    await expect(lstat(pathOf(uri))).rejects.toThrow("ENOENT");
  });

  it("lets this user alone open the socket, and takes the place of a server that died", async () => {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-nbd-test-"));
    try {
      const path = join(folder, "disk.sock");
      await serve(nullDevice({ bytes }), { path });
      expect((await lstat(path)).mode & 0o777).toBe(0o600);
      await expect(serveNbd(nullDevice({ bytes }), { path })).rejects.toThrow("serveNbd: cannot listen: ");
      const file = join(folder, "file");
      await writeFile(file, "mine");
      await expect(serveNbd(nullDevice({ bytes }), { path: file })).rejects.toThrow("EADDRINUSE");
      expect((await lstat(file)).size).toBe(4);
    } finally {
      for (const server of servers.splice(0)) await server.close();
      await rm(folder, { recursive: true });
    }
  });

  it("begins once at a path, also where several start together at the socket of a server that died", async () => {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-nbd-test-"));
    try {
      for (let round = 0; round < 20; round++) {
        const path = join(folder, `${round}.sock`);
        const dead = createServer().listen(join(folder, "dead"));
        await once(dead, "listening");
        await link(join(folder, "dead"), path);
        await new Promise((resolve) => dead.close(resolve));
        const started = await Promise.allSettled(
          Array.from({ length: 4 }, () => serveNbd(nullDevice({ bytes }), { path })),
        );
        const up = started.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
        servers.push(...up);
        expect(up.length).toBe(1);
        for (const one of started)
          if (one.status === "rejected")
            expect(one.reason.message).toMatch(/^serveNbd: cannot listen: EADDRINUSE/);
        const client = await NbdClient.open(`nbd+unix:///disk?socket=${path}`);
        expect(await client.errorOf({ type: command.flush })).toBe(0);
      }
      for (const server of servers.splice(0)) await server.close();
      expect(await readdir(folder)).toEqual([]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it("asks whether a silent client of TCP is still there", async () => {
    const { uri } = await serve(nullDevice({ bytes }), { port: 0 });
    const port = Number(new URL(uri.replace("nbd:", "http:")).port);
    const socket = connect(port, "127.0.0.1");
    await once(socket, "data"); // the greeting
    const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
    /** The timer of the server's side of the connection: 2 is that of keep-alive. */
    const timer = async () => {
      const lines = (await readFile("/proc/net/tcp", "utf8"))
        .split("\n")
        .map((line) => line.trim().split(/\s+/));
      return lines.find(([, own = "", , state]) => own.endsWith(local) && state === "01")?.[5]?.split(":")[0];
    };
    // The timer of the greeting's acknowledgement comes first.
    await expect.poll(timer).toBe("02");
    socket.destroy();
  });

  it("listens at a TCP port of the loopback where it is told to", async () => {
    const { uri } = await serve(nullDevice({ bytes }), { port: 0, name: "a disk" });
    expect(uri).toMatch(/^nbd:\/\/127\.0\.0\.1:\d+\/a%20disk$/);
  });

  it.each<[object, string]>([
    [{ host: "::1" }, "serveNbd: give path for a Unix socket, or port, with host if you like"],
    [{ path: "/x", port: 1 }, "serveNbd: give path for a Unix socket, or port, with host if you like"],
    [{ path: `/${"x".repeat(93)}` }, "serveNbd: path must be"],
    [{ maxConnections: 0 }, "serveNbd: maxConnections must be an integer from 1 to 65536, it is 0"],
  ])("refuses %j", async (options, message) => {
    await expect(serveNbd(nullDevice({ bytes }), options)).rejects.toThrow(message);
  });
});
