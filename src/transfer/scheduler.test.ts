import { describe, expect, it } from "vitest";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { type OneSidedTransfer, Scheduler } from "./scheduler.ts";

const kibi = 1024;
const mebi = 1024 * kibi;

interface Settings {
  readonly chunkBytes?: number;
  readonly sharedChunkBytes?: number;
  readonly inFlight?: number;
  readonly address?: number;
  readonly stopped?: () => boolean;
}

const never = (): boolean => false;

function setUp() {
  const port = new FakePort();
  const scheduler = Scheduler.of(port);
  const local = port.register(new ArrayBuffer(8), 0, 8);
  const start = (
    key: bigint,
    bytes: number,
    {
      chunkBytes = mebi,
      sharedChunkBytes = chunkBytes,
      inFlight = 4,
      address = 1,
      stopped = never,
    }: Settings = {},
  ) => {
    const heard = {
      moved: 0,
      ended: undefined as number | undefined,
      transfer: undefined as OneSidedTransfer | undefined,
    };
    heard.transfer = scheduler.start({
      op: "read",
      address,
      extents: bytes === 0 ? [] : [{ local, offset: 0, bytes, key, remote: 0n }],
      pacing: { chunkBytes, sharedChunkBytes, inFlight },
      listener: {
        stopped,
        onMoved(more) {
          heard.moved += more;
        },
        onEnded(status) {
          expect(heard.ended).toBe(undefined);
          heard.ended = status;
        },
      },
    });
    return heard;
  };
  /** The keys of the posted transfers, in order. */
  const keys = () => port.transfers.map(({ extents }) => Number(extents[0]?.key));
  const settleAll = (from = 0) => {
    for (let i = from; i < port.transfers.length; i++) port.transfers[i]?.settle(0);
  };
  return { port, scheduler, start, keys, settleAll };
}

