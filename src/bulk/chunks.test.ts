import { describe, expect, it } from "vitest";
import type { Port, RegisteredMemory } from "../fabric/port.ts";
import { moveRun } from "./chunks.ts";

const mebibyte = 1024 * 1024;

interface Posted {
  readonly op: string;
  readonly offset: number;
  readonly bytes: number;
  readonly remote: bigint;
  readonly settle: (status: number) => void;
}

function setUp(maxTransferBytes = Number.MAX_SAFE_INTEGER) {
  const posted: Posted[] = [];
  const post =
    (op: string) =>
    (
      _address: number,
      _local: RegisteredMemory,
      offset: number,
      bytes: number,
      _key: bigint,
      remote: bigint,
    ) =>
      new Promise<number>((settle) => posted.push({ op, offset, bytes, remote, settle }));
  const port = { maxTransferBytes, read: post("read"), write: post("write") } as unknown as Port;
  const move = (bytes: number, stop = () => false, op: "read" | "write" = "read") =>
    moveRun(
      {
        op,
        port,
        address: 1,
        local: { index: 0, key: 0n, base: 0n },
        localOffset: 100,
        bytes,
        key: 7n,
        remote: 1000n,
      },
      stop,
    );
  return { posted, move };
}

/** Settles chunks as they are posted until the run has ended. */
async function settleAll<T>(run: Promise<T>, posted: Posted[], status = 0): Promise<T> {
  let ended = false;
  run.finally(() => {
    ended = true;
  });
  for (let next = 0; !ended; await new Promise(setImmediate)) {
    for (; next < posted.length; next++) posted[next]?.settle(status);
  }
  return run;
}

describe("moveRun", () => {
  it.each([1, mebibyte - 1, mebibyte, mebibyte + 1, 10 * mebibyte + 5])(
    "moves %i bytes, each once",
    async (bytes) => {
      const { posted, move } = setUp();
      expect(await settleAll(move(bytes), posted)).toEqual({ status: 0, bytes });
      let at = 0;
      for (const chunk of posted) {
        expect([chunk.offset, chunk.remote]).toEqual([100 + at, 1000n + BigInt(at)]);
        expect(chunk.bytes).toBeLessThanOrEqual(mebibyte);
        at += chunk.bytes;
      }
      expect(at).toBe(bytes);
    },
  );

  it("keeps to the port's longest transfer and to its direction", async () => {
    const { posted, move } = setUp(10);
    expect(await settleAll(move(25, undefined, "write"), posted)).toEqual({ status: 0, bytes: 25 });
    expect(posted.map(({ op, bytes }) => [op, bytes])).toEqual([
      ["write", 10],
      ["write", 10],
      ["write", 5],
    ]);
  });

  it("has four chunks in flight", () => {
    const { posted, move } = setUp();
    void move(100 * mebibyte);
    expect(posted).toHaveLength(4);
  });

  it("posts nothing for no bytes", async () => {
    const { posted, move } = setUp();
    expect(await move(0)).toEqual({ status: 0, bytes: 0 });
    expect(posted).toEqual([]);
  });

  it("posts no more after an error, reports the first, and ends with the last chunk only", async () => {
    const { posted, move } = setUp();
    let ended = false;
    const run = move(100 * mebibyte).finally(() => {
      ended = true;
    });
    posted[1]?.settle(5);
    await new Promise(setImmediate);
    posted[0]?.settle(0);
    posted[2]?.settle(9);
    await new Promise(setImmediate);
    expect([posted.length, ended]).toEqual([4, false]);
    posted[3]?.settle(0);
    expect(await run).toEqual({ status: 5, bytes: 2 * mebibyte });
  });

  it("posts no more once it is told to stop, and waits for what is under way", async () => {
    const { posted, move } = setUp();
    let stop = false;
    const run = move(100 * mebibyte, () => stop);
    stop = true;
    expect(await settleAll(run, posted)).toEqual({ status: 0, bytes: 4 * mebibyte });
    expect(posted).toHaveLength(4);
  });
});
