import { Engine, implement, service, unary } from "cinnabar/standard";
import { afterEach, expect, it } from "vitest";
import { staticAuthority } from "../authority/static-authority.ts";
import { type Member, makeView, notInView } from "../view/view.ts";
import { Group } from "./group.ts";
import type { GroupDetector } from "./group-detector.ts";
import { type JoinOptions, joinGroup, observeGroup } from "./join-group.ts";
import { member, scripted } from "./scripted.test-support.ts";

const Who = service("who.v1", { rank: unary(), hold: unary() });
const open: AsyncDisposable[] = [];

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

let engines = 0;
async function engine(): Promise<Engine> {
  const opened = await Engine.open({
    listen: `mem://group-${++engines}`,
    serve: [
      implement(Who, {
        rank: () => undefined,
        hold: (_, { signal }) =>
          new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
      }),
    ],
  });
  open.push(opened);
  return opened;
}

async function joined(members: (urls: string[]) => readonly Member[], options: Partial<JoinOptions> = {}) {
  const [one, other] = [await engine(), await engine()];
  const script = scripted(members([...one.urls, ...other.urls]));
  const group = await joinGroup("test", { engine: one, authority: script.authority, ...options });
  open.push(group);
  return { self: one, group, ...script };
}

const versionsOf = async (group: Group): Promise<number[]> => {
  const versions: number[] = [];
  for await (const { version } of group.views()) versions.push(version);
  return versions;
};

it("a list of members makes a group, and a rank is called by it", async () => {
  const [one, other] = [await engine(), await engine()];
  const authority = staticAuthority([{ urls: one.urls }, { urls: other.urls, metadata: { zone: "b" } }]);
  const group = await joinGroup("test", { engine: one, authority });
  open.push(group);
  expect(group.self?.rank).toBe(0);
  expect(group.view.members.map(({ rank, metadata }) => [rank, metadata])).toEqual([
    [0, {}],
    [1, { zone: "b" }],
  ]);
  const link = group.at(1);
  await link.client(Who).rank();
  expect(link.peer.incarnation).toBe(other.incarnation);
  expect(() => group.at(2)).toThrow('group "test": rank 2 is not in view 1');
  const observer = await observeGroup("test", { engine: other, authority });
  open.push(observer);
  expect(observer.self).toBeUndefined();
  const stranger = await engine();
  await expect(joinGroup("test", { engine: stranger, authority, rank: 2 })).rejects.toMatchObject({
    code: "failed_precondition",
  });
  await expect(joinGroup("test", { engine: one, authority })).rejects.toThrow(
    'serves the group "test" already; close that first',
  );
});

it("views follow each other, older ones are refused, and a slow reader sees the newest", async () => {
  const { group, publish } = await joined(([a = "", b = ""]) => [member(0, 1, a), member(1, 1, b)]);
  const events: unknown[] = [];
  group.on("view", ({ joined, left }) => events.push([joined.length, left.length]));
  const [self, other] = group.view.members as [Member, Member];
  const versions = versionsOf(group);
  const slow = group.views();
  publish(makeView("test", 3, [self, { ...other, incarnation: 2 }]));
  await group.when(({ version }) => version === 3);
  publish(makeView("test", 2, [self]));
  publish(makeView("test", 5, [self]));
  await group.when(({ version }) => version === 5);
  expect((await slow.next()).value?.version).toBe(5);
  await group.close();
  expect(await versions).toEqual([1, 3, 5]);
  expect(await slow.next()).toEqual({ done: true, value: undefined });
  expect(events).toEqual([
    [1, 1],
    [0, 1],
  ]);
});

it("a rank that leaves the view is not reached any more, and its successor is", async () => {
  const { group, publish } = await joined(([a = "", b = ""]) => [member(0, 1, a), member(1, 1, b)]);
  const [self, other] = group.view.members as [Member, Member];
  const former = group.at(1);
  const client = former.client(Who);
  await client.rank();
  const held = client.hold.result();
  publish(makeView("test", 2, [self, { ...other, incarnation: 2 }]));
  await group.when(({ version }) => version === 2);
  for (const result of [await held, await client.rank.result()]) {
    expect(result).toMatchObject({ ok: false, error: { code: "failed_precondition" } });
    if (!result.ok) expect(notInView(result.error)).toMatchObject({ group: "test", rank: 1, version: 2 });
  }
  expect(notInView(new Error("another"))).toBeUndefined();
  expect(group.at(1)).not.toBe(former);
  await group.at(1).client(Who).rank();
  expect(await group.stats()).toMatchObject({ version: 2, members: 2, viewsAdopted: 1, links: 1 });
});

