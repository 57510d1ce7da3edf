import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, it } from "vitest";
import { leastMemoryBytes } from "../../base/flow/engine-limits.ts";
import { access } from "../../fabric/port.ts";
import { builtin } from "../../wire/builtin.ts";
import { PiecePool, pieceBytes, Staging, stagingPoolBytes } from "../staging.ts";
import { SealedPair, testCiphers } from "./pair.test-support.ts";
import { inlineBytes, maxRanges, PieceQueue, pieceContext, piecesInFlight } from "./piece.ts";

const pairs: SealedPair[] = [];
const pair = (...args: ConstructorParameters<typeof SealedPair>) => {
  const made = new SealedPair(...args);
  pairs.push(made);
  return made;
};
afterEach(() => {
  for (const each of pairs.splice(0)) each.close();
});

/** The wire form of a piece. */
type SealedParts = [key: bigint, address: bigint, counter: number, tag: Uint8Array];

const key = 77n;
/** Views of uneven lengths over one buffer, with a gap after each. */
const cut = (bytes: number, lengths: readonly number[]) => {
  const views: Uint8Array[] = [];
  const memory = new Uint8Array(bytes * 2 + 16);
  let at = 3;
  for (let left = bytes, i = 0; left > 0; i++) {
    const length = Math.min(left, lengths[i % lengths.length] as number);
    views.push(memory.subarray(at, at + length));
    at += length + 5;
    left -= length;
    if (at + left > memory.byteLength) at = 3;
  }
  return views;
};
const whole = (views: readonly Uint8Array[]) => Buffer.concat(views);

const takeAll = (pool: PiecePool, account: object, pieces: number) =>
  Promise.all(Array.from({ length: pieces }, () => pool.take(account)));
/** The most that one peer may have: as much as it leaves for others. */
const mostOfPeer = (16 * 1024 * 1024) / pieceBytes;

