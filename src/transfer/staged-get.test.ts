import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { newCounters } from "../base/observe/counters.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { IncomingCall } from "../call/incoming-call.ts";
import { hold } from "../memory/registration-cache.ts";
import { RemoteRegion } from "../memory/remote-region.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import type { PeerLink } from "./control/peer-link.ts";
import { pieceBytes, Staging } from "./staging.ts";
import { transfer, transferParts } from "./transfer.ts";

const mebi = 1024 * 1024;

/** A call with a region of 8 MiB, and a port that cannot write to `file`. */
function setUp(fileBytes = 4 * mebi) {
  const port = new FakePort();
  const counters = newCounters();
  const services = { counters, limits: { memoryBytes: Number.POSITIVE_INFINITY } };
  const route = {
    port,
    address: 1,
    clock: new FakeClock(),
    account: {},
    services,
    wakeProgress: () => {},
    onLanded: () => {},
  } as unknown as PeerLink;
  const call = new IncomingCall({ answer: () => {} }, 1 << 20, 0);
  const segments = [
    { key: 5n, address: 4096n, bytes: 3 * mebi },
    { key: 6n, address: 0n, bytes: 5 * mebi },
  ];
  const remote = new RemoteRegion(call, { bytes: 8 * mebi, access: 3, segments });
  const file = new Uint8Array(fileBytes);
  port.unpinned.add(file.buffer);
  const { own } = Staging.of(port);
  return { port, counters, route, call, remote, file, own };
}

/** Ends the transfers that are posted, and those that follow, until `done`. Each fills its memory with its offset. */
async function serve({ port }: ReturnType<typeof setUp>, done: Promise<unknown>, status = 0): Promise<void> {
  let isDone = false;
  void done.then(
    () => (isDone = true),
    () => (isDone = true),
  );
  for (let next = 0; !isDone; ) {
    for (; next < port.transfers.length; next++) {
      const { extents, settle } = port.transfers[next] as (typeof port.transfers)[number];
      for (const { local, offset, bytes, key, remote } of extents) {
        const memory = port.regions.get(local.index) as Uint8Array;
        for (let at = 0; at < bytes; at += 4096)
          memory.fill(Number(key) + Number(remote) / 4096 + at / 4096, offset + at, offset + at + 4096);
      }
      settle(status);
    }
    await new Promise(setImmediate);
  }
}

const failure = (promise: Promise<unknown>): Promise<RpcError> =>
  promise.then(
    () => expect.fail("it did not fail"),
    (error) => error as RpcError,
  );

describe("a get into memory that the port cannot write", () => {
  it("comes through staging memory, a piece at a time, and is whole", async () => {
    const all = setUp();
    const got = transfer("get", all.route, all.call, all.remote, all.file, { offset: mebi });
    expect(all.own.taken).toBeLessThanOrEqual(2);
    await serve(all, got);
    expect(await got).toBe(4 * mebi);
    const pages = Array.from({ length: 4 * 256 }, (_, page) => all.file[page * 4096]);
    const first = Array.from({ length: 2 * 256 }, (_, page) => (5 + 1 + 256 + page) & 0xff);
    const second = Array.from({ length: 2 * 256 }, (_, page) => (6 + page) & 0xff);
    expect(pages).toEqual([...first, ...second]);
    expect(all.counters.bytesStaged).toBe(4 * mebi);
    expect(all.own.taken).toBe(0);
    for (const { bytes } of all.port.transfers) expect(bytes).toBeLessThanOrEqual(pieceBytes);
  });

  it("takes several parts, some of them ordinary memory", async () => {
    const all = setUp(mebi);
    const plain = new Uint8Array(8192);
    const got = transferParts("get", all.route, all.call, [
      { remote: all.remote, offset: 0, local: all.file.subarray(4096, 8192) },
      { remote: all.remote, offset: 3 * mebi, local: plain },
    ]);
    await serve(all, got);
    expect(await got).toBe(12_288);
    expect([all.file[4095], all.file[4096], all.file[8191], all.file[8192]]).toEqual([0, 6, 6, 0]);
    expect([plain[0], plain[8191]]).toEqual([6, 7]);
  });

  it("fails with the provider's error, and gives its staging memory back", async () => {
    const all = setUp();
    const got = failure(transfer("get", all.route, all.call, all.remote, all.file));
    await serve(all, got, 266);
    expect((await got).code).toBe("permission_denied");
    expect([all.own.taken, all.counters.bytesStaged]).toEqual([0, 0]);
    expect(all.file.every((byte) => byte === 0)).toBe(true);
  });

  it("copies nothing once nobody wants it, and keeps the memory until it has landed", async () => {
    const all = setUp();
    const stop = new AbortController();
    const moving = transfer("get", all.route, all.call, all.remote, all.file, { signal: stop.signal });
    const got = failure(moving);
    // The first chunks are posted when there is memory for them.
    while (all.port.transfers.length === 0) await new Promise(setImmediate);
    stop.abort();
    expect((await got).code).toBe("cancelled");
    expect(all.own.taken).toBeGreaterThan(0);
    const landed = moving.landed;
    await serve(all, landed);
    expect(await landed).toBe(0);
    expect([all.own.taken, all.counters.bytesStaged]).toEqual([0, 0]);
    expect(all.file.every((byte) => byte === 0)).toBe(true);
  });

  it("fails where there is no staging memory", async () => {
    const all = setUp();
    // The port is known not to write there.
    hold(all.port, all.file).release();
    all.port.refuseMemory = new RpcError({ code: "resource_exhausted", message: "full", origin: "fabric" });
    const getting = transfer("get", all.route, all.call, all.remote, all.file);
    expect((await failure(getting)).code).toBe("resource_exhausted");
    expect(await getting.landed).toBe(0);
  });
});
