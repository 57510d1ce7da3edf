import { afterEach, describe, expect, it, vi } from "vitest";
import { Collectives } from "../collective/collectives.ts";
import { closeAll, groupOf, type TestMember } from "../collective/group-of.test-support.ts";
import { type Member, makeView } from "../view/view.ts";
import { type ExchangeImplementation, Exchanges, implementExchanges } from "./exchanges.ts";

let opened: TestMember[] = [];
let implementations: ExchangeImplementation[] = [];
afterEach(async () => {
  await closeAll(opened);
  opened = [];
});

/** Long enough for any machine: nothing here waits for it. */
const long = { timeoutMs: 60_000 };

async function exchangesOf(size: number): Promise<Exchanges[]> {
  implementations = [];
  opened = await groupOf(size, (rank) => {
    const implementation = implementExchanges();
    implementations[rank] = implementation;
    return [implementation];
  });
  return opened.map(
    ({ collectives }, rank) =>
      new Exchanges(collectives, (implementations[rank] as ExchangeImplementation).arrivals("test")),
  );
}

const settledOf = async (promises: readonly Promise<unknown>[]) =>
  (await Promise.allSettled(promises)).map((each) =>
    each.status === "fulfilled" ? each.value : ((each.reason as { code?: string }).code ?? each.reason),
  );

/** A view without these ranks, for all who live. */
function without(...ranks: number[]): void {
  for (const each of opened) {
    const { version, members } = each.view;
    if (ranks.includes(each.self?.rank ?? -1)) continue;
    each.view = makeView(
      "test",
      version + 1,
      members.filter(({ rank }) => !ranks.includes(rank)),
    );
  }
}