describe("sealed bulk", () => {
  it.each([1, 100, inlineBytes, inlineBytes + 1, pieceBytes, 5 * pieceBytes + 4321])(
    "moves %i bytes both ways, whatever the cuts of either side",
    async (bytes) => {
      const both = pair();
      const there = cut(bytes, [70_000, 1, 4096, 300_001]);
      for (const view of there) view.set(randomBytes(view.byteLength));
      both.grant(key, "read write", ...there);
      const here = cut(bytes, [100_000, 7, 12_345]);
      expect(await both.move("get", [{ key, offset: 0, local: here }])).toEqual({
        moved: bytes,
        code: undefined,
      });
      expect(whole(here).equals(whole(there))).toBe(true);
      for (const view of here) view.set(randomBytes(view.byteLength));
      expect(await both.move("put", [{ key, offset: 0, local: here }])).toEqual({
        moved: bytes,
        code: undefined,
      });
      expect(whole(there).equals(whole(here))).toBe(true);
    },
  );

  it("puts no user's memory and no plain byte where a peer can reach it", async () => {
    const all = pair();
    const there = new Uint8Array(600_000).fill(0x5a);
    const here = new Uint8Array(600_000).fill(0xa5);
    all.grant(key, "read write", there);
    await all.move("put", [{ key, offset: 0, local: [here] }]);
    await all.move("get", [{ key, offset: 0, local: [here] }]);
    const readable = all.registered.filter((each) => each.access === access.remoteRead);
    expect(readable.length).toBeGreaterThan(0);
    for (const { memory, access: rights } of all.registered) {
      expect([there.buffer, here.buffer]).not.toContain(memory);
      expect(rights & access.remoteWrite).toBe(0);
    }
    for (const { memory } of readable) {
      const bytes = Buffer.from(memory as ArrayBuffer);
      expect(bytes.includes(Buffer.alloc(16, 0x5a)) || bytes.includes(Buffer.alloc(16, 0xa5))).toBe(false);
    }
  });

  it("seals the same bytes anew each time", async () => {
    const all = pair();
    all.grant(key, "read", new Uint8Array(100_000));
    const sealed: string[] = [];
    for (let i = 0; i < 2; i++) {
      const [, , counter, tag] = (await all.ask(builtin.getPiece, [[key, 0, 100_000], 0])) as SealedParts;
      const { memory } = all.registered[0] as { memory: ArrayBuffer };
      sealed.push(Buffer.from(memory).toString("latin1", 0, 3 * pieceBytes + 100), `${counter}`, `${tag}`);
    }
    expect(new Set(sealed).size).toBe(6);
  });

  const changedTag = ([key, address, counter, tag]: SealedParts): unknown => [
    key,
    address,
    counter,
    Uint8Array.from(tag, (byte, at) => (at === 5 ? byte ^ 1 : byte)),
  ];
  const changedCounter = ([key, address, counter, tag]: SealedParts): unknown => [
    key,
    address,
    counter + 1,
    tag,
  ];

  it.each([
    ["its tag", changedTag],
    ["its counter", changedCounter],
  ] as const)("ends a get with data_loss and leaves no text where %s was changed", async (_what, change) => {
    const all = pair();
    all.grant(key, "read", new Uint8Array(300_000).fill(1));
    all.onAnswer = (_method, value) => (Array.isArray(value) ? change(value as SealedParts) : value);
    const get = (...local: Uint8Array[]) => all.move("get", [{ key, offset: 0, local }]);
    const one = new Uint8Array(200_000).fill(2);
    expect(await get(one)).toEqual({ moved: 0, code: "data_loss" });
    expect(one.every((byte) => byte === 0)).toBe(true);
    const several = [new Uint8Array(150_000).fill(2), new Uint8Array(50_000).fill(2)];
    expect(await get(...several)).toEqual({ moved: 0, code: "data_loss" });
    expect(several.every((view) => view.every((byte) => byte === 2))).toBe(true);
  });

  it.each([0, 1, 1000, 99_999])(
    "finds byte %i of the ciphertext changed, in a get and in a put",
    async (at) => {
      const all = pair();
      const there = new Uint8Array(100_000).fill(1);
      all.grant(key, "read write", there);
      const spoil = () => {
        // Each piece of each readable slab: this piece is one of them.
        for (const { memory, access: rights } of all.registered)
          if (rights === access.remoteRead)
            for (let piece = 0; piece < memory.byteLength; piece += pieceBytes)
              (new Uint8Array(memory)[piece + at] as number) ^= 0x80;
      };
      // Not with `releasePieces`, which may come at any time: two changes would restore the original.
      all.onAnswer = (method, value) => {
        if (method === builtin.getPiece) spoil();
        return value;
      };
      const here = new Uint8Array(100_000);
      expect((await all.move("get", [{ key, offset: 0, local: [here] }])).code).toBe("data_loss");
      expect(here.every((byte) => byte === 0)).toBe(true);
      all.onRequest = (method, input) => {
        if (method === builtin.putPiece) spoil();
        return input;
      };
      const put = await all.move("put", [{ key, offset: 0, local: [new Uint8Array(100_000).fill(7)] }]);
      expect(put).toEqual({ moved: 0, code: "data_loss" });
      expect(there.every((byte) => byte === 0)).toBe(true);
    },
  );

  it("does not take a piece of another range, or of another purpose, for the one that was asked for", () => {
    const { sealer, opener } = testCiphers();
    const range = { key, offset: 0, bytes: 64 };
    const contexts = [
      pieceContext("get", [range]),
      pieceContext("put", [range]),
      pieceContext("get", [{ ...range, key: 78n }]),
      pieceContext("get", [{ ...range, offset: 8 }]),
      pieceContext("get", [
        { ...range, bytes: 32 },
        { ...range, offset: 32, bytes: 32 },
      ]),
    ];
    const sealed = new Uint8Array(64);
    const { counter, tag } = sealer.seal(new Uint8Array(64), sealed, contexts[0] as Uint8Array);
    const opened = contexts.map((context) => opener.open(counter, tag, sealed, new Uint8Array(64), context));
    expect(opened).toEqual([true, false, false, false, false]);
  });

  it("tells why its owner refuses", async () => {
    const all = pair();
    all.grant(1n, "write", new Uint8Array(20_000));
    all.grant(2n, "read", new Uint8Array(20_000));
    for (const bytes of [10, 20_000]) {
      const local = [new Uint8Array(bytes)];
      const code = async (op: "get" | "put", grant: bigint, offset: number) =>
        (await all.move(op, [{ key: grant, offset, local }])).code;
      expect(await code("get", 1n, 0)).toBe("permission_denied");
      expect(await code("put", 2n, 0)).toBe("permission_denied");
      expect(await code("get", 3n, 0)).toBe("not_found");
      expect(await code("put", 1n, 20_000)).toBe("out_of_range");
    }
  });

  it("does not touch memory whose grant ends while a piece is under way", async () => {
    const all = pair();
    const there = new Uint8Array(100_000).fill(1);
    all.grant(key, "write", there);
    const transfer = all.owner.transfer.bind(all.owner);
    all.owner.transfer = (...args) => {
      all.grants.delete(key);
      return transfer(...args);
    };
    const put = await all.move("put", [{ key, offset: 0, local: [new Uint8Array(100_000).fill(7)] }]);
    expect(put).toEqual({ moved: 0, code: "not_found" });
    expect(there.every((byte) => byte === 1)).toBe(true);
  });

  it("stops when nobody wants the rest, and says how much is in place", async () => {
    const all = pair();
    const bytes = 16 * pieceBytes;
    const there = new Uint8Array(bytes);
    all.grant(key, "write", there);
    let puts = 0;
    all.onRequest = (_method, input) => {
      puts++;
      return input;
    };
    const { moved, code } = await all.move(
      "put",
      [{ key, offset: 0, local: [new Uint8Array(bytes).fill(1)] }],
      {
        stopped: () => puts >= 3,
      },
    );
    expect(code).toBeUndefined();
    expect(moved).toBeLessThan(bytes);
    expect(there.reduce((sum, byte) => sum + byte, 0)).toBe(moved);
  });

  it("shares the pieces under way among transfers, and gives its memory back at rest", async () => {
    const all = pair();
    const bytes = 24 * pieceBytes;
    all.grant(key, "read", new Uint8Array(bytes).fill(3));
    const order: string[] = [];
    const get = async (name: string, size: number) => {
      const { moved } = await all.move("get", [{ key, offset: 0, local: [new Uint8Array(size)] }]);
      order.push(name);
      return moved;
    };
    const moved = await Promise.all([get("long", bytes), get("short", 2 * pieceBytes)]);
    expect(moved).toEqual([bytes, 2 * pieceBytes]);
    expect(order).toEqual(["short", "long"]);
    const pools = [all.owner, all.mover].flatMap((port) => [Staging.of(port).own, Staging.of(port).readable]);
    // A fifth of a second until the pieces are given back, and one until the slabs are released. The limit is for
    // machines under load.
    await expect
      .poll(() => pools.map((pool) => [pool.taken, pool.bytes]), { timeout: 20_000 })
      .toEqual(pools.map(() => [0, 0]));
    expect(all.asked.at(-1)?.method).toBe(builtin.releasePieces);
  });

  it.each(["get", "put"] as const)("moves on by %s where there is little staging memory", async (op) => {
    const all = pair();
    const bytes = 30 * pieceBytes;
    const [there, here] = [randomBytes(bytes), randomBytes(bytes)];
    all.grant(key, "read write", there);
    const [port, account] = op === "get" ? [all.owner, all.ownerAccount] : [all.mover, all.moverAccount];
    const pool = Staging.of(port).readable;
    const taken = await takeAll(pool, account, mostOfPeer);
    for (const piece of taken.splice(0, 3)) piece.giveBack();
    // The last pieces wait for read pieces in other slots, until the owner is notified that these are free.
    expect(await all.move(op, [{ key, offset: 0, local: [here] }])).toEqual({
      moved: bytes,
      code: undefined,
    });
    expect(here.equals(there)).toBe(true);
    expect(pool.taken).toBeLessThanOrEqual(mostOfPeer);
  });

  it.each(["get", "put"] as const)("moves on by %s with the least memory budget", async (op) => {
    const all = pair(testCiphers(), leastMemoryBytes);
    const bytes = 6 * pieceBytes;
    const [there, here] = [randomBytes(bytes), randomBytes(bytes)];
    all.grant(key, "read write", there);
    const pools = [all.owner, all.mover].flatMap((port) => {
      const { own, readable } = Staging.of(port, leastMemoryBytes);
      return [own, readable];
    });
    let mostBytes = 0;
    all.onRequest = (_method, input) => {
      mostBytes = Math.max(mostBytes, ...pools.map((pool) => pool.bytes));
      return input;
    };
    expect(await all.move(op, [{ key, offset: 0, local: [here] }])).toEqual({
      moved: bytes,
      code: undefined,
    });
    expect(here.equals(there)).toBe(true);
    expect(mostBytes).toBe(stagingPoolBytes(leastMemoryBytes));
  });

  it("reads a piece at once, however short the chunks of its fabric are", async () => {
    const all = pair();
    for (const port of [all.owner, all.mover]) Object.defineProperty(port, "scheme", { value: "tcp" });
    const there = randomBytes(8 * pieceBytes);
    const here = new Uint8Array(there.byteLength);
    all.grant(key, "read write", there);
    for (const [op, port] of [
      ["get", all.mover],
      ["put", all.owner],
    ] as const) {
      const lengths: number[] = [];
      const transfer = port.transfer.bind(port);
      port.transfer = (kind, address, extents, ...rest) => {
        lengths.push(...extents.map(({ bytes }) => bytes));
        transfer(kind, address, extents, ...rest);
      };
      await all.move(op, [{ key, offset: 0, local: [here] }]);
      port.transfer = transfer;
      expect(lengths.length).toBeLessThan(16);
      expect(Math.max(...lengths)).toBe(pieceBytes);
    }
    expect(Buffer.compare(here, there)).toBe(0);
  });

  it.each(["get", "put"] as const)(
    "seals and opens nothing of a %s once its session has ended",
    async (op) => {
      const ciphers = testCiphers();
      const all = pair(ciphers);
      const side = op === "get" ? ciphers.opener : ciphers.sealer;
      let used = 0;
      const first = Object.values(side)[0] as (...args: unknown[]) => unknown;
      const wrapped = (...args: unknown[]): unknown => {
        // The mover's side.
        if (used++ === 0) all.sessionMover.end();
        return first(...args);
      };
      Object.assign(side, { [op === "get" ? "open" : "seal"]: wrapped });
      const bytes = 8 * pieceBytes;
      all.grant(key, "read write", new Uint8Array(bytes));
      // These requests are answered, unlike those of an ended session: without this a get would never end.
      all.onRequest = (_method, input) => (used > 0 && op === "get" ? [] : input);
      const { moved, code } = await all.move(op, [{ key, offset: 0, local: [new Uint8Array(bytes)] }]);
      expect([used, code]).toEqual([1, "invalid_argument"]);
      expect(moved).toBeLessThan(bytes);
      expect(Staging.of(all.mover).readable.taken + Staging.of(all.mover).own.taken).toBe(0);
    },
  );

  it("refuses requests of another form", async () => {
    const all = pair();
    all.grant(key, "read write", new Uint8Array(pieceBytes * 2));
    const tag = new Uint8Array(16);
    const many = Array.from({ length: maxRanges + 1 }, () => [key, 0, 1]).flat();
    for (const input of [
      [],
      [[]],
      [[key, 0]],
      [[1, 0, 8]],
      [[key, -1, 8]],
      [[key, 0, 0]],
      [[key, 0, 1.5]],
      [many],
      [[key, 0, pieceBytes + 1], 0],
      [[key, 0, inlineBytes + 1]],
      [[key, 0, 8], piecesInFlight],
      [[key, 0, 8], -1],
      [[key, 0, 8], "0"],
      [[key, 0, 8], 0, [key, 0, 8]],
      [[key, 0, 8], 0, [key, 0, 8], 1],
    ])
      expect(await all.ask(builtin.getPiece, input)).toBe("invalid_argument");
    for (const input of [
      [[key, 0, 8]],
      [[key, 0, 8], new Uint8Array(7)],
      [[key, 0, inlineBytes + 1], new Uint8Array(inlineBytes + 1)],
      [[key, 0, 8], 1n, 1n, 1],
      [[key, 0, 8], 1n, 1n, 1, new Uint8Array(15)],
      [[key, 0, 8], 1n, 1n, -1, tag],
      [[key, 0, 8], 1, 1n, 1, tag],
      [[key, 0, 8], 1n, 1n, 1, tag, 0],
      [[key, 0, 8], 1n, 1n, 1, tag, [key, 0, 8], new Uint8Array(8)],
      [[key, 0, 8], 1n, 1n, 1, tag, [key, 0, 8], 1n, 1n, 1, tag],
    ])
      expect(await all.ask(builtin.putPiece, input)).toBe("invalid_argument");
  });

  it("bounds what one peer makes it open at once, and a piece that is being sealed", async () => {
    const all = pair();
    all.grant(key, "read write", new Uint8Array(pieceBytes));
    const staged = await Staging.of(all.mover).readable.take({});
    const { key: at, base } = staged.registered;
    const put = (): Promise<unknown> =>
      all.ask(builtin.putPiece, [[key, 0, 64], at, base + BigInt(staged.offset), 1, new Uint8Array(16)]);
    const answers = await Promise.all(Array.from({ length: piecesInFlight + 2 }, put));
    expect(answers.sort()).toEqual([
      ...Array(piecesInFlight).fill("data_loss"),
      "resource_exhausted",
      "resource_exhausted",
    ]);
    // The first get waits for memory. Meanwhile the second asks for the same piece.
    const pool = Staging.of(all.owner).readable;
    const taken = await takeAll(pool, all.ownerAccount, mostOfPeer);
    const get = (): Promise<unknown> => all.ask(builtin.getPiece, [[key, 0, 64], 0]);
    const first = get();
    expect(await get()).toBe("invalid_argument");
    taken[0]?.giveBack();
    expect(await first).toHaveLength(4);
  });
});

