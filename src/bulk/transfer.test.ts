import { describe, expect, it } from "vitest";
import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { FakePort } from "../session/fake-port.test-support.ts";
import { Region } from "./region.ts";
import { RegionCore } from "./region-core.ts";
import { RemoteRegion } from "./remote-region.ts";
import { type TransferOptions, transfer } from "./transfer.ts";

const access = { read: 1, write: 2, read_write: 3 } as const;
const cancelled = new RpcError({ code: "cancelled", message: "the caller gave up", origin: "remote" });

function setUp(granted: keyof typeof access = "read_write", bytes = 100) {
  const answers: Outcome[] = [];
  const port = new FakePort();
  const route = { port, address: 1, kick: () => {} };
  const call = new IncomingCall({ answer: (_, outcome) => void answers.push(outcome) }, 1 << 20, 0);
  const remote = new RemoteRegion(call, {
    bytes,
    access: access[granted],
    segments: [{ key: 5n, address: 4096n, bytes }],
  });
  const get = (local: ArrayBufferView | Region, options?: TransferOptions, from: RemoteRegion = remote) =>
    transfer("get", route, call, from, local, options);
  return { answers, port, route, call, remote, get };
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
  it("moves what it is asked for and lets go of the local memory", async () => {
    const { port, get } = setUp();
    const local = new Uint8Array(20);
    const got = get(local, { offset: 10, length: 8, localOffset: 4 });
    expect([port.pulls[0]?.key, port.pulls[0]?.into.byteLength, port.regions.size]).toEqual([5n, 8, 1]);
    port.pulls[0]?.into.fill(9);
    port.pulls[0]?.settle(0);
    expect(await got).toBe(8);
    expect([...local]).toEqual([0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
    expect(port.regions.size).toBe(0);
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
    const { port, get, route, call } = setUp("write");
    expect((await failure(get(new Uint8Array(5)))).code).toBe("permission_denied");
    const readable = setUp("read");
    const put = transfer("put", readable.route, readable.call, readable.remote, new Uint8Array(5));
    expect((await failure(put)).message).toContain(
      'put: the region was exposed for "read", this needs "write"',
    );
    expect([port.pulls.length, call.open, route.address]).toEqual([0, true, 1]);
  });

  it("refuses a region of another call", async () => {
    const { get } = setUp();
    const other = setUp();
    expect((await failure(get(new Uint8Array(5), {}, other.remote))).message).toContain(
      "the region came with another call",
    );
  });

  it.each([
    [{}, "the remote side must be a region"],
    [null, "the remote side must be a region"],
  ])("refuses %j for a remote region", async (remote, message) => {
    const { get } = setUp();
    expect(String(await failure(get(new Uint8Array(5), {}, remote as never)))).toContain(message);
  });

  it("refuses local memory that is none, and options it does not know", async () => {
    const { get } = setUp();
    expect(String(await failure(get([] as never)))).toContain("local memory must be a typed array");
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
    const { get, call, port, answers } = setUp();
    const getting = get(new Uint8Array(5));
    call.abort(cancelled);
    expect(await failure(getting)).toBe(cancelled);
    expect([port.regions.size, answers.length]).toEqual([1, 0]);
    port.pulls[0]?.settle(0);
    await new Promise(setImmediate);
    expect([port.regions.size, answers.length]).toEqual([0, 1]);
  });

  it("fails with the provider's error, and the call goes on", async () => {
    const { get, call, port } = setUp();
    const getting = get(new Uint8Array(5));
    port.pulls[0]?.settle(266);
    const error = await failure(getting);
    expect(error.fabric).toMatchObject({ op: "fi_read", code: 266 });
    expect([call.open, port.regions.size]).toEqual([true, 0]);
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

describe("remote region", () => {
  it("gives slices inside its bounds, with its own rights", () => {
    const { remote } = setUp("read");
    const slice = remote.slice(10, 20).slice(5);
    expect([slice.segments, slice.access]).toEqual([[{ key: 5n, address: 4111n, bytes: 15 }], "read"]);
    expect([slice.loanKey, slice.loanOffset]).toEqual([5n, 15]);
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