describe("scheduler", () => {
  it.each([1, mebi - 1, mebi, mebi + 1, 10 * mebi + 5])("moves %i bytes, each once, in order", (bytes) => {
    const { port, start, settleAll } = setUp();
    const transfer = start(1n, bytes);
    settleAll();
    expect(transfer).toMatchObject({ moved: bytes, ended: 0 });
    let at = 0;
    for (const { extents } of port.transfers) {
      expect(extents).toHaveLength(1);
      expect([extents[0]?.offset, extents[0]?.remote]).toEqual([at, BigInt(at)]);
      at += extents[0]?.bytes ?? 0;
    }
    expect(at).toBe(bytes);
  });

  it("is one for each port", () => {
    const { port, scheduler } = setUp();
    expect(Scheduler.of(port)).toBe(scheduler);
    expect(Scheduler.of(new FakePort())).not.toBe(scheduler);
  });

  it("ends a transfer of nothing at once, posting nothing", () => {
    const { port, start } = setUp();
    expect(start(1n, 0)).toMatchObject({ moved: 0, ended: 0 });
    expect(port.transfers).toEqual([]);
  });

  it("has so many chunks of a transfer in flight as it may, and no more than the window for one peer", () => {
    const { port, start, keys } = setUp();
    start(1n, 100 * mebi);
    expect(port.transfers).toHaveLength(4);
    start(2n, 100 * mebi);
    start(3n, 100 * mebi);
    expect(keys()).toEqual([1, 1, 1, 1, 2, 2, 2, 2]);
    // Another peer has a separate window.
    start(4n, 100 * mebi, { address: 2 });
    expect(port.transfers).toHaveLength(12);
  });

  it("takes turns when the window is full, so that a short transfer passes long ones", () => {
    const { port, start, keys } = setUp();
    start(1n, 100 * mebi);
    start(2n, 100 * mebi);
    const short = start(3n, 2 * mebi);
    const mark = port.transfers.length;
    for (let i = 0; i < 6; i++) port.transfers[i]?.settle(0);
    // Six have ended, so six more are under way. The first three contain both chunks of the short transfer.
    expect(keys().slice(mark)).toHaveLength(6);
    expect(
      keys()
        .slice(mark, mark + 3)
        .filter((key) => key === 3),
    ).toHaveLength(2);
    for (const { extents, settle } of port.transfers) if (extents[0]?.key === 3n) settle(0);
    expect(short).toMatchObject({ moved: 2 * mebi, ended: 0 });
  });

  it("lets a transfer go beyond the window that was asked to", () => {
    const { port, start } = setUp();
    start(1n, 100 * mebi, { chunkBytes: 4 * mebi, inFlight: 5 });
    expect(port.transfers).toHaveLength(5);
  });

  it("posts a chunk that is longer than the window when nothing else is under way", () => {
    const { port, start } = setUp();
    start(1n, mebi);
    start(2n, 64 * mebi, { chunkBytes: 32 * mebi, inFlight: 1 });
    start(3n, mebi);
    expect(port.transfers).toHaveLength(1);
    port.transfers[0]?.settle(0);
    expect(port.transfers).toHaveLength(2);
    port.transfers[1]?.settle(0);
    expect(port.transfers[2]?.extents[0]?.key).toBe(3n);
  });

  it("posts no more of a transfer after an error, reports the first, and ends it with the last chunk only", () => {
    const { port, start } = setUp();
    const transfer = start(1n, 100 * mebi);
    port.transfers[1]?.settle(5);
    port.transfers[0]?.settle(0);
    port.transfers[2]?.settle(9);
    expect([port.transfers.length, transfer.ended]).toEqual([4, undefined]);
    port.transfers[3]?.settle(0);
    expect(transfer).toMatchObject({ moved: 2 * mebi, ended: 5 });
  });

  it("posts no more of a transfer once it is stopped, and waits for what is under way", () => {
    const { port, start } = setUp();
    let stopped = false;
    const transfer = start(1n, 100 * mebi, { stopped: () => stopped });
    stopped = true;
    transfer.transfer?.stop();
    expect(transfer.ended).toBe(undefined);
    for (let i = 0; i < 4; i++) port.transfers[i]?.settle(0);
    expect(transfer).toMatchObject({ moved: 4 * mebi, ended: 0 });
    expect(port.transfers).toHaveLength(4);
  });

  it("ends a transfer at once that is stopped while it waits for its first turn", () => {
    const { port, start, settleAll } = setUp();
    start(1n, 100 * mebi, { chunkBytes: 8 * mebi, inFlight: 1 });
    let stopped = false;
    const waiting = start(2n, 8 * mebi, { chunkBytes: 8 * mebi, inFlight: 1, stopped: () => stopped });
    const behind = start(3n, mebi);
    stopped = true;
    waiting.transfer?.stop();
    expect([waiting.ended, port.transfers.length]).toEqual([0, 1]);
    settleAll();
    expect(behind.ended).toBe(0);
  });

  it("goes on when chunks end while they are posted", () => {
    const { port, start, keys } = setUp();
    const post = port.transfer.bind(port);
    port.transfer = (op, address, extents, owner) => {
      post(op, address, extents, owner);
      port.transfers.at(-1)?.settle(0);
    };
    const one = start(1n, 1000 * mebi);
    const two = start(2n, 3 * mebi);
    expect([one.ended, two.ended, one.moved, two.moved]).toEqual([0, 0, 1000 * mebi, 3 * mebi]);
    expect(keys()).toHaveLength(1003);
  });

  it("keeps to the port's longest lists of extents", () => {
    const { port, scheduler } = setUp();
    port.maxExtents = 3;
    const local = port.register(new ArrayBuffer(8), 0, 8);
    let ended: number | undefined;
    scheduler.start({
      op: "write",
      address: 1,
      extents: Array.from({ length: 10 }, (_, i) => ({
        local,
        offset: 0,
        bytes: 1,
        key: BigInt(i),
        remote: 0n,
      })),
      pacing: { chunkBytes: mebi, sharedChunkBytes: mebi, inFlight: 1 },
      listener: {
        stopped: () => false,
        onMoved: () => {},
        onEnded: (status) => {
          ended = status;
        },
      },
    });
    for (let i = 0; i < 4; i++) port.transfers[i]?.settle(0);
    expect(port.transfers.map(({ op, extents }) => [op, extents.length])).toEqual([
      ["write", 3],
      ["write", 3],
      ["write", 3],
      ["write", 1],
    ]);
    expect(ended).toBe(0);
  });

  it("cuts long transfers shorter while short ones come, and not any more when none have come for a while", () => {
    const { port, start } = setUp();
    const settings = { chunkBytes: mebi, sharedChunkBytes: mebi / 4, inFlight: 1 };
    const long = start(1n, 100 * mebi, settings);
    /** Ends the chunks of the long transfer in flight, and returns the length of its next chunk. */
    const nextChunk = () => {
      const mark = port.transfers.length;
      port.transfers.findLast(({ extents }) => extents[0]?.key === 1n)?.settle(0);
      return port.transfers[mark]?.bytes;
    };
    expect(nextChunk()).toBe(mebi);
    for (let i = 0; i < 3; i++) start(2n, 4 * kibi, { address: 2 });
    expect(nextChunk()).toBe(mebi / 4);
    // 8 MiB without messages and short transfers.
    for (let i = 0; i < 32; i++) nextChunk();
    expect(nextChunk()).toBe(mebi);
    while (long.ended === undefined) nextChunk();
    expect(long).toMatchObject({ moved: 100 * mebi, ended: 0 });
  });

  it("does not cut what carries a put notification", () => {
    const { port, scheduler } = setUp();
    const local = port.register(new ArrayBuffer(8), 0, 8);
    for (let i = 0; i < 3; i++) scheduler.contention.onTransfer(1);
    scheduler.start({
      op: "write",
      address: 1,
      extents: [{ local, offset: 0, bytes: mebi, key: 1n, remote: 0n }],
      pacing: { chunkBytes: mebi, sharedChunkBytes: kibi, inFlight: 1 },
      listener: { stopped: never, onMoved: () => {}, onEnded: () => {} },
      notification: 7n,
    });
    expect(port.transfers.map(({ bytes, notification }) => [bytes, notification])).toEqual([[mebi, 7n]]);
  });
});