describe("a queue of pieces", () => {
  it("joins what lies together, and cuts at the length and the number of ranges", () => {
    const local = [new Uint8Array(10), new Uint8Array(20)];
    const queue = new PieceQueue(
      [
        { key: 1n, offset: 5, local },
        { key: 1n, offset: 35, local: [new Uint8Array(10)] },
        { key: 2n, offset: 0, local: [new Uint8Array(30)] },
      ],
      50,
    );
    const first = queue.take();
    expect(first.ranges).toEqual([
      { key: 1n, offset: 5, bytes: 40 },
      { key: 2n, offset: 0, bytes: 10 },
    ]);
    expect([first.bytes, queue.remaining]).toEqual([50, 20]);
    expect(queue.take().ranges).toEqual([{ key: 2n, offset: 10, bytes: 20 }]);
    expect(queue.remaining).toBe(0);
    const views = Array.from({ length: maxRanges + 3 }, (_, i) => ({
      key: BigInt(i),
      offset: 0,
      local: [new Uint8Array(1)],
    }));
    const many = new PieceQueue(views);
    expect([many.take().ranges.length, many.take().ranges.length]).toEqual([maxRanges, 3]);
  });
});

describe("staging memory", () => {
  it("makes takers wait in turn when all of it is in use", async () => {
    const { owner } = pair();
    const pool = new PiecePool(owner, access.local);
    const account = {};
    const taken = await takeAll(pool, account, mostOfPeer);
    expect(pool.bytes).toBe(16 * 1024 * 1024);
    const served: number[] = [];
    const later = [1, 2].map((n) =>
      pool.take(account).then((piece) => {
        served.push(n);
        return piece;
      }),
    );
    await new Promise(setImmediate);
    expect(served).toEqual([]);
    taken[5]?.giveBack();
    await later[0];
    taken[9]?.giveBack();
    await later[1];
    expect([served, pool.taken]).toEqual([[1, 2], mostOfPeer]);
  });

  it("is there for another peer, however much one holds and wants", async () => {
    const { owner } = pair();
    const pool = new PiecePool(owner, access.local);
    const greedy = {};
    const held = await takeAll(pool, greedy, mostOfPeer);
    for (let i = 0; i < 200; i++) void pool.take(greedy);
    const honest = await takeAll(pool, {}, mostOfPeer / 2);
    expect(pool.taken).toBe(mostOfPeer * 1.5);
    // A peer that has less than it leaves for others passes peers that have more.
    const third = {};
    const thirds = await takeAll(pool, third, mostOfPeer / 4);
    let served = false;
    const one = pool.take(third).then(() => {
      served = true;
    });
    await new Promise(setImmediate);
    expect([served, pool.taken]).toEqual([false, mostOfPeer * 1.75]);
    for (const piece of [...honest.slice(0, 2), ...held.slice(0, 1)]) piece.giveBack();
    await one;
    expect(thirds.length).toBe(mostOfPeer / 4);
  });

  it("comes back from a peer that has got a piece and says no more", async () => {
    const all = pair();
    all.grant(key, "read", new Uint8Array(100_000));
    const { readable } = Staging.of(all.owner);
    const get = (slot: number) => all.ask(builtin.getPiece, [[key, 0, 100_000], slot]);
    await get(0);
    await get(1);
    all.ownerClock.advance(50_000);
    await get(0);
    all.ownerClock.advance(50_000);
    expect(readable.taken).toBe(2);
    all.ownerClock.advance(10_000);
    expect([readable.taken, all.ownerClock.timers]).toEqual([0, 0]);
    await get(3);
    expect(readable.taken).toBe(1);
  });
});
