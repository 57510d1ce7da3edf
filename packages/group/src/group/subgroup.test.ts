import { Engine, implement, RpcError, service, unary } from "cinnabar/standard";
import { afterEach, expect, it } from "vitest";
import { z } from "zod";
import { implementCollectives } from "../collective/handlers.ts";
import { collective } from "../collective/method.ts";
import { type Member, makeView, memberOf, notInView } from "../view/view.ts";
import { joinGroup, observeGroup } from "./join-group.ts";
import { member, scripted } from "./scripted.test-support.ts";

const Who = service("who.v1", { port: unary({ output: z.string() }) });
const Ranks = service("ranks.v1", {
  list: collective({ output: z.array(z.int()), reduce: (one, other) => [...one, ...other] }),
});
const open: AsyncDisposable[] = [];

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

let engines = 0;

/** Processes of one group, as one process has them; the test makes the views of all. */
async function groupOf(size: number) {
  const places = await Promise.all(
    Array.from({ length: size }, async () => {
      const url = `mem://subgroup-${++engines}`;
      const list = implementCollectives(Ranks, { list: (_, { rank }) => [rank] });
      const who = implement(Who, { port: () => url });
      const engine = await Engine.open({ listen: url });
      open.push(engine);
      return { url, engine, serve: [list, who] };
    }),
  );
  const members = places.map(({ url }, rank) => member(rank, 1, url));
  const joined = await Promise.all(
    places.map(async ({ engine, serve, ...place }, rank) => {
      const { authority, ...script } = scripted(members, members[rank]);
      const group = await joinGroup("test", { engine, authority, serve, onExcluded: "ignore" });
      open.push(group);
      return { ...place, ...script, authority, engine, group };
    }),
  );
  const publish = async (version: number, next: readonly Member[]): Promise<void> => {
    const view = makeView("test", version, next);
    for (const each of joined) each.publish(view);
    await Promise.all(joined.map(({ group }) => group.when((newest) => newest.version === version)));
  };
  return { members, joined, publish };
}

type Joined = Awaited<ReturnType<typeof groupOf>>["joined"][number];

const subgroupOf = ({ group }: Joined, ranks: readonly number[], followRemovals = true) =>
  group.subgroup("some", ranks, { followRemovals });

it("has ranks of its own for calls, collectives and barriers", async () => {
  const { joined } = await groupOf(4);
  const ranks = [3, 0, 2];
  const parts = ranks.map((rank) => subgroupOf(joined[rank] as Joined, ranks));
  expect(parts.map(({ self }) => self?.rank)).toEqual([0, 1, 2]);
  expect(await parts[2]?.at(0).client(Who).port()).toBe(joined[3]?.url);
  const { value, ok } = await (parts[1] as (typeof parts)[0]).all(Ranks).list();
  expect([value.sort(), ok]).toEqual([
    [0, 1, 2],
    [0, 1, 2],
  ]);
  const gathered = await Promise.all(parts.map((part, rank) => part.allGather("all", rank * 10)));
  expect([...(gathered[0] ?? [])]).toEqual([
    [0, 0],
    [1, 10],
    [2, 20],
  ]);
  // The same name with other members is another subgroup.
  const other = subgroupOf(joined[2] as Joined, [2, 0]);
  const result = await other.all(Ranks).list({ onFailure: "partial" });
  expect([result.ok, result.failed.get(1)?.code]).toEqual([[0], "failed_precondition"]);
});

it("is made of members that fit, and observers may call it", async () => {
  const { members, joined } = await groupOf(3);
  const observer = await observeGroup("test", await joinedAsObserver(members));
  open.push(observer);
  const odd = observer.subgroup("odd", ({ rank }) => rank !== 1);
  expect([odd.ranks, odd.self, odd.view.version, odd.view.members.map(({ rank }) => rank)]).toEqual([
    [0, 2],
    undefined,
    1,
    [0, 1],
  ]);
  expect(await odd.at(1).client(Who).port()).toBe(joined[2]?.url);
});

async function joinedAsObserver(members: readonly Member[]) {
  const engine = await Engine.open();
  open.push(engine);
  return { engine, authority: scripted(members).authority };
}

