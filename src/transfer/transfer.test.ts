import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { Region } from "../memory/region.ts";
import { RegionCore } from "../memory/region-core.ts";
import { registrations } from "../memory/registration-cache.ts";
import { grantOf, RemoteRegion } from "../memory/remote-region.ts";
import { FakePort, type PostedTransfer } from "../session/connection/fake-port.test-support.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import type { PeerLink, RefusedTransfer } from "./control/peer-link.ts";
import { pull, transfer, transferParts } from "./transfer.ts";
import type { LocalMemory, TransferOptions } from "./transfer-options.ts";

const access = { read: 1, write: 2, read_write: 3 } as const;
const cancelled = new RpcError({ code: "cancelled", message: "the caller gave up", origin: "remote" });

function setUp(granted: keyof typeof access = "read_write", bytes = 100) {
  const answers: Outcome[] = [];
  const port = new FakePort();
  const clock = new FakeClock();
  const services = new FakeServices();
  const way: Partial<PeerLink> = {
    port,
    address: 1,
    clock,
    services,
  };
  const peer = way as PeerLink;
  const call = new IncomingCall({ takeOutcome: (_, outcome) => void answers.push(outcome) }, 1 << 20, 0);
  const remote = new RemoteRegion(call, {
    bytes,
    access: access[granted],
    segments: [{ key: 5n, address: 4096n, bytes }],
  });
  const get = (local: LocalMemory, options?: TransferOptions, from: RemoteRegion = remote) =>
    transfer("get", peer, call, from, local, options);
  return { answers, port, peer, clock, counters: services.counters, call, remote, get };
}

const failure = async (promise: Promise<unknown>): Promise<RpcError> => {
  try {
    await promise;
  } catch (error) {
    return error as RpcError;
  }
  expect.fail("it did not fail");
};

