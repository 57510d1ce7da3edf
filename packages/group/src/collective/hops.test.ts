import { type EngineMiddleware, service } from "cinnabar/standard";
import { afterEach, describe, expect, it, vi } from "vitest";
import { closeAll, groupOf, type TestMember } from "./group-of.test-support.ts";
import { implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";
import { heightOf, subtrees, type TreeShape } from "./tree.ts";

const Store = service("store.v1", { touch: collective() });
const size = 16;
const long = { timeoutMs: 60_000, onFailure: "partial" } as const;

let members: TestMember[] = [];
afterEach(() => closeAll(members));

const serve = () => [implementCollectives(Store, { touch: () => undefined })];

/** Holds every message between members until the test lets all of them go on: they all travel for one tick. */
class SlowNetwork {
  readonly #held: (() => void)[] = [];

  readonly middleware: EngineMiddleware = {
    server: [
      async (_, next) => {
        await this.#tick();
        const reply = await next();
        await this.#tick();
        return reply;
      },
    ],
  };

  /** Lets them arrive, when there are so many. */
  async tick(messages: number): Promise<void> {
    await vi.waitFor(() => expect(this.#held).toHaveLength(messages), 60_000);
    for (const letGo of this.#held.splice(0)) letGo();
  }

  /** All that is held, at the end of a test. */
  release(): void {
    for (const letGo of this.#held.splice(0)) letGo();
  }

  #tick(): Promise<void> {
    return new Promise((resolve) => this.#held.push(resolve));
  }
}

/** How many messages arrive at each tick, requests and replies together; index 0 is the first tick. */
function arrivals(shape: TreeShape): number[] {
  const ticks: number[] = [];
  const note = (tick: number) => {
    ticks[tick - 1] = (ticks[tick - 1] ?? 0) + 1;
    return tick;
  };
  /** When the reply of this node arrives at its parent, or for the root when the last one has arrived. */
  const repliedAt = (count: number, requestedAt: number): number =>
    Math.max(
      requestedAt,
      ...subtrees(shape, count).map((child) => note(1 + repliedAt(child.count, note(requestedAt + 1)))),
    );
  repliedAt(size, 0);
  return ticks;
}

describe.each<TreeShape>([
  { kind: "flat" },
  { kind: "kary", ratio: 2 },
  { kind: "knomial", ratio: 2 },
  { kind: "knomial", ratio: 4 },
])("a collective of 16 along the tree %o", (tree) => {
  it("takes as long as its depth: twice that many messages one after the other, and no more", async () => {
    const network = new SlowNetwork();
    members = await groupOf(size, serve, { middleware: network.middleware });
    const ticks = arrivals(tree);
    expect(ticks).toHaveLength(2 * heightOf(tree, size));
    expect(ticks.reduce((sum, each) => sum + each)).toBe(2 * (size - 1));
    const call = (members[0] as TestMember).collectives.all(Store).touch({ ...long, tree });
    try {
      for (const messages of ticks) await network.tick(messages);
      expect((await call).ok).toHaveLength(size);
    } finally {
      network.release();
    }
  });

  it("takes one request for each member, also where one is dead: its parent sends those to its children", async () => {
    members = await groupOf(size, serve);
    const [largest] = subtrees(tree, size);
    // The first child has the largest subtree: with a flat tree it is a leaf.
    const { offset: dead, count } = largest as { readonly offset: number; readonly count: number };
    const children = subtrees(tree, count).length;
    const { touch } = (members[0] as TestMember).collectives.all(Store);
    const counted = () => {
      const all = members.map(({ engine }) => engine.stats().counters);
      const sum = (name: "callsStarted" | "callsSucceeded") =>
        all.reduce((total, each) => total + each[name], 0);
      return { started: sum("callsStarted"), succeeded: sum("callsSucceeded") };
    };
    await touch({ ...long, tree });
    expect(counted()).toEqual({ started: size - 1, succeeded: size - 1 });
    const before = counted();
    await members[dead]?.engine.close();
    const { failed } = await touch({ ...long, tree });
    expect([...failed.keys()]).toEqual([dead]);
    const after = counted();
    // Those of the dead member from the first call are counted still: an engine keeps its counters.
    expect(after.succeeded - before.succeeded).toBe(size - 2);
    // Each has one, the dead member too. Its children have theirs from the root.
    expect(after.started - before.started).toBe(size - 1);
    expect(members.map(({ collectives }) => collectives.stats().repairs)).toEqual(
      members.map((_, rank) => (rank === 0 && children > 0 ? 1 : 0)),
    );
  });
});
