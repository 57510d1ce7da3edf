import { afterEach, describe, expect, it } from "vitest";
import { MemPort } from "./mem-port.ts";
import { access, type Extent, type PortSink, type TransferOp } from "./port.ts";

const layout = { slotBytes: 64, sendSlots: 4, receiveSlots: 2 };
let open: Node[] = [];

/** A port that records its events. */
class Node {
  readonly port: MemPort;
  readonly messages: string[] = [];
  readonly lost: number[] = [];
  readonly gone: number[] = [];
  readonly sent: number[] = [];
  readonly notifications: [data: bigint, bytes: number][] = [];
  readonly #sink: PortSink = {
    onMessage: (port, offset, bytes) =>
      this.messages.push(port.slab.toString("latin1", offset, offset + bytes)),
    onMessageLost: (_, status) => this.lost.push(status),
    onPutNotification: (_, data, bytes) => this.notifications.push([data, bytes]),
    onPeerGone: (_, address) => this.gone.push(address),
  };

  constructor(name = "", { slotBytes } = layout) {
    this.port = new MemPort({ scheme: "mem", host: "", port: 0, name }, { ...layout, slotBytes });
    open.push(this);
  }

  towards({ port }: Node): number {
    return this.port.admit(Buffer.from(port.url.slice("mem://".length)));
  }

  send(address: number, text: string): void {
    const slot = this.port.takeSlot();
    this.port.slab.write(text, slot, "latin1");
    this.port.send(address, slot, text.length, { onSent: (status) => this.sent.push(status) });
  }

  /** Transfers; the result is `[status, bytes]`. */
  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    notification?: bigint,
  ): Promise<number[]> {
    return new Promise((resolve) => {
      const onTransferred = (status: number, bytes: number) => resolve([status, bytes]);
      this.port.transfer(op, address, extents, { onTransferred }, notification);
    });
  }

  progress(): number {
    return this.port.progress(0, this.#sink);
  }
}

afterEach(() => {
  for (const { port } of open) port.close();
  open = [];
});