it("refuses what is no subgroup", async () => {
  const { group } = (await groupOf(2)).joined[0] as Joined;
  expect(() => group.subgroup("none", [])).toThrow('subgroup "none": it has no members');
  expect(() => group.subgroup("none", () => false)).toThrow("it has no members");
  expect(() => group.subgroup("twice", [0, 1, 0])).toThrow('subgroup "twice": rank 0 is there twice');
  expect(() => group.subgroup("a/b", [0])).toThrow('no "/"');
  expect(() => group.subgroup("odd", [0], { follow: true } as never)).toThrow('unknown option "follow"');
  expect(() => group.subgroup("odd", [0], { followRemovals: 1 } as never)).toThrow("must be true or false");
  const unknown = thrownBy(() => group.subgroup("unknown", [0, 7]));
  expect(notInView(unknown)).toMatchObject({ group: "test", rank: 7, version: 1 });
  expect(thrownBy(() => group.subgroup("others", [1]))).toMatchObject({
    code: "failed_precondition",
    message: expect.stringContaining("this process has the rank 0, which is not among its members"),
  });
  await group.close();
  expect(thrownBy(() => group.subgroup("late", [0]))).toMatchObject({ code: "unavailable" });
});

function thrownBy(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}

it("follows removals: ranks stay, and a successor in the group takes its place", async () => {
  const { members, joined, publish } = await groupOf(4);
  const [zero, one, two, three] = members as [Member, Member, Member, Member];
  const ranks = [2, 1, 0];
  const parts = ranks.map((rank) => subgroupOf(joined[rank] as Joined, ranks));
  const [first] = parts as [(typeof parts)[0]];
  const versions: number[] = [];
  first.on("view", ({ view }) => versions.push(view.version));
  await publish(2, [zero, two, three]);
  expect(first.view.members.map(({ rank }) => rank)).toEqual([0, 2]);
  expect(notInView(thrownBy(() => first.at(1)))).toMatchObject({ rank: 1, version: 2 });
  expect((await first.all(Ranks).list()).ok).toEqual([0, 2]);
  const waiting = first.when(({ members: all }) => all.length === 3);
  await publish(3, [zero, { ...one, incarnation: 3 }, two, three]);
  expect(memberOf(await waiting, 1)?.incarnation).toBe(3);
  await first.at(1).client(Who).port();
  expect([versions, first.broken]).toEqual([[2, 3], undefined]);
});

it("breaks with a member that leaves, where it does not follow", async () => {
  const { members, joined, publish } = await groupOf(3);
  const [zero, one, two] = members as [Member, Member, Member];
  const ranks = [0, 1];
  const parts = ranks.map((rank) => subgroupOf(joined[rank] as Joined, ranks, false));
  const [first, second] = parts as [(typeof parts)[0], (typeof parts)[0]];
  const broken: RpcError[] = [];
  first.on("broken", ({ error }) => broken.push(error));
  // Members of the group outside the subgroup may come and go.
  await publish(2, [zero, one]);
  expect((await first.all(Ranks).list()).ok).toEqual([0, 1]);
  const meeting = first.barrier("never").catch((error: unknown) => error);
  await publish(3, [zero, { ...one, incarnation: 3 }, two]);
  await publish(4, [zero, two]);
  expect(broken.map(({ code }) => code)).toEqual(["aborted"]);
  expect(first.broken?.message).toContain("rank 1 left, and the subgroup does not follow");
  expect(await meeting).toMatchObject({ code: "aborted" });
  expect(thrownBy(() => first.at(0))).toBe(broken[0]);
  await expect(first.all(Ranks).list()).rejects.toBe(broken[0]);
  expect(second.broken).toBeInstanceOf(RpcError);
});

it("maps ranks both ways under any change of the group", async () => {
  const { members, joined } = await groupOf(6);
  const { group, publish } = joined[0] as Joined;
  const subgroup = group.subgroup("mapped", [5, 0, 3, 1]);
  let seed = 7;
  const random = () => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed / 2 ** 31;
  };
  for (let version = 2; version <= 60; version++) {
    const left = members.filter(({ rank }) => rank === 0 || random() < 0.6);
    publish(
      makeView(
        "test",
        version,
        left.map((each) => ({ ...each, incarnation: version })),
      ),
    );
    const view = await subgroup.when((newest) => newest.version === version);
    const expected = subgroup.ranks.filter((rank) => left.some((each) => each.rank === rank));
    expect(view.members.map(({ rank }) => subgroup.ranks[rank]).sort()).toEqual([...expected].sort());
    for (const { rank, urls } of view.members)
      expect(urls).toEqual(memberOf(group.view, subgroup.ranks[rank] as number)?.urls);
  }
});

it("ends with its group, and its views with it", async () => {
  const { joined } = await groupOf(2);
  const { group, fail } = joined[0] as Joined;
  const [closed, lost] = [group.subgroup("closed", [0]), group.subgroup("lost", [1, 0])];
  const waiting = closed.when(() => false).catch((error: unknown) => error);
  closed.close();
  expect(await waiting).toMatchObject({ code: "cancelled" });
  const failing = lost.when(() => false).catch((error: unknown) => error);
  fail(new Error("no authority"));
  expect(await failing).toMatchObject({ message: "no authority" });
});