describe("a barrier", () => {
  it("lets nobody go before all have come, in any order, round after round", async () => {
    const exchanges = await exchangesOf(6);
    for (let round = 0; round < 20; round++) {
      const last = round % 6;
      const gone: number[] = [];
      const barriers = exchanges
        .map((each, rank) => ({ each, rank }))
        .filter(({ rank }) => rank !== last)
        .map(({ each, rank }) => each.barrier("round", long).then(() => gone.push(rank)));
      // Many turns: a member that could go would have gone.
      for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
      expect(gone).toEqual([]);
      await (exchanges[last] as Exchanges).barrier("round", long);
      await Promise.all(barriers);
      expect(gone).toHaveLength(5);
    }
  });

  it("lets a member that went on come to the next one of the same name at once", async () => {
    const exchanges = await exchangesOf(6);
    let most = 0;
    const rounds = exchanges.map(async (each) => {
      for (let round = 0; round < 50; round++) {
        expect(most).toBeLessThanOrEqual(round + 1);
        await each.barrier("round", long);
        most = Math.max(most, round + 1);
      }
    });
    await Promise.all(rounds);
  });

  it("travels along the tree that its leader names", async () => {
    const exchanges = await exchangesOf(6);
    const [leader] = opened as [TestMember];
    const reached = vi.spyOn(leader, "reach");
    const options = { ...long, tree: { kind: "knomial", ratio: 2 } } as const;
    await Promise.all(exchanges.map((each) => each.barrier("round", options)));
    // It collects from its children, and lets them go: those below one child fewer, since the leader is no target then.
    const ranks = new Set(reached.mock.calls.map(([{ rank }]) => rank));
    expect(ranks.size).toBe(3);
  });

  it("has a name: members at two of them do not meet", async () => {
    const exchanges = await exchangesOf(3);
    const [first, ...others] = exchanges as [Exchanges, ...Exchanges[]];
    const one = others.map((each) => each.barrier("one", long));
    const two = others.map((each) => each.barrier("two", long));
    await Promise.all([first.barrier("two", long), ...two]);
    await Promise.all([first.barrier("one", long), ...one]);
  });

  it("waits for a member that has joined and is not ready yet", async () => {
    const exchanges = await exchangesOf(3);
    const late = opened[2] as TestMember;
    late.collectives.close();
    const barriers = exchanges.slice(0, 2).map((each) => each.barrier("start", long));
    // It has refused to take part.
    await vi.waitFor(() => expect(late.engine.stats().counters.requestsSucceeded).toBeGreaterThan(0), 20_000);
    const implementation = implementations[2] as ExchangeImplementation;
    using collectives = new Collectives(late, [implementation]);
    barriers.push(new Exchanges(collectives, implementation.arrivals("test")).barrier("start", long));
    await Promise.all(barriers);
  });

  it("breaks for all when a member dies", async () => {
    const exchanges = await exchangesOf(5);
    const barriers = exchanges.slice(0, 4).map((each) => each.barrier("end", long));
    const [first, ...rest] = barriers;
    await opened[4]?.engine.close();
    without(4);
    expect(await settledOf([first as Promise<void>, ...rest])).toEqual([
      "aborted",
      "aborted",
      "aborted",
      "aborted",
    ]);
    // The others go on in the next view.
    await Promise.all(exchanges.slice(0, 4).map((each) => each.barrier("end", long)));
  });

  it("breaks when its leader is replaced in one view, also where it would shrink", async () => {
    const exchanges = await exchangesOf(3);
    const options = { ...long, onDeath: "shrink" } as const;
    const barriers = exchanges.slice(1).map((each) => each.barrier("end", options));
    const settled = settledOf(barriers);
    for (const each of opened.slice(1)) {
      const [leader, ...others] = each.view.members as [Member, ...Member[]];
      const successor = { ...leader, incarnation: leader.incarnation + 1 };
      each.view = makeView("test", each.view.version + 1, [successor, ...others]);
    }
    expect(await settled).toEqual(["aborted", "aborted"]);
  });

  it("breaks for all when one of its members is replaced in one view", async () => {
    const exchanges = await exchangesOf(3);
    const barriers = exchanges.slice(0, 2).map((each) => each.barrier("end", long));
    const settled = settledOf(barriers);
    for (const each of opened.slice(0, 2)) {
      const { members, version } = each.view;
      const [last] = members.slice(2) as [Member];
      const successor = { ...last, incarnation: last.incarnation + 1 };
      each.view = makeView("test", version + 1, [...members.slice(0, 2), successor]);
    }
    expect(await settled).toEqual(["aborted", "aborted"]);
  });

  it("shrinks by a member that dies", async () => {
    const exchanges = await exchangesOf(5);
    const options = { ...long, onDeath: "shrink" } as const;
    const barriers = exchanges.slice(1, 4).map((each) => each.barrier("end", options));
    await opened[4]?.engine.close();
    barriers.push((exchanges[0] as Exchanges).barrier("end", options));
    expect(await settledOf(barriers)).toEqual([undefined, undefined, undefined, undefined]);
  });

  it("lets a member go that is removed, also where it would shrink, and that one comes to none any more", async () => {
    const [first, second, third] = (await exchangesOf(3)) as [Exchanges, Exchanges, Exchanges];
    const options = { ...long, onDeath: "shrink" } as const;
    const waiting = third.barrier("end", options).catch((error: unknown) => error);
    const [removed] = opened.slice(2) as [TestMember];
    const { members, version } = removed.view;
    const view = makeView("test", version + 1, members.slice(0, 2));
    for (const each of opened) each.view = view;
    const message = expect.stringContaining('exchange "end": this process is no member');
    const refused = { code: "failed_precondition", message };
    expect(await waiting).toMatchObject(refused);
    for (const onDeath of ["break", "shrink"] as const)
      expect(await third.barrier("end", { ...long, onDeath }).catch((error: unknown) => error)).toMatchObject(
        refused,
      );
    await Promise.all([first, second].map((each) => each.barrier("end", options)));
  });

  it("breaks when its leader dies, also where it would shrink", async () => {
    const exchanges = await exchangesOf(4);
    const options = { ...long, onDeath: "shrink" } as const;
    const barriers = exchanges.slice(0, 3).map((each) => each.barrier("end", options));
    for (const barrier of barriers) barrier.catch(() => undefined);
    const stats = () => opened.slice(1, 3).map(({ collectives }) => collectives.stats().joined);
    await vi.waitFor(() => expect(stats()).toEqual([1, 1]), 20_000);
    opened[0]?.collectives.close();
    await opened[0]?.engine.close();
    without(0);
    expect(await settledOf(barriers.slice(1))).toEqual(["aborted", "aborted"]);
    await Promise.all(exchanges.slice(1).map((each) => each.barrier("end", options)));
  });

  it("fails in time for all when a member does not come", async () => {
    const exchanges = await exchangesOf(3);
    const barriers = exchanges.slice(0, 2).map((each) => each.barrier("end", { timeoutMs: 500 }));
    expect(await settledOf(barriers)).toEqual(["deadline_exceeded", "deadline_exceeded"]);
  });

  it("that its caller gives up is left", async () => {
    const exchanges = await exchangesOf(2);
    const controller = new AbortController();
    const barrier = (exchanges[1] as Exchanges).barrier("end", { ...long, signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(barrier).rejects.toMatchObject({
      code: "cancelled",
      message: expect.stringContaining('exchange "end"'),
    });
    await Promise.all(exchanges.map((each) => each.barrier("end", long)));
  });

  it("that its leader gives up breaks for all that have come", async () => {
    const exchanges = await exchangesOf(4);
    const controller = new AbortController();
    const led = (exchanges[0] as Exchanges).barrier("end", { ...long, signal: controller.signal });
    const barriers = exchanges.slice(1, 3).map((each) => each.barrier("end", long));
    const joined = () => opened.slice(1, 3).map(({ collectives }) => collectives.stats().joined);
    await vi.waitFor(() => expect(joined()).toEqual([1, 1]), 20_000);
    controller.abort();
    expect(await settledOf([led, ...barriers])).toEqual(["cancelled", "aborted", "aborted"]);
  });

  it("runs in a group of one", async () => {
    const [each] = await exchangesOf(1);
    await each?.barrier("alone", long);
  });
});

describe("an exchange", () => {
  it("gathers at the lowest rank", async () => {
    const exchanges = await exchangesOf(4);
    const results = await Promise.all(exchanges.map((each, rank) => each.gather("all", `r${rank}`, long)));
    expect(results).toEqual([
      new Map([
        [0, "r0"],
        [1, "r1"],
        [2, "r2"],
        [3, "r3"],
      ]),
      ...[undefined, undefined, undefined],
    ]);
  });

  it("gathers at all", async () => {
    const exchanges = await exchangesOf(5);
    const results = await Promise.all(
      exchanges.map((each, rank) => each.allGather("all", rank * rank, long)),
    );
    for (const result of results)
      expect([...result]).toEqual([0, 1, 2, 3, 4].map((rank) => [rank, rank * rank]));
  });

  it("reduces in the order of ranks, so that what does not commute is the same everywhere", async () => {
    const exchanges = await exchangesOf(7);
    const results = await Promise.all(
      exchanges.map((each, rank) => each.allReduce("word", String(rank), (a, b) => a + b, long)),
    );
    expect(results).toEqual(new Array(7).fill("0123456"));
  });

  it("scatters the values of the lowest rank", async () => {
    const exchanges = await exchangesOf(6);
    const results = await Promise.all(
      exchanges.map((each, rank) =>
        each.scatter("parts", rank === 0 ? (to: number) => ({ part: to * 10 }) : undefined, long),
      ),
    );
    expect(results).toEqual([0, 10, 20, 30, 40, 50].map((part) => ({ part })));
  });

  it("whose function throws fails for all, and the next one works", async () => {
    const exchanges = await exchangesOf(3);
    const bad = () => {
      throw new Error("no sum");
    };
    const failed = exchanges.map((each) => each.allReduce("sum", 1, bad, long));
    expect(await settledOf(failed)).toEqual(["internal", "internal", "internal"]);
    const good = exchanges.map((each) => each.allReduce("sum", 1, (a, b) => a + b, long));
    expect(await Promise.all(good)).toEqual([3, 3, 3]);
  });

  it("at which members do different things fails for all", async () => {
    const [first, second] = (await exchangesOf(2)) as [Exchanges, Exchanges];
    const both = [first.barrier("x", { timeoutMs: 1000 }), second.gather("x", 1, { timeoutMs: 1000 })];
    expect((await settledOf(both))[0]).toBe("failed_precondition");
  });
});

describe("bad input", () => {
  it("names the option", async () => {
    const [each] = (await exchangesOf(2)) as [Exchanges];
    await expect(each.barrier("")).rejects.toThrow("the name has 1 to 128 characters");
    await expect(each.barrier("x", { ondeath: "break" } as object)).rejects.toThrow(
      'unknown option "ondeath"',
    );
    await expect(each.barrier("x", { onDeath: "wait" as never })).rejects.toThrow(
      'onDeath must be "break" or "shrink"',
    );
    await expect(each.barrier("x", { timeoutMs: 0 })).rejects.toThrow("timeoutMs must be a number");
    const first = each.barrier("x", { timeoutMs: 300 });
    await expect(each.barrier("x")).rejects.toThrow('exchange "x": this process waits there already');
    await expect(first).rejects.toMatchObject({ code: "deadline_exceeded" });
  });
});