describe("transfer", () => {
  it("refuses to get into memory that the port cannot write, and puts from it", async () => {
    const { port, peer, call, remote, get } = setUp();
    const file = new Uint8Array(40);
    port.unpinned.add(file.buffer);
    expect(await failure(get(file))).toMatchObject({
      code: "unimplemented",
      message: expect.stringContaining(
        "get of 40 bytes at offset 0: the device pins no pages of a file for writing",
      ),
      transferredBytes: 0,
    });
    expect([port.pulls.length, registrations(port).held, call.transfers]).toEqual([0, 0, 0]);
    const parts = [
      { local: new Uint8Array(10), remote },
      { local: file, remote, offset: 20 },
    ];
    expect((await failure(transferParts("get", peer, call, parts))).code).toBe("unimplemented");
    expect(registrations(port).held).toBe(0);
    const put = transfer("put", peer, call, remote, file);
    port.transfers[0]?.settle(0);
    expect(await put).toBe(40);
  });

  it("leaves its failure to the call when its handler forgets it", async () => {
    const { port, get, call } = setUp();
    call.handler = "here";
    const moving = get(new Uint8Array(20));
    const settled = call.started?.handlerReturned();
    expect([call.operations?.open, call.open]).toEqual([1, true]);
    port.pulls[0]?.settle(5);
    expect(await settled).toMatchObject({ error: { code: "unavailable" } });
    expect([call.operations?.open, call.open]).toEqual([0, true]);
    await expect(moving).rejects.toMatchObject({ code: "unavailable" });
  });

  it("leaves a wrong argument of a forgotten pull to the call", async () => {
    const { peer, remote, call } = setUp();
    call.handler = "here";
    void pull(peer, call, remote, Uint8Array, { size: 1 } as never);
    expect(String((await call.started?.handlerReturned())?.error)).toContain('unknown option "size"');
  });

  it("moves what it is asked for and lets go of the local memory", async () => {
    const { port, get } = setUp();
    const local = new Uint8Array(20);
    const got = get(local, { offset: 10, length: 8, localOffset: 4 });
    expect([port.pulls[0]?.key, port.pulls[0]?.into.byteLength, port.regions.size]).toEqual([5n, 8, 1]);
    port.pulls[0]?.into.fill(9);
    port.pulls[0]?.settle(0);
    expect(await got).toBe(8);
    expect([...local]).toEqual([0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
    expect(registrations(port).held).toBe(0);
  });

  it("moves nothing, posting nothing, when asked for nothing", async () => {
    const { port, get } = setUp();
    expect(await get(new Uint8Array(0))).toBe(0);
    expect(await get(new Uint8Array(5), { length: 0 })).toBe(0);
    expect(port.pulls).toEqual([]);
  });

  it.each<[TransferOptions, number]>([
    [{}, 101],
    [{ offset: 81 }, 20],
    [{ offset: -1 }, 20],
    [{ offset: 0.5 }, 20],
    [{ localOffset: 21 }, 20],
    [{ length: 21 }, 20],
    [{ length: Number.NaN }, 20],
    [{ offset: Number.MAX_SAFE_INTEGER }, 20],
  ])("refuses %j with %i local bytes before anything is posted", async (options, localBytes) => {
    const { port, get, call } = setUp();
    expect((await failure(get(new Uint8Array(localBytes), options))).code).toBe("out_of_range");
    expect([port.pulls.length, port.regions.size, call.open]).toEqual([0, 0, true]);
  });

  it("refuses an access that was not granted", async () => {
    const { port, get, peer, call } = setUp("write");
    expect((await failure(get(new Uint8Array(5)))).code).toBe("permission_denied");
    const readable = setUp("read");
    const put = transfer("put", readable.peer, readable.call, readable.remote, new Uint8Array(5));
    expect((await failure(put)).message).toContain(
      'put: the region was exposed as "read"; put needs "write"',
    );
    expect([port.pulls.length, call.open, peer.address]).toEqual([0, true, 1]);
  });

  it("refuses a region of another call", async () => {
    const { get } = setUp();
    const other = setUp();
    expect((await failure(get(new Uint8Array(5), {}, other.remote))).message).toContain(
      "the region belongs to another call",
    );
  });

  it.each([
    [{}, "the remote region must come from this call"],
    [null, "the remote region must come from this call"],
  ])("refuses %j for a remote region", async (remote, message) => {
    const { get } = setUp();
    expect(String(await failure(get(new Uint8Array(5), {}, remote as never)))).toContain(message);
  });

  it("refuses local memory that is none, and options it does not know", async () => {
    const { get } = setUp();
    expect(String(await failure(get([1] as never)))).toContain("local memory must be a typed array");
    expect(String(await failure(get(new Uint8Array(5), { size: 5 } as never)))).toContain(
      'unknown option "size"',
    );
  });

  it("refuses detached memory instead of moving nothing", async () => {
    const { get } = setUp();
    const local = new Uint8Array(5);
    structuredClone(local.buffer, { transfer: [local.buffer] });
    expect((await failure(get(local))).code).toBe("failed_precondition");
  });

  it("refuses to begin when the call has ended", async () => {
    const { get, call, port } = setUp();
    call.abort(cancelled);
    expect(await failure(get(new Uint8Array(5)))).toBe(cancelled);
    expect(port.pulls).toEqual([]);
  });

  it("rejects at once when the call ends, and keeps memory and answer until the provider is done", async () => {
    const { get, call, port, answers, counters } = setUp();
    const getting = get(new Uint8Array(5));
    call.abort(cancelled);
    expect(await failure(getting)).toBe(cancelled);
    expect([registrations(port).held, answers.length]).toEqual([1, 0]);
    port.pulls[0]?.settle(0);
    expect([registrations(port).held, answers.length]).toEqual([0, 1]);
    expect([await getting.landed, counters.bytesGot]).toEqual([5, 5]);
  });

  it("fails with the provider's error, and the call goes on", async () => {
    const { get, call, port } = setUp();
    const getting = get(new Uint8Array(5));
    port.pulls[0]?.settle(266);
    const error = await failure(getting);
    expect(error.fabric).toMatchObject({ op: "fi_read", code: 266 });
    expect([call.open, registrations(port).held, error.transferredBytes]).toEqual([true, 0, 0]);
    expect(error.message).toContain(
      "get of 5 bytes at offset 0 ended after 0 bytes: its owner does not know the key",
    );
  });

  it("lets the call end when memory cannot be registered", async () => {
    const { get, call, port, answers } = setUp();
    port.refuseMemory = new RpcError({ code: "resource_exhausted", message: "no memory" });
    expect((await failure(get(new Uint8Array(5)))).code).toBe("resource_exhausted");
    call.settle({ value: 1 });
    expect(answers).toHaveLength(1);
  });

  it("takes a region of its own engine as local memory, and no disposed one", async () => {
    const { get, port } = setUp();
    const region = new Region(new RegionCore({ onRegionReleased: () => {} }, [new Uint8Array(5)], "read"));
    const getting = get(region);
    port.pulls[0]?.settle(0);
    expect(await getting).toBe(5);
    region.dispose();
    expect((await failure(get(region))).code).toBe("failed_precondition");
  });
});

describe("a transfer between segments", () => {
  const mebi = 1 << 20;

  function segmented(op: "get" | "put" = "get") {
    const all = setUp();
    const remote = new RemoteRegion(all.call, {
      access: 3,
      bytes: 90,
      segments: [
        { key: 1n, address: 0n, bytes: 40 },
        { key: 2n, address: 1000n, bytes: 50 },
      ],
    });
    const move = (local: LocalMemory, options?: TransferOptions) =>
      transfer(op, all.peer, all.call, remote, local, options);
    return { ...all, remote, move };
  }

  const shape = ({ extents }: PostedTransfer) =>
    extents.map(({ key, remote, offset, bytes }) => [key, remote, offset, bytes]);

  it("is one chunk of extents, cut where either side is", async () => {
    const { port, move } = segmented("put");
    const memory = new Uint8Array(100);
    const putting = move([memory.subarray(0, 30), new Uint8Array(0), memory.subarray(50, 100)], {
      offset: 5,
      localOffset: 10,
      length: 60,
    });
    expect(port.transfers.map(shape)).toEqual([
      [
        [1n, 5n, 10, 20],
        [1n, 25n, 50, 15],
        [2n, 1000n, 65, 25],
      ],
    ]);
    port.transfers[0]?.settle(0);
    expect(await putting).toBe(60);
  });

  it("of many parts is one transfer", async () => {
    const { port, peer, call, remote } = segmented();
    const memory = new Uint8Array(100);
    const moving = transferParts("get", peer, call, [
      { remote, offset: 38, local: memory.subarray(0, 2) },
      { remote, offset: 40, local: memory, localOffset: 2, length: 5 },
      { remote: remote.slice(10, 10), local: memory, localOffset: 50, length: 10 },
    ]);
    expect(port.transfers.map(shape)).toEqual([
      [
        [1n, 38n, 0, 2],
        [2n, 1000n, 2, 5],
        [1n, 10n, 50, 10],
      ],
    ]);
    port.transfers[0]?.settle(0);
    expect(await moving).toBe(17);
  });

  it("of parts is refused for one of them before anything is posted, naming it", async () => {
    const { port, peer, call, remote } = segmented();
    const good = { remote, local: new Uint8Array(5) };
    const attempt = (part: object) => failure(transferParts("get", peer, call, [good, part as never]));
    expect((await attempt({ remote, local: new Uint8Array(91) })).code).toBe("out_of_range");
    expect(String(await attempt({ ...good, size: 1 }))).toContain('part 1: unknown option "size"');
    expect(String(await failure(transferParts("get", peer, call, {} as never)))).toContain(
      "getv: parts must",
    );
    const many = new Array(4097).fill(good);
    expect(String(await failure(transferParts("get", peer, call, many)))).toContain(
      "parts has 4097 entries; the limit is 4096",
    );
    expect([port.transfers.length, call.transfers]).toEqual([0, 0]);
  });

  it("goes in chunks of the length and number asked for", async () => {
    const { port, get } = setUp("read", 64 * 1024);
    const getting = get(new Uint8Array(64 * 1024), { chunkBytes: 4096, inFlight: 3 });
    expect(port.transfers.map(({ bytes }) => bytes)).toEqual([4096, 4096, 4096]);
    for (let i = 0; i < 16; i++) port.transfers[i]?.settle(0);
    expect([await getting, port.transfers.length]).toEqual([64 * 1024, 16]);
  });

  it.each([
    [{ chunkBytes: 4095 }, "chunkBytes must be an integer from 4096 to 1073741824, it is 4095"],
    [{ chunkBytes: 1e5 + 0.5 }, "chunkBytes must be an integer"],
    [{ chunkBytes: "1" as never }, "chunkBytes must be an integer"],
    [{ inFlight: 0 }, "inFlight must be an integer from 1 to 256, it is 0"],
    [{ inFlight: 257 }, "inFlight must be an integer"],
    [{ timeoutMs: 0 }, "timeoutMs must be a number"],
    [{ signal: {} as never }, "signal must be an instance of AbortSignal"],
  ])("refuses %j", async (options, message) => {
    const { get, port } = setUp();
    expect(String(await failure(get(new Uint8Array(5), options)))).toContain(message);
    expect(port.transfers).toEqual([]);
  });

  it("ends by its signal, with what had moved, and lands later", async () => {
    const { port, get, call, counters } = setUp("read", 4 * mebi);
    const controller = new AbortController();
    const getting = get(new Uint8Array(4 * mebi), {
      chunkBytes: mebi,
      inFlight: 2,
      signal: controller.signal,
    });
    port.transfers[0]?.settle(0);
    controller.abort(new Error("enough"));
    const error = await failure(getting);
    expect(error).toMatchObject({ code: "cancelled", transferredBytes: mebi, cause: { message: "enough" } });
    expect([port.transfers.length, registrations(port).held, call.open]).toEqual([3, 1, true]);
    port.transfers[2]?.settle(0);
    expect(counters.bytesGot).toBe(0);
    port.transfers[1]?.settle(0);
    expect([await getting.landed, registrations(port).held, call.transfers]).toEqual([3 * mebi, 0, 0]);
    expect(counters.bytesGot).toBe(3 * mebi);
    const again = get(new Uint8Array(5), { signal: controller.signal });
    expect([(await failure(again)).code, await again.landed, port.transfers.length]).toEqual([
      "cancelled",
      0,
      3,
    ]);
  });

  it("ends by its time", async () => {
    const { port, get, clock } = setUp();
    const getting = get(new Uint8Array(5), { timeoutMs: 50 });
    clock.advance(50);
    const error = await failure(getting);
    expect(error).toMatchObject({ code: "deadline_exceeded", transferredBytes: 0 });
    expect(error.message).toContain("get of 5 bytes at offset 0: 50 ms have passed after 0 bytes");
    port.transfers[0]?.settle(0);
    expect(await getting.landed).toBe(5);
  });

  it("tells its progress to a slow reader without holding anything up", async () => {
    const { port, get, clock } = setUp("read", 5 * mebi);
    const getting = get(new Uint8Array(5 * mebi), { chunkBytes: mebi, inFlight: 5 });
    const steps: number[][] = [];
    const reading = (async () => {
      for await (const { bytes, remaining, bytesPerSecond } of getting.progress) {
        steps.push([bytes / mebi, remaining / mebi, bytesPerSecond / mebi]);
        // Two more steps while the reader is busy.
        clock.advance(1000);
        for (const index of [2 * steps.length - 1, 2 * steps.length]) port.transfers[index]?.settle(0);
      }
    })();
    clock.advance(1000);
    port.transfers[0]?.settle(0);
    await reading;
    expect(steps).toEqual([
      [1, 4, 1],
      [3, 2, 1.5],
      [5, 0, 5 / 3],
    ]);
    expect(await getting).toBe(5 * mebi);
    for await (const { remaining } of getting.progress) expect(remaining).toBe(0);
  });

  it("ends its progress when it fails", async () => {
    const { port, get } = setUp();
    const getting = get(new Uint8Array(5));
    const reading = (async () => {
      for await (const _ of getting.progress) expect.fail("nothing has moved");
    })();
    port.transfers[0]?.settle(5);
    await reading;
    expect((await failure(getting)).code).toBe("unavailable");
  });

  it("asks the owner where the provider does not say why, once for each grant", async () => {
    const { peer, call, port, remote } = segmented();
    const asked: RefusedTransfer[] = [];
    const reason = new RpcError({ code: "out_of_range", message: "beyond its end", origin: "remote" });
    const answers = [undefined, reason];
    const asking: PeerLink = {
      ...peer,
      explain(refused) {
        asked.push(refused);
        return Promise.resolve(answers.shift());
      },
    };
    const other = new RemoteRegion(call, {
      access: 3,
      bytes: 50,
      segments: [{ key: 9n, address: 0n, bytes: 50 }],
    });
    const moving = transferParts("get", asking, call, [
      { remote: remote.slice(10), offset: 2, local: new Uint8Array(5) },
      { remote, offset: 60, local: new Uint8Array(10) },
      { remote: other, offset: 20, local: new Uint8Array(3) },
    ]);
    port.transfers[0]?.settle(125);
    expect(registrations(port).held).toBe(0);
    const error = await failure(moving);
    expect(asked).toEqual([
      { key: 1n, needed: "read", offset: 12, bytes: 58 },
      { key: 9n, needed: "read", offset: 20, bytes: 3 },
    ]);
    expect(error).toMatchObject({ code: "out_of_range", fabric: { code: 125 }, transferredBytes: 0 });
    expect(error.message).toContain("get of 18 bytes in 3 parts ended after 0 bytes: beyond its end");
  });

  it("keeps the provider's error when the session is lost while its owner is asked, and no other end of the call", async () => {
    const attempt = async (reason: RpcError) => {
      const { peer, call, port, remote } = setUp();
      const asking: PeerLink = { ...peer, explain: () => new Promise(() => {}) };
      const getting = transfer("get", asking, call, remote, new Uint8Array(5));
      port.transfers[0]?.settle(125);
      call.abort(reason);
      return failure(getting);
    };
    const lost = await attempt(
      new RpcError({ code: "unavailable", message: "the peer is lost", origin: "fabric" }),
    );
    expect(lost).toMatchObject({ code: "unavailable", fabric: { code: 125 }, transferredBytes: 0 });
    expect(lost.message).toContain("get of 5 bytes");
    const late = await attempt(
      new RpcError({ code: "deadline_exceeded", message: "too late", origin: "remote" }),
    );
    expect(late.code).toBe("deadline_exceeded");
  });

  it("asks the owner also when the call has been cancelled meanwhile: the connection may have broken with all that was on it", async () => {
    const { peer, call, port, remote, answers } = setUp();
    let asked = 0;
    const asking: PeerLink = { ...peer, explain: () => Promise.reject(new Error(`${++asked}`)) };
    const getting = transfer("get", asking, call, remote, new Uint8Array(5));
    call.abort(cancelled);
    expect(await failure(getting)).toBe(cancelled);
    port.transfers[0]?.settle(125);
    expect([asked, answers.length]).toEqual([1, 1]);
  });

  it("keeps the provider's error when the owner cannot be asked, and where it says why", async () => {
    const { peer, call, port, remote } = setUp();
    let asked = 0;
    const asking: PeerLink = { ...peer, explain: () => Promise.reject(new Error(`${++asked}`)) };
    const attempt = async (status: number) => {
      const getting = transfer("get", asking, call, remote, new Uint8Array(5));
      port.transfers.at(-1)?.settle(status);
      return (await failure(getting)).code;
    };
    expect([await attempt(125), asked]).toEqual(["unavailable", 1]);
    expect([await attempt(266), await attempt(13), await attempt(34), asked]).toEqual([
      "permission_denied",
      "permission_denied",
      "out_of_range",
      1,
    ]);
    port.refusesSilently = false;
    expect([await attempt(104), asked]).toEqual(["unavailable", 1]);
  });

  it("refuses memory that is source and destination at once", async () => {
    const { port, peer, call } = setUp();
    const memory = new Uint8Array(100);
    const core = new RegionCore({ onRegionReleased: () => {} }, [memory.subarray(10, 60)], "read_write");
    const { descriptor } = core.grantTo(port, () => {});
    const self = new RemoteRegion(call, descriptor);
    const attempt = (local: Uint8Array, options?: TransferOptions) =>
      transfer("put", peer, call, self, local, options);
    expect((await failure(attempt(memory.subarray(59, 70), { offset: 39 }))).code).toBe("invalid_argument");
    expect((await failure(attempt(memory.subarray(0, 11)))).message).toContain("overlap");
    const beside = [attempt(memory.subarray(60)), attempt(memory.subarray(10, 20), { offset: 10 })];
    for (const { settle } of port.transfers) settle(0);
    expect(await Promise.all(beside)).toEqual([40, 10]);
  });
});

describe("pull", () => {
  it("gives what was asked for, in memory of its own", async () => {
    const { port, peer, call, remote } = setUp("read", 40);
    const pulling = pull(peer, call, remote, Float64Array, { offset: 8 });
    new Float64Array(port.pulls[0]?.into.buffer as ArrayBuffer).fill(1.5);
    port.pulls[0]?.settle(0);
    expect(await pulling).toEqual(new Float64Array(4).fill(1.5));
    for (const [Type, bytes] of [
      [Buffer, 7],
      [DataView, 7],
      [BigInt64Array, 16],
      [Uint8ClampedArray, 0],
    ] as const) {
      const typed = pull<ArrayBufferView>(peer, call, remote, Type, { length: bytes });
      if (bytes > 0) port.pulls.at(-1)?.settle(0);
      const value = await typed;
      expect([value.constructor, value.byteLength]).toEqual([Type, bytes]);
    }
  });

  it("refuses a length that is no whole number of elements, what is no type, and what it does not know", async () => {
    const { port, peer, call, remote } = setUp("read", 41);
    expect((await failure(pull(peer, call, remote, Float64Array))).message).toContain(
      "[invalid_argument] pull: 41 bytes are not a multiple of the element size, 8 bytes",
    );
    expect((await failure(pull(peer, call, remote, Buffer, { offset: 50 }))).code).toBe("out_of_range");
    expect((await failure(pull(peer, call, remote, Buffer, { length: 42 }))).code).toBe("out_of_range");
    expect(String(await failure(pull(peer, call, remote, Array as never)))).toContain("the type must be");
    const unknown = { localOffset: 1 } as never;
    expect(String(await failure(pull(peer, call, remote, Buffer, unknown)))).toContain('"localOffset"');
    expect(port.transfers).toEqual([]);
  });
});

describe("remote region", () => {
  it("gives slices inside its bounds, with its own rights", () => {
    const { remote } = setUp("read");
    const slice = remote.slice(10, 20).slice(5);
    expect([grantOf(slice).segments, slice.access]).toEqual([
      [{ key: 5n, address: 4111n, bytes: 15 }],
      "read",
    ]);
    expect([grantOf(slice).grantKey, grantOf(slice).grantOffset]).toEqual([5n, 15]);
    for (const [offset, length] of [
      [0, 101],
      [101, 0],
      [-1, 1],
      [100, 1],
    ] as const) {
      expect(() => remote.slice(offset, length)).toThrow("[out_of_range]");
    }
  });
});
