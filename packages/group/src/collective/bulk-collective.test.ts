import { createHash, randomBytes } from "node:crypto";
import { type Region, RpcError, service } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { pieceBytes } from "./bulk-copy.ts";
import { closeAll, groupOf, type TestMember } from "./group-of.test-support.ts";
import { implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";
import { CollectiveError } from "./result.ts";

const Models = service("models.v1", {
  load: collective({
    input: z.object({ name: z.string() }),
    output: z.array(z.string()),
    reduce: (a, b) => [...a, ...b],
    bulk: { maxBytes: 64 << 20 },
  }),
});

const sha = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const ranksOf = (size: number) => Array.from({ length: size }, (_, rank) => rank);
const binomial = { kind: "knomial", ratio: 2 } as const;
const long = { timeoutMs: 60_000, tree: binomial };

let members: TestMember[] = [];
const regions: Region[] = [];
afterEach(async () => {
  for (const region of regions.splice(0)) region.dispose();
  await closeAll(members);
  members = [];
});

interface Behaviour {
  readonly handle?: (rank: number, bulk: Uint8Array, signal: AbortSignal) => unknown;
  readonly before?: (rank: number) => unknown;
}

async function openGroup(size: number, { handle, before }: Behaviour = {}, options = {}): Promise<void> {
  members = await groupOf(
    size,
    (rank) => [
      implementCollectives(Models, {
        load: {
          before: () => before?.(rank),
          async handle({ name }, { bulk, signal }) {
            const sum = sha(bulk);
            await handle?.(rank, bulk, signal);
            return [`${name} ${rank} ${sum}`];
          },
        },
      }),
    ],
    options,
  );
}

const at = (rank: number) => members[rank] as TestMember;

/** Memory of the member with this rank, for peers to read. */
function exposed(bytes: Uint8Array, rank = 0): Region<"read"> {
  const region = at(rank).engine.expose(bytes, { access: "read" });
  regions.push(region);
  return region;
}

/** Until all memory of the pools is back. */
async function nothingTaken(): Promise<void> {
  await vi.waitFor(() => {
    for (const { engine } of members) expect(engine.stats().pool.takenBytes).toBe(0);
  }, 60_000);
}

describe("a collective with a region", () => {
  it("gives all members the bytes, and each copies them once", async () => {
    await openGroup(8);
    const bytes = randomBytes(2 * pieceBytes + 12_345);
    const { load } = at(3).collectives.all(Models);
    const { value, ok } = await load({ name: "a" }, { ...long, bulk: exposed(bytes, 3) });
    expect(ok).toEqual(ranksOf(8));
    expect([...value].sort()).toEqual(ranksOf(8).map((rank) => `a ${rank} ${sha(bytes)}`));
    for (const [rank, { engine }] of members.entries())
      expect(engine.stats().counters.bytesGot).toBe(rank === 3 ? 0 : bytes.byteLength);
    // Only calls that the caller made may read its memory: as many as it has children.
    expect(at(3).engine.stats().counters.callsStarted).toBe(3);
    await nothingTaken();
  });

  it("can be called with a slice, by a caller that is no target, and with one byte", async () => {
    await openGroup(4);
    const bytes = randomBytes(100);
    const region = exposed(bytes);
    const { load } = at(0).collectives.all(Models);
    const some = await load(
      { name: "b" },
      { ...long, exclude: [0], bulk: region.slice(10, 20) as Region<"read"> },
    );
    expect([...some.value].sort()).toEqual(
      [1, 2, 3].map((rank) => `b ${rank} ${sha(bytes.subarray(10, 30))}`),
    );
    const one = await load(
      { name: "c" },
      { ...long, bulk: region.slice(0, 1) as Region<"read">, checksum: "crc32c" },
    );
    expect(one.value).toContain(`c 3 ${sha(bytes.subarray(0, 1))}`);
    // In pieces, for members that copy them.
    const parts = at(0).engine.expose([bytes.subarray(0, 7), bytes.subarray(50)], { access: "read" });
    regions.push(parts);
    const joined = await load({ name: "d" }, { ...long, exclude: [0], bulk: parts });
    const whole = Buffer.concat([bytes.subarray(0, 7), bytes.subarray(50)]);
    expect(joined.value).toContain(`d 1 ${sha(whole)}`);
    await expect(load({ name: "e" }, { ...long, bulk: parts })).rejects.toThrow("2 segments");
  });

  it("runs the leaves first with failout, and at a caller that is alone", async () => {
    const order: number[] = [];
    await openGroup(4, { handle: (rank) => void order.push(rank) });
    const bytes = randomBytes(1000);
    const { load } = at(0).collectives.all(Models);
    const bulk = exposed(bytes);
    const { ok } = await load({ name: "a" }, { ...long, onFailure: "failout", bulk });
    expect(ok).toEqual(ranksOf(4));
    // 3 is below 2, and that below 0.
    expect([order.indexOf(3) < order.indexOf(2), order.at(-1)]).toEqual([true, 0]);
    const alone = await load({ name: "b" }, { ...long, include: [0], bulk });
    expect(alone.value).toEqual([`b 0 ${sha(bytes)}`]);
    await nothingTaken();
  });

  it("goes on from the adopter's copy where a member dies", async () => {
    let isHeld = true;
    const held: (() => void)[] = [];
    await openGroup(8, {
      handle: (rank) =>
        rank === 0 || !isHeld ? undefined : new Promise<void>((resolve) => held.push(resolve)),
    });
    const bytes = randomBytes(3 * pieceBytes);
    const { load } = at(0).collectives.all(Models);
    const call = load({ name: "a" }, { ...long, bulk: exposed(bytes), onFailure: "partial" });
    // All have copied: those below the member that dies need nothing any more.
    await vi.waitFor(() => expect(held).toHaveLength(7), 60_000);
    await at(4).engine.close();
    await vi.waitFor(() => {
      for (const rank of [5, 6]) expect(at(rank).collectives.stats().rejoined).toBe(1);
    }, 60_000);
    isHeld = false;
    for (const letGo of held) letGo();
    const { ok, failed, repaired, value } = await call;
    expect([[...failed.keys()], repaired]).toEqual([[4], [5, 6]]);
    expect([...value].sort()).toEqual(ok.map((rank) => `a ${rank} ${sha(bytes)}`));
    // The next call finds the member dead: its children copy from its parent.
    const next = await load({ name: "b" }, { ...long, bulk: exposed(bytes), onFailure: "partial" });
    expect([next.ok, next.repaired]).toEqual([ok, [5, 6]]);
    expect([...next.value].sort()).toEqual(ok.map((rank) => `b ${rank} ${sha(bytes)}`));
    members.splice(4, 1);
    await nothingTaken();
  });

  it("reaches those below a member that has no memory for it", async () => {
    await openGroup(8, {}, { limits: { maxPoolBytes: 2 * pieceBytes } });
    using _ = at(4).engine.pool.take(2 * pieceBytes - 4096);
    const bytes = randomBytes(pieceBytes);
    const { load } = at(0).collectives.all(Models);
    const { failed, repaired } = await load(
      { name: "a" },
      { ...long, bulk: exposed(bytes), onFailure: "partial" },
    );
    expect([...failed]).toEqual([
      [4, expect.objectContaining({ code: "resource_exhausted", executed: "no" })],
    ]);
    expect(repaired).toEqual([5, 6]);
  });

  it("is vetoed before it is copied", async () => {
    await openGroup(8, {
      before: (rank) => {
        if (rank === 4) throw new RpcError({ code: "failed_precondition", message: "in maintenance" });
      },
    });
    const { load } = at(0).collectives.all(Models);
    const bulk = exposed(randomBytes(pieceBytes));
    const { ok, failed } = await load({ name: "a" }, { ...long, bulk, onFailure: "partial" });
    expect([ok, [...failed.keys()]]).toEqual([
      [0, 1, 2, 3],
      [4, 5, 6, 7],
    ]);
    for (const rank of [5, 6, 7]) expect(at(rank).collectives.stats().joined).toBe(0);
    await nothingTaken();
  });

  it("that is cancelled gives back all memory when the handlers have ended", async () => {
    const ended: number[] = [];
    let running = 0;
    await openGroup(4, {
      handle: (rank, _, signal) => {
        running++;
        return new Promise<void>((resolve) =>
          signal.addEventListener("abort", () => {
            ended.push(rank);
            resolve();
          }),
        );
      },
    });
    const { load } = at(0).collectives.all(Models);
    const controller = new AbortController();
    const region = exposed(randomBytes(pieceBytes));
    const call = load({ name: "a" }, { ...long, bulk: region, signal: controller.signal });
    await vi.waitFor(() => expect(running).toBe(4), 60_000);
    controller.abort();
    await expect(call).rejects.toMatchObject({ code: "cancelled" });
    await vi.waitFor(() => expect([...ended].sort()).toEqual(ranksOf(4)), 60_000);
    await nothingTaken();
    await region[Symbol.asyncDispose]();
  });

  it("fails where the caller takes its region away", async () => {
    await openGroup(4, { before: (rank) => (rank === 2 ? region.revoke() : undefined) });
    const region = exposed(randomBytes(pieceBytes));
    const { load } = at(0).collectives.all(Models);
    const error = await load({ name: "a" }, { ...long, bulk: region }).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(CollectiveError);
    await nothingTaken();
  });

  it("refuses bad input by name, and nothing is sent", async () => {
    await openGroup(2);
    const load = at(0).collectives.all(Models).load as (input: unknown, options?: object) => Promise<unknown>;
    await expect(load({ name: "a" })).rejects.toThrow("collective call: bulk is missing");
    await expect(load({ name: "a" }, { bulk: new Uint8Array(1) })).rejects.toThrow(
      "bulk must be a region, which engine.expose makes",
    );
    const bulk = at(0).engine.expose(new Uint8Array((64 << 20) + 1), { access: "read" });
    regions.push(bulk);
    await expect(load({ name: "a" }, { bulk })).rejects.toThrow(
      "bulk: the region has 67108865 bytes; the limit is 67108864",
    );
    await expect(load({ name: "a" }, { bulk, checksum: "md5" })).rejects.toThrow(
      'checksum must be "crc32c", it is "md5"',
    );
    const written = at(0).engine.expose(new Uint8Array(1), { access: "write" });
    regions.push(written);
    await expect(load({ name: "a" }, { bulk: written })).rejects.toThrow('exposed as "write"');
    expect(at(0).collectives.stats().started).toBe(0);
    expect(() => collective({ bulk: {} as never })).toThrow("collective: bulk.maxBytes is missing");
    expect(() => collective({ bulk: { maxBytes: 1, least: 1 } as never })).toThrow(
      'unknown option "bulk.least"',
    );
  });
});
