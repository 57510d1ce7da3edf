import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";
import { type Fabric, freshUrl } from "../../../test/processes/support/fabrics.ts";

const size = isLong ? 16 : 8;
const all = Array.from({ length: size }, (_, rank) => rank);
/** An inner node of the tree below rank 0: half of all ranks are below it. */
const inner = size / 2;
/** The root of each of its subtrees: those that its parent has to reach when it is gone. */
const below = size === 16 ? [9, 10, 12] : [5, 6];
const tree = { kind: "knomial", ratio: 2 } as const;
/** The long form has 1000 barriers and 16 processes, which takes minutes on two cores that others use, too. */
if (isLong) vi.setConfig({ testTimeout: 900_000 });
/** How many barriers. */
const rounds = isLong ? 1000 : 20;
/** Bytes of the region that goes to all members. */
const bulkBytes = (isLong ? 64 : 8) << 20;
/** Long enough for any machine: nothing here waits for it. */
const timeoutMs = 60_000;

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "cinnabar-collectives-"));
});
afterEach(async () => {
  await endAllChildren();
  rmSync(folder, { recursive: true, force: true });
});

interface Outcome {
  readonly value: number[];
  readonly ok: number[];
  readonly failed: { readonly rank: number; readonly code: string; readonly executed: string }[];
  readonly repaired: number[];
}

interface Spread extends Omit<Outcome, "value"> {
  readonly value: { readonly rank: number; readonly sum: string }[];
  /** What every member is to have. */
  readonly sum: string;
}

/** Where members listen: all at one fabric, or every other one. */
const fabrics: Readonly<Record<string, (rank: number) => Fabric>> = {
  "shm and tcp": (rank) => (rank % 2 === 0 ? "shm" : "tcp"),
  ...(isLong && { shm: () => "shm", tcp: () => "tcp" }),
};

async function startGroup(fabricOf: (rank: number) => Fabric): Promise<Child[]> {
  const members = all.map(
    (rank) => new Child("collective-member", { rank, folder, listen: freshUrl(fabricOf(rank)) }),
  );
  const urls = await Promise.all(members.map(async (child) => (await child.report("listening")).urls));
  await Promise.all(members.map((child) => child.ask("join", urls)));
  return members;
}

/** The ids of the calls that a member executed, also of one that is gone. */
function executedBy(rank: number): string[] {
  const file = join(folder, `${rank}.log`);
  return existsSync(file) ? readFileSync(file, "utf8").trimEnd().split("\n") : [];
}

const sorted = (ranks: readonly number[]) => [...ranks].sort((one, other) => one - other);
const without = (...ranks: number[]) => all.filter((rank) => !ranks.includes(rank));

