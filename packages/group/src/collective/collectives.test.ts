import { RpcError, service } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { makeView, type View } from "../view/view.ts";
import { closeAll, groupOf, member, observerOf, type TestMember } from "./group-of.test-support.ts";
import { type GroupHandlersOf, implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";
import { CollectiveError } from "./result.ts";
import type { TreeShape } from "./tree.ts";

const Store = service("store.v1", {
  usage: collective({
    input: z.object({ factor: z.number() }),
    output: z.object({ sum: z.number(), ranks: z.array(z.number()) }),
    reduce: (a, b) => ({ sum: a.sum + b.sum, ranks: [...a.ranks, ...b.ranks] }),
  }),
  touch: collective({ input: z.object({}) }),
});

type Handlers = GroupHandlersOf<typeof Store>;
type Call = Parameters<Extract<Handlers["usage"], (...args: never) => unknown>>[1];

let opened: TestMember[] = [];
afterEach(async () => {
  await closeAll(opened);
  opened = [];
});

/** What each member executed, by rank. */
let runs: Map<number, string[]>;

interface Behaviour {
  /** Runs in the handler of `usage`, before its output. */
  readonly usage?: (rank: number, call: Call) => unknown;
  readonly hooks?: (rank: number) => Partial<Extract<Handlers["usage"], object>>;
}

async function openGroup(size: number, { usage, hooks }: Behaviour = {}): Promise<TestMember[]> {
  runs = new Map(Array.from({ length: size }, (_, rank) => [rank, []]));
  const store = (rank: number) =>
    implementCollectives(
      Store,
      {
        usage: {
          ...hooks?.(rank),
          async handle({ factor }, call) {
            runs.get(rank)?.push(call.id);
            await usage?.(rank, call);
            return { sum: rank * factor, ranks: [rank] };
          },
        },
        touch: () => void runs.get(rank)?.push("touch"),
      },
      { onHandlerError: () => undefined },
    );
  opened = await groupOf(size, (rank) => [store(rank)]);
  return opened;
}

const ranksOf = (size: number) => Array.from({ length: size }, (_, rank) => rank);
const at = (members: readonly TestMember[], rank: number) =>
  (members[rank] as TestMember).collectives.all(Store);
const long = { timeoutMs: 60_000 };

async function failureOf(promise: Promise<unknown>): Promise<CollectiveError> {
  const error = await promise.then(
    () => expect.fail("it succeeded"),
    (reason: unknown) => reason,
  );
  if (!(error instanceof CollectiveError)) throw error;
  return error;
}

const trees: (TreeShape | "auto")[] = [
  "auto",
  { kind: "flat" },
  { kind: "kary", ratio: 2 },
  { kind: "knomial", ratio: 2 },
  { kind: "knomial", ratio: 4 },
];

describe("a collective", () => {
  it.each(trees)("runs once at each member and reduces all outputs to one: %o", async (tree) => {
    const members = await openGroup(9);
    const result = await at(members, 3).usage({ factor: 10 }, { ...long, tree });
    expect(result.ok).toEqual(ranksOf(9));
    expect(result.failed.size).toBe(0);
    expect(result.repaired).toEqual([]);
    expect(result.value.sum).toBe(360);
    expect([...result.value.ranks].sort()).toEqual(ranksOf(9));
    for (const rank of ranksOf(9)) expect(runs.get(rank)).toHaveLength(1);
  });

  it("costs one request and one answer for each member but the root", async () => {
    const members = await openGroup(16);
    await at(members, 0).usage({ factor: 1 }, { ...long, tree: { kind: "knomial", ratio: 2 } });
    const { 0: root, length } = members;
    const joined = members.map(({ collectives }) => collectives.stats().joined);
    expect(joined).toEqual([0, ...new Array(length - 1).fill(1)]);
    expect(root?.engine.stats().counters.callsStarted).toBe(4);
    const calls = members.map(({ engine }) => engine.stats().counters.callsSucceeded);
    expect(calls.reduce((sum, each) => sum + each)).toBe(15);
  });

  it("without an output runs at all", async () => {
    const members = await openGroup(5);
    const { value, ok } = await at(members, 4).touch({}, long);
    expect([value, ok]).toEqual([undefined, ranksOf(5)]);
    for (const rank of ranksOf(5)) expect(runs.get(rank)).toEqual(["touch"]);
  });

  it("runs in a group of one", async () => {
    const members = await openGroup(1);
    expect(await at(members, 0).usage({ factor: 2 }, long)).toMatchObject({ ok: [0], value: { sum: 0 } });
  });

  it("runs at the members that are included and not excluded, whether the root is one or not", async () => {
    const members = await openGroup(6);
    const tree = { kind: "knomial", ratio: 2 } as const;
    const some = await at(members, 0).usage({ factor: 1 }, { ...long, tree, include: [4, 2, 5] });
    expect([some.ok, some.value.sum]).toEqual([[2, 4, 5], 11]);
    const others = await at(members, 2).usage({ factor: 1 }, { ...long, tree, exclude: [0, 5] });
    expect(others.ok).toEqual([1, 2, 3, 4]);
    expect(ranksOf(6).map((rank) => runs.get(rank)?.length)).toEqual([0, 1, 2, 1, 2, 1]);
  });

  it("can be called by an observer", async () => {
    const members = await openGroup(4);
    const observer = await observerOf(members);
    opened = [...opened, observer];
    const { ok, value } = await observer.collectives.all(Store).usage({ factor: 1 }, long);
    expect([ok, value.sum]).toEqual([ranksOf(4), 6]);
  });

  it("lets 32 calls of 4 roots run at once, each with its own partition", async () => {
    const members = await openGroup(8);
    const tree = { kind: "knomial", ratio: 2 } as const;
    const calls = ranksOf(32).map((each) => at(members, each % 4).usage({ factor: each }, { ...long, tree }));
    for (const [each, { ok, value }] of (await Promise.all(calls)).entries())
      expect([ok, value.sum]).toEqual([ranksOf(8), 28 * each]);
    for (const rank of ranksOf(8)) expect(new Set(runs.get(rank)).size).toBe(32);
  });

  it("remembers no call that has ended at its root", async () => {
    const members = await openGroup(3);
    for (let each = 0; each < 20; each++) await at(members, 0).usage({ factor: 1 }, long);
    for (const { collectives } of members.slice(1)) expect(collectives.stats().remembered).toBe(1);
  });
});

describe("a member that fails", () => {
  const tree = { kind: "knomial", ratio: 2 } as const;

  it("in its handler is in `failed`, and all others are in the value", async () => {
    const members = await openGroup(6, {
      usage: (rank) => {
        if (rank === 2) throw new RpcError({ code: "not_found", message: "no such pool" });
        if (rank === 4) throw new Error("a secret");
      },
    });
    const result = await at(members, 0).usage({ factor: 1 }, { ...long, tree, onFailure: "partial" });
    expect([result.ok, result.value.sum, result.repaired]).toEqual([[0, 1, 3, 5], 9, []]);
    expect(result.failed.get(2)).toEqual({
      ...{ code: "not_found", message: "no such pool", executed: "yes", retryable: false },
    });
    expect(result.failed.get(4)).toMatchObject({ code: "internal", message: "the handler failed" });
    const error = await failureOf(at(members, 0).usage({ factor: 1 }, { ...long, tree }));
    expect(error.code).toBe("not_found");
    expect(error.message).toContain("store.v1/usage: 2 of 6 ranks failed; rank 2: no such pool");
    expect(error.result.ok).toEqual([0, 1, 3, 5]);
  });

  it("as an inner node loses nobody but itself: its children are reached by its parent", async () => {
    const members = await openGroup(16);
    // Rank 8 is the root of ranks 8 to 15. Its children are 12, 10 and 9.
    await members[8]?.engine.close();
    const result = await at(members, 0).usage({ factor: 1 }, { ...long, tree, onFailure: "partial" });
    expect([...result.failed.keys()]).toEqual([8]);
    expect(result.failed.get(8)).toMatchObject({ code: "unavailable", executed: "no", retryable: true });
    expect(result.ok).toHaveLength(15);
    expect(result.repaired).toEqual([9, 10, 12]);
    expect(result.value.sum).toBe(112);
    for (const rank of ranksOf(16)) expect(runs.get(rank)).toHaveLength(rank === 8 ? 0 : 1);
  });

  it("while it runs is lost alone, and nobody below it runs twice", async () => {
    const reached: (() => void)[] = [];
    const arrived = ranksOf(16).map(
      (rank) =>
        new Promise<void>((resolve) => {
          reached[rank] = resolve;
        }),
    );
    let letGo = () => {};
    const gate = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const members = await openGroup(16, {
      usage: async (rank) => {
        reached[rank]?.();
        await gate;
      },
    });
    const call = at(members, 0).usage({ factor: 1 }, { ...long, tree, onFailure: "partial" });
    await Promise.all(arrived);
    await members[8]?.engine.close();
    // The root has reached the children of rank 8 before any of them is done.
    await vi.waitFor(() => {
      for (const rank of [9, 10, 12]) expect(members[rank]?.collectives.stats().rejoined).toBe(1);
    }, 60_000);
    letGo();
    const result = await call;
    expect([...result.failed]).toEqual([
      [8, expect.objectContaining({ code: "unavailable", executed: "maybe" })],
    ]);
    expect(result.repaired).toEqual([9, 10, 12]);
    expect(result.value.sum).toBe(112);
    for (const rank of ranksOf(16)) expect(runs.get(rank)).toHaveLength(1);
  });

  it("to answer is in `failed` before the deadline of the root", async () => {
    const members = await openGroup(8, {
      usage: (rank, call) =>
        rank === 7 ? new Promise((resolve) => call.signal.addEventListener("abort", resolve)) : 0,
    });
    const options = { tree, timeoutMs: 1000, onFailure: "partial" } as const;
    const { ok, failed, value } = await at(members, 0).usage({ factor: 1 }, options);
    expect(failed.get(7)).toMatchObject({ code: "deadline_exceeded", executed: "maybe" });
    // Where the machine stands still for longer than a margin, others miss the time, too.
    expect([...ok, ...failed.keys()].sort()).toEqual(ranksOf(8));
    expect(value.sum).toBe(ok.reduce((sum, rank) => sum + rank, 0));
  });

  it("keeps those above it from running with onFailure failout", async () => {
    const members = await openGroup(8, {
      usage: (rank) => {
        if (rank === 7) throw new RpcError({ code: "data_loss", message: "a bad disk" });
      },
    });
    const { result } = await failureOf(
      at(members, 0).usage({ factor: 1 }, { ...long, tree, onFailure: "failout" }),
    );
    // 7 is below 6, 6 below 4, 4 below 0.
    expect(result.ok).toEqual([1, 2, 3, 5]);
    expect([...result.failed].map(([rank, { executed }]) => [rank, executed])).toEqual([
      [0, "no"],
      [4, "no"],
      [6, "no"],
      [7, "yes"],
    ]);
    expect(ranksOf(8).filter((rank) => runs.get(rank)?.length === 1)).toEqual([1, 2, 3, 5, 7]);
  });

  it("and that alone is asked makes the call fail also with onFailure partial", async () => {
    const members = await openGroup(2);
    await members[1]?.engine.close();
    const error = await failureOf(
      at(members, 0).usage({ factor: 1 }, { ...long, include: [1], onFailure: "partial" }),
    );
    expect([error.code, error.notExecuted, error.retryable]).toEqual(["unavailable", true, true]);
  });
});

describe("hooks", () => {
  it("veto a call before it is sent on, for the member and all below", async () => {
    const members = await openGroup(8, {
      hooks: (rank) => ({
        before() {
          if (rank === 4) throw new RpcError({ code: "failed_precondition", message: "in maintenance" });
        },
      }),
    });
    const tree = { kind: "knomial", ratio: 2 } as const;
    const result = await at(members, 0).usage({ factor: 1 }, { ...long, tree, onFailure: "partial" });
    expect(result.ok).toEqual([0, 1, 2, 3]);
    for (const [, failure] of result.failed)
      expect(failure).toMatchObject({
        ...{ code: "failed_precondition", executed: "no" },
        message: "refused before it was sent on: in maintenance",
      });
    expect(ranksOf(8).filter((rank) => runs.get(rank)?.length === 1)).toEqual([0, 1, 2, 3]);
  });

  it("run after the answer", async () => {
    const after: number[] = [];
    const members = await openGroup(3, { hooks: (rank) => ({ after: () => after.push(rank) }) });
    await at(members, 0).usage({ factor: 1 }, long);
    await vi.waitFor(() => expect([...after].sort()).toEqual([0, 1, 2]), 20_000);
  });
});

describe("members with another view", () => {
  const behind = (view: View): View => makeView("test", view.version + 1, view.members);

  it("refuse a strict call, and those below them are reached", async () => {
    const members = await openGroup(8);
    for (const [rank, each] of members.entries()) if (rank !== 4) each.view = behind(each.view);
    const tree = { kind: "knomial", ratio: 2 } as const;
    const result = await at(members, 0).usage({ factor: 1 }, { ...long, tree, onFailure: "partial" });
    expect([...result.failed]).toEqual([
      [
        4,
        {
          ...{ code: "failed_precondition", executed: "no", retryable: true },
          message: "rank 4 has view 1, the call is of view 2",
        },
      ],
    ]);
    // After it has the view, too, the next call succeeds.
    (members[4] as TestMember).view = behind((members[4] as TestMember).view);
    expect((await at(members, 0).usage({ factor: 1 }, long)).ok).toEqual(ranksOf(8));
  });

  it("take part in a call by the view of its root", async () => {
    const members = await openGroup(8);
    const [root] = members as [TestMember];
    root.view = behind(root.view);
    // This one does not know the members below it.
    (members[4] as TestMember).view = makeView("test", 1, root.view.members.slice(0, 5));
    const tree = { kind: "knomial", ratio: 2 } as const;
    const { ok } = await at(members, 0).usage({ factor: 1 }, { ...long, tree, view: "root" });
    expect(ok).toEqual(ranksOf(8));
  });

  it("of another incarnation refuse, so that a call never reaches a restarted process", async () => {
    const members = await openGroup(3);
    const [root] = members as [TestMember];
    root.view = makeView("test", 1, [
      ...root.view.members.slice(0, 2),
      member(2, root.view.members[2]?.urls ?? [], 1),
    ]);
    const { result } = await failureOf(at(members, 0).usage({ factor: 1 }, { ...long, view: "root" }));
    expect(result.failed.get(2)?.message).toBe("rank 2 has the incarnation 0, the call is for 1");
    expect(runs.get(2)).toEqual([]);
  });
});

describe("the root", () => {
  it("that gives up ends all handlers", async () => {
    const ended: number[] = [];
    const members = await openGroup(8, {
      usage: (rank, call) =>
        new Promise((resolve) =>
          call.signal.addEventListener("abort", () => {
            ended.push(rank);
            resolve(undefined);
          }),
        ),
    });
    const controller = new AbortController();
    const tree = { kind: "knomial", ratio: 2 } as const;
    const call = at(members, 0).usage({ factor: 1 }, { ...long, tree, signal: controller.signal });
    await vi.waitFor(() => expect([...runs.values()].flat()).toHaveLength(8), 60_000);
    controller.abort();
    await expect(call).rejects.toMatchObject({ code: "cancelled" });
    await vi.waitFor(() => expect([...ended].sort()).toEqual(ranksOf(8)), 60_000);
  });

  it("that is gone ends all handlers, well before the deadline", async () => {
    const ended: number[] = [];
    const members = await openGroup(8, {
      usage: (rank, call) =>
        new Promise((resolve) =>
          call.signal.addEventListener("abort", () => {
            ended.push(rank);
            resolve(undefined);
          }),
        ),
    });
    const tree = { kind: "knomial", ratio: 2 } as const;
    const call = at(members, 0).usage({ factor: 1 }, { timeoutMs: 3_600_000, tree });
    call.catch(() => undefined);
    await vi.waitFor(() => expect([...runs.values()].flat()).toHaveLength(8), 60_000);
    await members[0]?.engine.close();
    await vi.waitFor(() => expect([...ended].sort()).toEqual(ranksOf(8).slice(1)), 60_000);
    members[0]?.collectives.close();
    await expect(call).rejects.toThrow();
  });
});

describe("bad input", () => {
  it("is refused with its name, and nothing is sent", async () => {
    const members = await openGroup(3);
    const usage = at(members, 0).usage as (input: unknown, options?: object) => Promise<unknown>;
    await expect(usage({ factor: "two" })).rejects.toMatchObject({
      code: "invalid_argument",
      notExecuted: true,
    });
    await expect(usage({ factor: 1 }, { include: [] })).rejects.toThrow(
      `store.v1/usage: no rank of the group "test" is left by include and exclude`,
    );
    await expect(usage({ factor: 1 }, { exclude: [0, 1, 2] })).rejects.toMatchObject({
      code: "invalid_argument",
    });
    await expect(usage({ factor: 1 }, { include: [-1] })).rejects.toThrow(
      "include[0] must be an integer from 0 to 4294967295, it is -1",
    );
    await expect(usage({ factor: 1 }, { tree: { kind: "knomial", ratio: 1 } })).rejects.toThrow(
      "tree.ratio must be an integer from 2 to 64, it is 1",
    );
    await expect(usage({ factor: 1 }, { onfailure: "fail" })).rejects.toThrow(
      'unknown option "onfailure"; did you mean "onFailure"?',
    );
    await expect(usage({ factor: 1 }, { tree: { kind: "kary" } })).rejects.toThrow("tree.ratio is missing");
    await expect(usage({ factor: 1 }, { tree: "flat" })).rejects.toThrow('tree must be "auto" or an object');
    await expect(usage({ factor: 1 }, { timeoutMs: 0 })).rejects.toThrow("timeoutMs");
    expect([...runs.values()].flat()).toEqual([]);
  });

  it("of a rank that the view does not have is a failure of that rank", async () => {
    const members = await openGroup(2);
    const { result } = await failureOf(at(members, 0).usage({ factor: 1 }, { ...long, include: [0, 1, 7] }));
    expect(result.ok).toEqual([0, 1]);
    expect(result.failed.get(7)).toMatchObject({
      executed: "no",
      message: 'the group "test" has no rank 7 in view 1',
    });
  });

  it("to reduce loses the contribution, and says so", async () => {
    const Odd = service("odd.v1", {
      sum: collective({
        output: z.number(),
        reduce: (a, b) => {
          if (b === 2 || a === 2) throw new Error("no twos");
          return a + b;
        },
      }),
    });
    opened = await groupOf(4, (rank) => [implementCollectives(Odd, { sum: () => rank })]);
    const { collectives } = opened[0] as TestMember;
    const { sum } = collectives.all(Odd);
    const loose = sum as unknown as (...args: unknown[]) => unknown;
    expect(() => loose(undefined, long)).toThrow("odd.v1/sum takes no input; its options come in that place");
    const result = await sum({ ...long, onFailure: "partial" });
    const lost = [...result.failed.keys()];
    expect([...result.ok, ...lost].sort()).toEqual(ranksOf(4));
    expect(result.value).toBe(result.ok.reduce((sum, rank) => sum + rank, 0));
    for (const failure of result.failed.values())
      expect(failure).toMatchObject({ code: "internal", message: "reduce threw: no twos", executed: "yes" });
    expect(lost).not.toEqual([]);
  });

  it("to collective() names the option", () => {
    expect(() => collective({ output: z.number() })).toThrow("output and reduce belong together");
    expect(() => collective({ reduced: 1 } as object)).toThrow('unknown option "reduced"');
    expect(() => collective({ input: 5 as never })).toThrow("input");
    expect(() => implementCollectives(Store, { usage: 1, touch: () => undefined } as never)).toThrow(
      'implementCollectives "store.v1": the handler of usage',
    );
  });
});
