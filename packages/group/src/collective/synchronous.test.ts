import { EventEmitter, once } from "node:events";
import { type AnyService, RpcError, service } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import type { Envelope } from "./envelope.ts";
import { closeAll, groupOf, member, type TestMember } from "./group-of.test-support.ts";
import { type GroupHandlersOf, implementCollectives, type ServedCollective } from "./handlers.ts";
import { collective } from "./method.ts";
import { NodeRun } from "./node-run.ts";
import type { TreeShape } from "./tree.ts";
import { Costs } from "./tree.ts";

const Ranks = service("synchronous.v1", {
  of: collective({
    input: z.object({ fail: z.number() }),
    output: z.array(z.number()),
    reduce: (one, other) => [...one, ...other],
    errors: { Busy: z.object({ rank: z.number() }) },
  }),
  later: collective({
    input: z.object({}).refine(async () => true),
    output: z.array(z.number()).refine(async (ranks) => !ranks.includes(3)),
    reduce: (one, other) => [...one, ...other],
  }),
});

let opened: TestMember[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  await closeAll(opened);
  opened = [];
});

type Of = Extract<GroupHandlersOf<typeof Ranks>["of"], (...args: never) => unknown>;
const noRanks: Of = () => [];

async function openGroup(of: (rank: number) => GroupHandlersOf<typeof Ranks>["of"]): Promise<TestMember> {
  const ranks = (rank: number) =>
    implementCollectives(Ranks, { of: of(rank), later: () => [rank] }, { onHandlerError: () => undefined });
  opened = await groupOf(7, (rank) => [ranks(rank)]);
  return opened[0] as TestMember;
}

const trees: TreeShape[] = [{ kind: "flat" }, { kind: "kary", ratio: 2 }, { kind: "knomial", ratio: 2 }];
const partial = { timeoutMs: 60_000, onFailure: "partial" } as const;
const all = [0, 1, 2, 3, 4, 5, 6];

describe.each(trees)("synchronous handlers: %o", (tree) => {
  it("run once at each member, and fail alone", async () => {
    const runs: number[] = [];
    const root = await openGroup((rank) => ({ fail }, call) => {
      runs.push(call.rank);
      if (rank === 2) return call.fail("Busy", { rank });
      if (rank === fail) throw new RpcError({ code: "not_found", message: "nothing here" });
      if (rank === 4) throw new Error("secret");
      return [rank];
    });
    const { value, ok, failed } = await root.collectives.all(Ranks).of({ fail: 1 }, { ...partial, tree });
    expect(runs.sort()).toEqual(all);
    expect(ok).toEqual([0, 3, 5, 6]);
    expect([...value].sort()).toEqual(ok);
    expect([...failed.keys()]).toEqual([1, 2, 4]);
    expect(failed.get(1)).toMatchObject({ code: "not_found", message: "nothing here", executed: "yes" });
    expect(failed.get(2)).toMatchObject({ reason: "Busy", data: { rank: 2 }, executed: "yes" });
    expect(failed.get(4)).toMatchObject({ code: "internal", message: "the handler failed", executed: "yes" });
  });

  it("run behind a hook, and before another", async () => {
    const events: string[] = [];
    const ended = new EventEmitter();
    const last = once(ended, "last");
    const root = await openGroup((rank) => ({
      before: () => void events.push(`before ${rank}`),
      handle: () => {
        events.push(`handle ${rank}`);
        return [rank];
      },
      after: () => {
        events.push(`after ${rank}`);
        if (events.length === 3 * all.length) ended.emit("last");
      },
    }));
    const { ok } = await root.collectives.all(Ranks).of({ fail: -1 }, { ...partial, tree });
    await last;
    expect(ok).toEqual(all);
    for (const rank of all) {
      const own = events.filter((event) => event.endsWith(` ${rank}`));
      expect(own).toEqual([`before ${rank}`, `handle ${rank}`, `after ${rank}`]);
    }
  });

  it("wait for schemas that are not", async () => {
    const root = await openGroup(() => noRanks);
    const { value, ok, failed } = await root.collectives.all(Ranks).later({}, { ...partial, tree });
    expect(ok).toEqual([0, 1, 2, 4, 5, 6]);
    expect([...value].sort()).toEqual(ok);
    expect(failed.get(3)).toMatchObject({ code: "internal", executed: "yes" });
  });
});

