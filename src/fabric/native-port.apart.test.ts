import { closeSync, openSync, readFileSync, readSync, writeSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { NativePort } from "./native-port.ts";
import {
  access,
  defaultLayout,
  type Extent,
  type PortSink,
  type RegisteredMemory,
  type TransferOp,
} from "./port.ts";

const notifications: unknown[] = [];
const sink: PortSink = {
  onMessage: () => {},
  onMessageLost: () => {},
  onPutNotification: (_, data, bytes) => notifications.push([data, bytes]),
  onPeerGone: () => {},
};
const opened: NativePort[] = [];

afterEach(() => {
  for (const port of opened.splice(0)) port.close();
});

async function open(scheme: "shm" | "tcp"): Promise<NativePort> {
  const host = scheme === "tcp" ? "127.0.0.1" : "";
  const port = await NativePort.open({ scheme, host, port: 0, name: "" }, true, defaultLayout);
  opened.push(port);
  return port;
}

/** Two ports, one of which can move memory of the other. */
async function pair(scheme: "shm" | "tcp") {
  const a = await open(scheme);
  const b = await open(scheme);
  const url = new URL(b.url.replace("shm:", "http:").replace("tcp:", "http:"));
  const target =
    scheme === "shm"
      ? { scheme, name: b.url.slice("shm://".length) }
      : { scheme, host: url.hostname, port: Number(url.port), from: "127.0.0.1" };
  const to = a.admit(a.route(target as never).address);
  const turn = () => {
    a.progress(0, sink);
    b.progress(0, sink);
  };
  const until = async (condition: () => boolean) => {
    const end = performance.now() + 20_000;
    while (!condition()) {
      if (performance.now() > end) throw new Error("never came");
      turn();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const move = async (op: TransferOp, extents: readonly Extent[]) => {
    let ended: [number, number] | undefined;
    a.transfer(op, to, extents, {
      onTransferred: (status, bytes) => {
        ended = [status, bytes];
      },
    });
    await until(() => ended !== undefined);
    return ended;
  };
  return { a, b, to, turn, until, move };
}

function memory(port: NativePort, bytes: number, rights: number) {
  const view = new Uint8Array(bytes);
  return { view, region: port.register(view.buffer, 0, bytes, rights) };
}

/** Where this process has mapped the doorbell pages of its shm ports, to write to them. */
const doorbells = (): number[] =>
  readFileSync("/proc/self/maps", "latin1")
    .split("\n")
    .filter((line) => line.includes("memfd:cinnabar-doorbell") && line.includes(" rw-s "))
    .map((line) => Number.parseInt(line, 16));

const copyingAt = 64;

/** Advances a port's count of copies, as the begin or the end of a copy does. */
function countCopy(doorbell: number): void {
  const memory = openSync("/proc/self/mem", "r+");
  const word = Buffer.alloc(4);
  readSync(memory, word, 0, 4, doorbell + copyingAt);
  word.writeUInt32LE(word.readUInt32LE(0) + 1);
  writeSync(memory, word, 0, 4, doorbell + copyingAt);
  closeSync(memory);
}

describe.each(["shm", "tcp"] as const)("a native port over %s", (scheme) => {
  it("sleeps behind a message that has left, and tells its sender", async () => {
    const { a, b, to, until } = await pair(scheme);
    let left = 0;
    const send = () => a.send(to, a.takeSlot(), 5000, { onSent: () => left++ });
    send();
    await until(() => left === 1 && b.received === 1);
    await until(() => a.arm());
    a.disarm();
    send();
    expect([a.arm(), left, a.busy]).toEqual([true, 2, false]);
    a.disarm();
    await until(() => b.received === 2);
  });

  it("moves many extents in one transfer, and says so once", async () => {
    const { a, b, move } = await pair(scheme);
    const here = [memory(a, 5000, access.local), memory(a, 5000, access.local)];
    const there = [memory(b, 5000, access.remoteRead), memory(b, 5000, access.remoteRead)];
    for (const [i, { view }] of there.entries())
      for (let at = 0; at < view.length; at++) view[at] = at * 7 + i;
    const extents: Extent[] = [];
    for (let i = 0; i < a.maxExtents; i++) {
      const { region: local } = here[i % 2] as (typeof here)[0];
      const { region } = there[(i >> 1) % 2] as (typeof there)[0];
      extents.push({
        local,
        offset: i * 19,
        bytes: 17,
        key: region.key,
        remote: region.base + BigInt(i * 18),
      });
    }
    expect(await move("read", extents)).toEqual([0, a.maxExtents * 17]);
    for (let i = 0; i < a.maxExtents; i++) {
      const { view } = here[i % 2] as (typeof here)[0];
      for (let k = 0; k < 17; k++) expect(view[i * 19 + k]).toBe(((i * 18 + k) * 7 + ((i >> 1) % 2)) & 0xff);
    }
  });

  it("refuses extents that are not in its regions, and too many of them", async () => {
    const { a, b, move } = await pair(scheme);
    const here = memory(a, 100, access.local);
    const there = memory(b, 100, access.remoteRead);
    const extent = {
      local: here.region,
      offset: 0,
      bytes: 1,
      key: there.region.key,
      remote: there.region.base,
    };
    const invalid = [22, 0];
    expect(await move("read", [])).toEqual(invalid);
    expect(await move("read", [{ ...extent, bytes: 0 }])).toEqual(invalid);
    expect(await move("read", [{ ...extent, bytes: 101 }])).toEqual(invalid);
    expect(await move("read", [{ ...extent, offset: 2 ** 40 }])).toEqual(invalid);
    expect(await move("read", [extent, { ...extent, local: { ...here.region, index: 99 } }])).toEqual(
      invalid,
    );
    expect(await move("read", new Array(a.maxExtents + 1).fill(extent))).toEqual(invalid);
    expect(await move("read", [extent])).toEqual([0, 1]);
    expect(a.gauges().transfers).toBe(0);
  });

  it("tells the target of a write that carries a put notification, or refuses to", async () => {
    const { a, b, to, until } = await pair(scheme);
    notifications.length = 0;
    const here = memory(a, 100, access.local);
    const there = memory(b, 100, access.remoteWrite);
    here.view.fill(9);
    const extent = {
      local: here.region,
      offset: 0,
      bytes: 100,
      key: there.region.key,
      remote: there.region.base,
    };
    let status = -1;
    const owner = {
      onTransferred: (code: number) => {
        status = code;
      },
    };
    expect([a.immediateBytes, b.immediateBytes]).toEqual(a.provider === "tcp" ? [8, 8] : [0, 0]);
    a.transfer("write", to, [extent], owner, 0xffff_ffff_0000_0001n);
    if (a.immediateBytes === 0) {
      expect(status).toBe(95);
      return;
    }
    await until(() => notifications.length === 1 && status === 0);
    expect(notifications).toEqual([[0xffff_ffff_0000_0001n, 100]]);
    expect(there.view).toEqual(here.view);
    a.transfer("write", to, new Array(5).fill({ ...extent, bytes: 1 }), owner, 1n);
    expect(status).toBe(22);
  });

  it("draws a key of its own for every registration, and takes the memory back", async () => {
    const { a, b } = await pair(scheme);
    const all = Array.from(
      { length: 100 },
      () => memory(b, 10, access.remoteRead | access.remoteWrite).region,
    );
    expect(new Set(all.map(({ key }) => key)).size).toBe(100);
    expect(b.gauges().regions).toBe(100);
    let released = 0;
    for (const { index } of all) b.deregister(index, () => released++);
    expect(released).toBe(100);
    expect([a.busy, b.busy, b.gauges().regions]).toEqual([false, false, 0]);
  });

  it("keeps memory of its own transfers until they have ended", async () => {
    const { a, b, to, until } = await pair(scheme);
    const here = memory(a, 8 << 20, access.local);
    const there = memory(b, 8 << 20, access.remoteRead);
    const heard: string[] = [];
    const extent = {
      local: here.region,
      offset: 0,
      bytes: 8 << 20,
      key: there.region.key,
      remote: there.region.base,
    };
    a.transfer("read", to, [extent], { onTransferred: (status) => heard.push(`transferred ${status}`) });
    a.deregister(here.region.index, () => heard.push("released"));
    expect(heard).toEqual([]);
    expect(a.gauges().regions).toBe(1);
    await until(() => heard.length === 2);
    expect(heard.toSorted()).toEqual(["released", "transferred 0"]);
    expect([a.busy, a.gauges().regions]).toEqual([false, 0]);
  });
});

describe("keys over shm", () => {
  const lend = (region: RegisteredMemory, local: RegisteredMemory, bytes = 16): Extent[] => [
    { local, offset: 0, bytes, key: region.key, remote: region.base },
  ];

  it("are refused when they are made up, taken back, or good for something else", async () => {
    const { a, b, move } = await pair("shm");
    expect([a.revokesKeys, b.revokesKeys]).toEqual([true, true]);
    const { region: local } = memory(a, 100, access.local);
    const { view, region } = memory(b, 64, access.remoteRead);
    expect(await move("read", lend(region, local))).toEqual([0, 16]);
    expect(await move("read", lend({ ...region, key: region.key ^ 1n }, local))).toEqual([266, 0]);
    expect(await move("write", lend(region, local))).toEqual([13, 0]);
    expect(await move("read", lend(region, local, 65))).toEqual([34, 0]);
    expect(await move("read", [...lend(region, local), ...lend({ ...region, key: 0n }, local)])).toEqual([
      266, 16,
    ]);
    b.deregister(region.index);
    expect(await move("read", lend(region, local))).toEqual([266, 0]);
    const again = b.register(view.buffer, 0, 64, access.remoteRead);
    expect(await move("read", lend(region, local))).toEqual([266, 0]);
    expect(await move("read", lend(again, local))).toEqual([0, 16]);
  });

  it.each(["goes on", "goes"])(
    "are waited for while a peer is in the middle of a copy, until it %s",
    async (how) => {
      const before = doorbells();
      const a = await open("shm");
      const [doorbell = 0] = doorbells().filter((page) => !before.includes(page));
      const b = await open("shm");
      const to = a.admit(a.route({ scheme: "shm", name: b.url.slice("shm://".length) } as never).address);
      const { region: local } = memory(a, 64, access.local);
      const { region } = memory(b, 64, access.remoteRead);
      let status = -1;
      a.transfer("read", to, lend(region, local), { onTransferred: (code) => (status = code) });
      const until = async (condition: () => boolean) => {
        while (!condition()) {
          a.progress(0, sink);
          b.progress(0, sink);
          await new Promise((resolve) => setImmediate(resolve));
        }
      };
      await until(() => status === 0);

      countCopy(doorbell);
      let released = 0;
      b.deregister(region.index, () => released++);
      for (let i = 0; i < 100; i++) b.progress(0, sink);
      expect([released, b.busy, b.gauges().regions]).toEqual([0, true, 1]);
      if (how === "goes on") countCopy(doorbell);
      else a.close();
      await until(() => released > 0);
      expect([released, b.busy, b.gauges().regions]).toEqual([1, false, 0]);
    },
  );
});

describe.each(["shm", "tcp"] as const)("a full send queue over %s", (scheme) => {
  it("holds back the sender while the reader stands, and loses nothing", async () => {
    const { a, b, to } = await pair(scheme);
    const arrived: number[] = [];
    const reader: PortSink = {
      ...sink,
      onMessage: (port, offset) => void arrived.push(port.slabView.getUint32(offset, true)),
    };
    let sent = 0;
    const sendAll = () => {
      for (let slot = a.takeSlot(); slot >= 0; slot = a.takeSlot()) {
        a.slabView.setUint32(slot, sent++, true);
        a.send(to, slot, 16_000, { onSent: (status) => expect(status).toBe(0) });
      }
      a.progress(0, sink);
    };
    // Until the provider's queues are full: no completion comes for a while, though this side makes progress.
    for (let quiet = 0, had = -1; quiet < 200; quiet = sent === had ? quiet + 1 : 0) {
      had = sent;
      sendAll();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const full = a.describe().queues;
    expect(full.send).toEqual({ depth: 64, used: 64, highest: 64 });
    expect(full.waiting).toBeGreaterThan(0);
    expect(a.takeSlot()).toBe(-1);
    expect(arrived).toEqual([]);

    const total = sent;
    const end = performance.now() + 20_000;
    while ((arrived.length < total || a.describe().queues.send.used > 0) && performance.now() < end) {
      a.progress(0, sink);
      b.progress(0, reader);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(arrived.length).toBe(total);
    expect(arrived).toEqual(arrived.map((_, index) => index));
    expect(a.describe().queues).toMatchObject({ send: { used: 0, highest: 64 }, waiting: 0 });
    expect(b.describe().queues.receive.highest).toBeGreaterThan(0);
  });
});

describe("a connection over tcp", () => {
  it("that has ended is reported behind all that came by it, and only then", async () => {
    const { a, b, to } = await pair("tcp");
    const happened: string[] = [];
    const told: PortSink = {
      ...sink,
      onMessage: (port, offset) => void happened.push(`message ${port.slabView.getUint32(offset, true)}`),
      onDisconnected: (_port, address) => void happened.push(`disconnected ${address}`),
    };
    const send = (from: NativePort, address: number, number: number) => {
      const slot = from.takeSlot();
      from.slabView.setUint32(slot, number, true);
      from.send(address, slot, 8, { onSent: (status) => expect(status).toBe(0) });
    };
    const turnUntil = async (count: number) => {
      const endMs = performance.now() + 20_000;
      while (happened.length < count && performance.now() < endMs) {
        a.progress(0, told);
        b.progress(0, sink);
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    send(a, to, 0);
    const back = b.admit(a.route({ scheme: "tcp", ...hostOf(a), from: "127.0.0.1" } as never).address);
    send(b, back, 1);
    await turnUntil(1);
    send(b, back, 2);
    while (b.busy) b.progress(0, sink);
    b.close();
    await turnUntil(3);
    expect(happened).toEqual(["message 1", "message 2", `disconnected ${to}`]);
  });
});

function hostOf({ url }: NativePort): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(url.replace("tcp:", "http:"));
  return { host: hostname, port: Number(port) };
}