describe.each(Object.entries(fabrics))(`a collective of ${size} processes over %s`, (_, fabricOf) => {
  // One group for all, since processes take a third of a second of processor time to start.
  it("loses members that are stopped or killed and nobody else, and ends with its root", async () => {
    const members = await startGroup(fabricOf);
    const [root, second] = members as [Child, Child];
    const visit = (options: object) => root.ask<Outcome>("visit", { tree, timeoutMs, ...options });

    const whole = await visit({});
    expect(whole).toMatchObject({ ok: all, failed: [], repaired: [] });
    expect(sorted(whole.value)).toEqual(all);
    const joined = await Promise.all(members.map((child) => child.ask("collectiveStats")));
    expect(joined).toMatchObject(
      all.map((rank) => ({ joined: rank === 0 ? 0 : 1, rejoined: 0, refused: 0 })),
    );

    // Nobody leaves a barrier before all have come.
    const times = await Promise.all(
      members.map((child) => child.ask<{ cameNs: bigint; leftNs: bigint }[]>("barriers", rounds)),
    );
    for (let round = 0; round < rounds; round++) {
      const came = times.map((each) => each[round]?.cameNs as bigint);
      const left = times.map((each) => each[round]?.leftNs as bigint);
      expect(left.every((each) => came.every((other) => other <= each))).toBe(true);
    }
    const words = await Promise.all(members.map((child, rank) => child.ask("allReduce", `${rank}.`)));
    expect(new Set(words)).toEqual(new Set([all.map((rank) => `${rank}.`).join("")]));

    // A region is copied once by each member, from its parent: what the caller sends is its fan-out times the size.
    const counters = async () =>
      (await Promise.all(members.map((child) => child.ask<EngineStats>("stats")))).map(
        (each) => each.counters,
      );
    const before = await counters();
    const spread = await root.ask<Spread>("spread", {
      tree,
      timeoutMs,
      bytes: bulkBytes,
      checksum: "crc32c",
    });
    expect(spread).toMatchObject({ ok: all, failed: [] });
    expect(new Set(spread.value.map(({ rank, sum }) => `${rank} ${sum}`))).toEqual(
      new Set(all.map((rank) => `${rank} ${spread.sum}`)),
    );
    const copied = (await counters()).map((after, rank) => ({
      got: after.bytesGot - (before[rank]?.bytesGot ?? 0),
      put: after.bytesPut - (before[rank]?.bytesPut ?? 0),
      calls: after.callsStarted - (before[rank]?.callsStarted ?? 0),
    }));
    expect(copied.map(({ got, put }) => [got, put])).toEqual(
      all.map((rank) => [rank === 0 ? 0 : bulkBytes, 0]),
    );
    // Each call lets one member copy, and nobody else may read the caller's memory.
    expect(copied[0]?.calls).toBe(Math.log2(size));

    // A stopped process says nothing, so this takes as long as its deadline. The tree is flat and known to be
    // connected: members that run have answered long before.
    const flat = { tree: { kind: "flat" } };
    expect(await visit(flat)).toMatchObject({ ok: all });
    const stopped = size - 1;
    await (members[stopped] as Child).stop();
    const partial = await visit({ ...flat, timeoutMs: 2000, onFailure: "partial" });
    expect(partial.failed).toEqual([{ rank: stopped, code: "deadline_exceeded", executed: "maybe" }]);
    expect(sorted(partial.value)).toEqual(without(stopped));
    (members[stopped] as Child).kill("SIGCONT");
    expect(await visit(flat)).toMatchObject({ ok: all, failed: [] });

    // Killed while it runs: all have begun, none has ended. The root reaches those below the dead member before one does.
    const during = visit({ holds: true, onFailure: "partial" });
    await Promise.all(members.map((child) => child.report("held")));
    await (members[inner] as Child).destroy();
    for (const rank of below) await rejoined(members[rank] as Child);
    await Promise.all(without(inner).map((rank) => members[rank]?.ask("release")));
    const lost = { rank: inner, code: "unavailable" };
    expect(await during).toMatchObject({
      ...{ ok: without(inner), failed: [{ ...lost, executed: "maybe" }], repaired: below },
    });
    expect(sorted((await during).value)).toEqual(without(inner));

    // Killed before: nobody is there to connect to.
    const after = await visit({ onFailure: "partial" });
    expect(after).toMatchObject({ ok: without(inner), failed: [lost], repaired: below });

    // The root is killed, and its call with it. The others are no part of it any more.
    root.ask("visit", { tree, timeoutMs: 3_600_000, holds: true }).catch(() => undefined);
    const living = without(inner);
    await Promise.all(living.map((rank) => members[rank]?.report("held")));
    await root.destroy();
    const rest = without(0, inner);
    for (const rank of rest) {
      const stats = () => (members[rank] as Child).ask<Pick<EngineStats, "calls">>("stats");
      const calls = async () => ((all) => all.calls.in + all.calls.out)(await stats());
      await expect.poll(calls, { timeout: 60_000 }).toBe(0);
    }
    const next = await second.ask<Outcome>("visit", { tree, timeoutMs, exclude: [0, inner] });
    expect(next).toMatchObject({ ok: rest, failed: [] });

    // An inner member is killed while those below it copy from it. They go on from its parent.
    const half = 2 ** Math.floor(Math.log2(rest.length - 1));
    const [killed, first] = rest.slice(half) as [number, number];
    const cut = second.ask<Spread>("spread", {
      ...{ tree, timeoutMs, bytes: bulkBytes, exclude: [0, inner], holds: true, onFailure: "partial" },
    });
    await members[first]?.report("spreading", (report) => report.call === 2);
    await (members[killed] as Child).destroy();
    const others = rest.filter((rank) => rank !== killed);
    await Promise.all(others.map((rank) => members[rank]?.report("held")));
    await Promise.all(others.map((rank) => members[rank]?.ask("release")));
    const { failed, ok, value, repaired, sum } = await cut;
    expect([failed, ok]).toEqual([[{ ...lost, executed: "maybe", rank: killed }], others]);
    expect(repaired).toContain(first);
    expect(new Set(value.map((each) => `${each.rank} ${each.sum}`))).toEqual(
      new Set(others.map((rank) => `${rank} ${sum}`)),
    );

    for (const rank of all) {
      const executed = executedBy(rank);
      expect(new Set(executed).size).toBe(executed.length);
      // A stopped member may have learned in time that nobody waits, and a killed one not have begun.
      const most = rank === inner ? 6 : rank === 0 ? 8 : 10;
      expect(executed.length).toBeGreaterThanOrEqual(most - (rank === stopped || rank === killed ? 1 : 0));
      expect(executed.length).toBeLessThanOrEqual(most);
    }
  });
});

/** Until a call that the member knows has reached it by another way. */
async function rejoined(member: Child): Promise<void> {
  const stats = () => member.ask<{ rejoined: number }>("collectiveStats");
  await expect.poll(async () => (await stats()).rejoined, { timeout: 60_000 }).toBe(1);
}
