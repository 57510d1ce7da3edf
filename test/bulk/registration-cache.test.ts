import { describe, expect, it, onTestFinished } from "vitest";
import { openConnectingPort, openListeningPort } from "../../src/fabric/open-port.ts";
import { access, defaultLayout, type Port, type PortSink, type TransferOp } from "../../src/fabric/port.ts";
import { locate } from "../../src/fabric/target.ts";
import { allocateSlab } from "../../src/memory/pool.ts";
import { dropIdleRegistrations, hold, registrations } from "../../src/memory/registration-cache.ts";
import { providers } from "../matrix/providers.ts";
import { fill, firstWrong } from "./support/pattern.ts";

const mebibyte = 1024 * 1024;
const sink: PortSink = { onMessage() {}, onMessageLost() {}, onPutNotification() {}, onPeerGone() {} };

/** Two ports; memory of the owner's, and one-sided transfers between it and held memory of the other's. */
async function setUp(url: string, bytes = 3 * mebibyte) {
  const owner = await openListeningPort(url, defaultLayout);
  onTestFinished(() => owner.close());
  const target = await locate(owner.url);
  const port: Port = await openConnectingPort(target, defaultLayout);
  onTestFinished(() => {
    dropIdleRegistrations(port);
    port.close();
  });
  const address = port.admit((await port.route(target)).address);
  const remote = new Uint8Array(bytes);
  const { key, base } = owner.register(remote.buffer, 0, bytes, access.remoteRead | access.remoteWrite);

  /** Moves all of `view` from or to the start of the remote memory. */
  async function move(op: TransferOp, view: ArrayBufferView): Promise<number> {
    const { memory, offset, release } = heldOf(view);
    let ended: number | undefined;
    const extent = { local: memory, offset, bytes: view.byteLength, key, remote: base };
    port.transfer(op, address, [extent], {
      onTransferred(status) {
        ended = status;
      },
    });
    const untilMs = performance.now() + 20_000;
    while (ended === undefined && performance.now() < untilMs) {
      port.progress(0, sink);
      owner.progress(0, sink);
      await new Promise(setImmediate);
    }
    release();
    return ended ?? expect.fail("the transfer has not ended");
  }
  function heldOf(view: ArrayBufferView) {
    const held = hold(port, view);
    return { memory: held.memory, offset: held.offset, release: () => held.release() };
  }
  return { port, remote, move };
}

// Known to the types of browsers only.
const { Memory } = (globalThis as unknown as { WebAssembly: WebAssemblyFace }).WebAssembly;
interface WebAssemblyFace {
  readonly Memory: new (pages: { readonly initial: number }) => { readonly buffer: ArrayBuffer };
}

const memories: readonly (readonly [string, () => ArrayBufferLike])[] = [
  ["an ArrayBuffer", () => new ArrayBuffer(2 * mebibyte + 100)],
  ["a SharedArrayBuffer", () => new SharedArrayBuffer(2 * mebibyte + 100)],
  ["a slab of the pool", () => allocateSlab(2 * mebibyte + 100)],
  ["a WebAssembly memory", () => new Memory({ initial: 40 }).buffer],
];

describe.each(providers.filter(({ carriesLargest }) => carriesLargest))(
  "held memory over $name",
  (provider) => {
    it.each(memories)("in %s is moved from and into, registered once", async (_, make) => {
      const { port, remote, move } = await setUp(provider.freshUrl());
      const memory = make();
      const whole = port.gauges().regions;
      for (let round = 0; round < 3; round++) {
        // Three places of one buffer, at odd offsets.
        for (const [offset, bytes] of [
          [0, 5000],
          [77, 2 * mebibyte],
          [2 * mebibyte, 3],
        ] as const) {
          const view = new Uint8Array(memory, offset, bytes);
          fill(view, round);
          expect(await move("write", view)).toBe(0);
          expect(firstWrong(remote.subarray(0, bytes), round)).toBe(-1);
          fill(remote.subarray(0, bytes), round + 100);
          expect(await move("read", view)).toBe(0);
          expect(firstWrong(view, round + 100)).toBe(-1);
        }
      }
      expect(port.gauges().regions).toBe(whole + 1);
      expect(registrations(port)).toMatchObject({ held: 0, idle: 1, misses: 1, hits: 17 });
      dropIdleRegistrations(port);
      expect(port.gauges().regions).toBe(whole);
    });

    it("keeps a bounded number of buffers registered, however many come by", async () => {
      const { port, move } = await setUp(provider.freshUrl(), 100);
      const before = port.gauges().regions;
      for (let i = 0; i < 300; i++) expect(await move("read", new Uint8Array(100))).toBe(0);
      expect(port.gauges().regions).toBe(before + 256);
      expect(registrations(port)).toMatchObject({ idle: 256, idleBytes: 25_600, misses: 300, evictions: 44 });
    });

    it("is registered anew where a shared buffer has grown", async () => {
      const { port, remote, move } = await setUp(provider.freshUrl());
      // The types of Node 20 do not know growable buffers.
      const Growable = SharedArrayBuffer as unknown as new (
        bytes: number,
        options: { readonly maxByteLength: number },
      ) => SharedArrayBuffer & { grow(bytes: number): void };
      const memory = new Growable(5000, { maxByteLength: 3 * mebibyte });
      fill(remote, 1);
      expect(await move("read", new Uint8Array(memory, 0, 5000))).toBe(0);
      memory.grow(2 * mebibyte);
      const grown = new Uint8Array(memory, 5000, mebibyte);
      expect(await move("read", grown)).toBe(0);
      expect(firstWrong(grown, 1)).toBe(-1);
      expect(registrations(port)).toMatchObject({ invalidations: 1, misses: 2 });
    });

    it("lets go of a buffer that was transferred, and takes it where it has gone", async () => {
      const { port, remote, move } = await setUp(provider.freshUrl());
      fill(remote, 2);
      const view = new Uint8Array(50_000);
      expect(await move("read", view)).toBe(0);
      const { buffer } = view;
      const moved = structuredClone(buffer, { transfer: [buffer] });
      expect(() => hold(port, view)).toThrow("[failed_precondition] the local memory has been detached");
      expect(await move("read", new Uint8Array(moved))).toBe(0);
      expect(firstWrong(new Uint8Array(moved), 2)).toBe(-1);
    });

    it("drops what is idle, a second later", async () => {
      const { port, move } = await setUp(provider.freshUrl());
      expect(await move("read", new Uint8Array(1000))).toBe(0);
      expect(registrations(port).idle).toBe(1);
      await expect.poll(() => registrations(port).idle, { timeout: 20_000 }).toBe(0);
      expect(registrations(port)).toMatchObject({ held: 0, idleBytes: 0, evictions: 0 });
    });
  },
);