it("a member that is not in the view any more closes its engine, unless it is told otherwise", async () => {
  const { self, group, publish } = await joined(([a = "", b = ""]) => [member(0, 1, a), member(1, 1, b)]);
  const excluded = new Promise((resolve) => group.on("excluded", resolve));
  publish(makeView("test", 2, group.view.members.slice(1)));
  await excluded;
  expect(group.isExcluded).toBe(true);
  expect(self.state).toBe("closed");
  const kept = await joined(([a = "", b = ""]) => [member(0, 1, a), member(1, 1, b)], {
    onExcluded: "ignore",
  });
  const event = new Promise((resolve) => kept.group.on("excluded", resolve));
  kept.publish(makeView("test", 2, kept.group.view.members.slice(1)));
  await event;
  await kept.group.at(1).client(Who).rank();
});

it("a member that is removed while its detector starts is told so, and its detector ends", async () => {
  const own = await engine();
  const { authority, publish } = scripted([member(0, 1, "mem://a"), member(1, 1, "mem://b")]);
  const membership = await authority.join("test", {} as never, { engine: own });
  let isClosed = false;
  const detector = {
    adopt() {},
    close: async () => {
      isClosed = true;
    },
  } as unknown as GroupDetector;
  let told: Group | undefined;
  const group = await Group.open({
    ...{ engine: own, observation: membership, membership },
    startDetector: async () => {
      publish(makeView("test", 2, [member(1, 1, "mem://b")]));
      await expect.poll(() => told, { timeout: 60_000 }).toBeDefined();
      return detector;
    },
    onExcluded: (excluded) => {
      told = excluded;
      void excluded.close();
    },
  });
  expect(group).toBe(told);
  expect([group.isExcluded, isClosed]).toEqual([true, true]);
});

it("an authority that is lost ends the views with its error, and a closed group waits for none", async () => {
  const { group, fail } = await joined(([a = ""]) => [member(0, 1, a)]);
  const lost = new Promise((resolve) => group.on("lost", resolve));
  const waiting = group.when(() => false);
  fail(new Error("no authority"));
  await expect(waiting).rejects.toThrow("no authority");
  expect(await lost).toMatchObject({ error: new Error("no authority") });
  const other = await joined(([a = ""]) => [member(0, 1, a)]);
  const never = other.group.when(() => false);
  await other.group.close();
  await expect(never).rejects.toMatchObject({ code: "cancelled" });
  expect(() => other.group.at(0)).toThrow("has been closed");
});

it("URLs are those of the engine that joins, or lead to it, or to nobody that this process can reach", async () => {
  const { authority } = scripted([member(0, 1, "mem://self")]);
  const [self, other] = await Promise.all([
    Engine.open({ listen: ["mem://self", "tcp://127.0.0.1:0"] }),
    Engine.open({ listen: "mem://other" }),
  ]);
  open.push(self, other);
  const join = (...urls: string[]) => joinGroup("test", { engine: self, authority, urls });
  await expect(join("mem://self", "mem://other")).rejects.toThrow(
    "joinGroup: urls has mem://other, where another engine answers",
  );
  const port = new URL(self.urls[1] ?? "").port;
  const group = await join(`tcp://localhost:${port}`, "mem://nobody", "ucx://10.0.0.1:7400");
  await group.close();
});

it("wrong options are refused before anybody is asked", async () => {
  const { authority } = scripted([]);
  const deaf = await Engine.open();
  open.push(deaf);
  await expect(joinGroup("test", { engine: deaf, authority })).rejects.toThrow("the engine listens nowhere");
  await expect(joinGroup("test", { engine: deaf, authority, urls: ["tcp://0.0.0.0:1"] })).rejects.toThrow(
    "is for listening",
  );
  await expect(joinGroup("", { engine: deaf, authority })).rejects.toThrow("1 to 128 characters");
  await expect(joinGroup("test", { engine: deaf, authority, urls: ["mem://a"], rank: -1 })).rejects.toThrow(
    "rank must be",
  );
  await expect(observeGroup("test", { engine: deaf, authority, ranks: 1 } as never)).rejects.toThrow(
    'unknown option "ranks"',
  );
});