describe("mem port", () => {
  it("loses a message that is longer than a slot, and no other", () => {
    const [a, b] = [new Node(), new Node("", { ...layout, slotBytes: 8 })];
    const address = a.towards(b);
    a.send(address, "far too long");
    a.send(address, "short");
    b.progress();
    expect(b.lost).toEqual([265]);
    expect(b.messages).toEqual(["short"]);
  });

  it("tells no death to the port that took over the dead one's address", () => {
    const [a, b, c] = [new Node(), new Node(), new Node()];
    const address = a.towards(b);
    b.port.close();
    a.port.forget(address);
    expect(a.towards(c)).toBe(address);
    a.progress();
    expect(a.gone).toEqual([]);
  });

  it("carries messages in order and completes their sends", () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    a.send(address, "one");
    a.send(address, "two");
    expect(b.messages).toEqual([]);
    expect(b.progress()).toBe(2);
    expect(b.messages).toEqual(["one", "two"]);
    expect([a.sent, a.port.gauges().sends]).toEqual([[], 2]);
    a.progress();
    expect([a.sent, a.port.gauges()]).toEqual([
      [0, 0],
      { sends: 0, transfers: 0, regions: 0, addresses: 1, freeSlots: 4 },
    ]);
  });

  it("keeps what a message said when it was sent", () => {
    const [a, b] = [new Node(), new Node()];
    a.send(a.towards(b), "then");
    a.port.slab.fill(0);
    b.progress();
    expect(b.messages).toEqual(["then"]);
  });

  it("holds messages back while there is no receive slot, and loses none", () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    for (const text of ["1", "2", "3", "4"]) a.send(address, text);
    expect([b.progress(), b.progress(), b.progress()]).toEqual([2, 2, 0]);
    expect(b.messages).toEqual(["1", "2", "3", "4"]);
  });

  it("has as many send slots as it was laid out with", () => {
    const { port } = new Node();
    const slots = Array.from({ length: 5 }, () => port.takeSlot());
    expect(slots).toEqual([0, 64, 128, 192, -1]);
    port.returnSlot(64);
    expect(port.takeSlot()).toBe(64);
  });

  it("refuses a name in use, and a peer that is not there", () => {
    new Node("taken");
    expect(() => new Node("taken")).toThrow("[already_exists] mem://taken is already in use");
    const { port } = new Node();
    expect(() => port.admit(Buffer.from("nobody"))).toThrow(
      "[unavailable] no engine listens at mem://nobody",
    );
  });

  it("tells those who knew it that it is gone, and fails what is sent to it", async () => {
    const [a, b] = [new Node(), new Node("b")];
    const address = a.towards(b);
    b.port.close();
    b.port.close();
    a.progress();
    expect(a.gone).toEqual([address]);
    a.send(address, "late");
    a.progress();
    expect(a.sent).toEqual([103]);
    const memory = a.port.register(new ArrayBuffer(8), 0, 8, access.local);
    const reading = a.transfer("read", address, [
      { local: memory, offset: 0, bytes: 8, key: 1n, remote: 0n },
    ]);
    a.progress();
    expect(await reading).toEqual([103, 0]);
    expect(new Node("b").port.url).toBe("mem://b");
  });

  it("reads and writes registered memory, inside its bounds", async () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    const theirs = Uint8Array.from({ length: 16 }, (_, i) => i);
    const ours = new Uint8Array(16);
    const remote = b.port.register(theirs.buffer, 4, 8, access.remoteRead | access.remoteWrite);
    const local = a.port.register(ours.buffer, 0, 16, access.local);
    const extent = { local, offset: 2, bytes: 4, key: remote.key };
    const reading = a.transfer("read", address, [{ ...extent, remote: remote.base + 1n }]);
    a.progress();
    expect(await reading).toEqual([0, 4]);
    expect([...ours]).toEqual([0, 0, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    const writing = a.transfer("write", address, [{ ...extent, remote: remote.base + 4n }]);
    a.progress();
    expect(await writing).toEqual([0, 4]);
    expect([...theirs]).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 12, 13, 14, 15]);
  });

  it("refuses a wrong key, range or access, and moves nothing", async () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    const theirs = new Uint8Array(16).fill(1);
    const local = a.port.register(new Uint8Array(16).fill(2).buffer, 0, 16, access.local);
    const readable = b.port.register(theirs.buffer, 0, 8, access.remoteRead);
    const writable = b.port.register(theirs.buffer, 0, 8, access.remoteWrite);
    const gone = b.port.register(theirs.buffer, 0, 8, access.remoteRead | access.remoteWrite);
    b.port.deregister(gone.index);
    const attempt = (op: TransferOp, bytes: number, key: bigint, remote: bigint) =>
      a.transfer(op, address, [{ local, offset: 0, bytes, key, remote }]);
    const attempts = [
      attempt("write", 1, readable.key, 0n),
      attempt("read", 1, writable.key, 0n),
      attempt("write", 9, writable.key, 0n),
      attempt("write", 1, writable.key, 8n),
      attempt("write", 1, writable.key, 2n ** 64n - 1n),
      attempt("write", 1, gone.key, 0n),
      attempt("write", 1, 0n, 0n),
    ];
    a.progress();
    expect((await Promise.all(attempts)).map(([status]) => status)).toEqual([13, 13, 34, 34, 34, 266, 266]);
    expect(theirs.every((byte) => byte === 1)).toBe(true);
    expect(a.port.gauges().transfers).toBe(0);
  });

  it("moves many extents with one completion, up to the first that is refused", async () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    const theirs = Uint8Array.from({ length: 16 }, (_, i) => i);
    const ours = new Uint8Array(16);
    const one = b.port.register(theirs.buffer, 0, 8, access.remoteRead);
    const two = b.port.register(theirs.buffer, 8, 8, access.remoteRead);
    const local = a.port.register(ours.buffer, 0, 16, access.local);
    const extents = [
      { local, offset: 0, bytes: 2, key: two.key, remote: 6n },
      { local, offset: 4, bytes: 3, key: one.key, remote: 0n },
      { local, offset: 9, bytes: 1, key: two.key, remote: 0n },
    ];
    const reading = a.transfer("read", address, extents);
    expect(a.progress()).toBe(1);
    expect(await reading).toEqual([0, 6]);
    expect([...ours]).toEqual([14, 15, 0, 0, 0, 1, 2, 0, 0, 8, 0, 0, 0, 0, 0, 0]);
    ours.fill(0);
    let released = 0;
    b.port.deregister(one.index, () => released++);
    const refused = a.transfer("read", address, extents);
    a.progress();
    expect([await refused, released]).toEqual([[266, 2], 1]);
    expect(ours.slice(4, 7)).toEqual(new Uint8Array(3));
  });

  it("tells the target of a write that carries a put notification, and only of one that came", async () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    const local = a.port.register(new ArrayBuffer(20), 0, 20, access.local);
    const there = b.port.register(new ArrayBuffer(20), 0, 20, access.remoteWrite);
    const extent = { local, offset: 0, bytes: 10, key: there.key, remote: 0n };
    const write = async (extents: Extent[], notification: bigint, op: TransferOp = "write") => {
      const done = a.transfer(op, address, extents, notification);
      a.progress();
      b.progress();
      return done;
    };
    expect(await write([extent, { ...extent, remote: 10n }], 0xffff_fffe_8000_0001n)).toEqual([0, 20]);
    expect(b.notifications).toEqual([[0xffff_fffe_8000_0001n, 20]]);
    expect(await write([{ ...extent, key: 1n }], 1n)).toEqual([266, 0]);
    expect(await write(new Array(5).fill({ ...extent, bytes: 1 }), 1n)).toEqual([22, 0]);
    expect(await write([extent], 1n, "read")).toEqual([22, 0]);
    expect([b.notifications.length, a.port.gauges().transfers]).toEqual([1, 0]);
  });

  it("sleeps only with nothing to do, and wakes once for what comes", async () => {
    const [a, b] = [new Node(), new Node()];
    let woken = 0;
    b.port.onWake = () => void woken++;
    expect(b.port.arm()).toBe(true);
    const address = a.towards(b);
    a.send(address, "1");
    a.send(address, "2");
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    expect(woken).toBe(1);
    expect(b.port.arm()).toBe(false);
    b.progress();
    expect([b.port.arm(), b.port.busy]).toEqual([true, false]);
    b.port.disarm();
    a.send(address, "3");
    await new Promise(setImmediate);
    expect(woken).toBe(1);
  });

  it("ends what waits with an error when it is closed", async () => {
    const [a, b] = [new Node(), new Node()];
    const address = a.towards(b);
    a.send(address, "x");
    const memory = a.port.register(new ArrayBuffer(8), 0, 8, access.local);
    const extents = [{ local: memory, offset: 0, bytes: 8, key: 1n, remote: 0n }];
    const reading = a.transfer("read", address, extents);
    a.port.close();
    expect([a.sent, await reading]).toEqual([[125], [125, 0]]);
    expect(await a.transfer("read", address, extents)).toEqual([125, 0]);
    expect(a.progress()).toBe(0);
  });
});