describe("a node's run", () => {
  const envelope: Envelope = {
    ...{ group: "test", root: "a".repeat(32), rootRank: 0, call: 1, oldest: 1, version: 1, isStrict: true },
    ...{ incarnation: 0, ranks: [5], tree: { kind: "flat" }, level: 1 },
    ...{ onFailure: "fail", marginMs: 20, input: { fail: -1 } },
  };

  /** `sent` gets what goes to children. Without it the node is a leaf. */
  async function runOf(handle: Of, change: Partial<Envelope> = {}, sent?: Envelope[]): Promise<NodeRun> {
    const root = await openGroup(() => handle);
    const { collectives } = implementCollectives(Ranks, { of: handle, later: () => [] });
    const served = collectives.get("of") as ServedCollective;
    const parts = { service: Ranks as AnyService, name: "of", method: served.method, served };
    const run = [member(5, ["mem://five"]), member(6, opened[6]?.engine.urls ?? [])];
    return new NodeRun(
      {
        ...parts,
        envelope: { ...envelope, ...change },
        run,
        deadlineMs: performance.now() + 60_000,
        copy: undefined,
      },
      {
        members: root,
        costs: new Costs(),
        send(_to, _service, _name, onward) {
          if (sent === undefined) expect.fail("a leaf sends nothing");
          sent.push(onward);
          return Promise.resolve({ value: [6], ok: [6], failed: [], repaired: [], elapsedMs: 0 });
        },
        onRepair: () => expect.fail("no node is lost"),
        detached: (work, ...args) => work(...args),
      },
    );
  }
  const call = { signal: new AbortController().signal };

  it("ends at once at a leaf with a synchronous handler: it makes no timer, and listens to no signal", async () => {
    const run = await runOf((_, { rank }) => [rank]);
    const setTimeout = vi.spyOn(globalThis, "setTimeout");
    const addEventListener = vi.spyOn(AbortSignal.prototype, "addEventListener");
    run.start();
    const reply = run.wait(call, 1, undefined);
    expect(setTimeout).not.toHaveBeenCalled();
    expect(addEventListener).not.toHaveBeenCalled();
    expect(reply).toMatchObject({ ok: [5], failed: [], value: [5] });
    expect(await run.reply).toBe(reply);
    expect(run.stop({ code: "cancelled", message: "too late", retryable: false })).toBe(false);
  });

  it("sends on nothing that the call does not have, whatever its parent sent", async () => {
    const sent: Envelope[] = [];
    const region = {} as NonNullable<Envelope["region"]>;
    const members = [member(5, ["mem://five"]), member(6, ["mem://six"])];
    const run = await runOf(() => [5], { ranks: [5, 6], members, region }, sent);
    run.start();
    expect(await run.reply).toMatchObject({ ok: [5, 6], failed: [], value: [5, 6] });
    expect(sent).toEqual([{ ...envelope, ranks: [6], level: 2 }]);
    expect(sent[0]).not.toHaveProperty("members");
    expect(sent[0]).not.toHaveProperty("region");
  });

  it("goes on where its handler waits, and then it can be stopped", async () => {
    let signal: AbortSignal | undefined;
    const run = await runOf((_, own) => {
      ({ signal } = own);
      return new Promise(() => {});
    });
    run.start();
    const waiting = new AbortController();
    const reply = run.wait(waiting, 1, undefined);
    waiting.abort(new RpcError({ code: "cancelled", message: "the caller gave up" }));
    expect(await reply).toMatchObject({
      ok: [],
      failed: [{ rank: 5, code: "cancelled", executed: "maybe" }],
    });
    expect(signal).toMatchObject({ aborted: true, reason: { code: "cancelled" } });
  });

  it("has a signal that was fired when a handler asks for it late", async () => {
    let own: { readonly signal: AbortSignal } | undefined;
    const run = await runOf((_, call) => {
      own = call;
      return new Promise(() => {});
    });
    run.start();
    run.stop({ code: "aborted", message: "enough", retryable: false });
    expect(own?.signal).toMatchObject({ aborted: true, reason: { code: "aborted" } });
  });
});
