import { Engine, implement, RpcError, service, unary } from "cinnabar/standard";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { staticAuthority } from "../authority/static-authority.ts";
import { type GroupImplementation, implementCollectives } from "../collective/handlers.ts";
import { collective } from "../collective/method.ts";
import { implementVariables } from "../variable/variables.ts";
import { makeView } from "../view/view.ts";
import type { Group } from "./group.ts";
import { joinGroup, observeGroup } from "./join-group.ts";
import { member, scripted } from "./scripted.test-support.ts";

const Ranks = service("served-ranks.v1", {
  list: collective({ output: z.array(z.int()), reduce: (one, other) => [...one, ...other] }),
});
const Who = service("served-who.v1", { hello: unary() });
const open: AsyncDisposable[] = [];
let engines = 0;

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

const listOf = () => implementCollectives(Ranks, { list: (_, { rank }) => [rank] });

async function openEngine(options: Parameters<typeof Engine.open>[0] = {}): Promise<Engine> {
  const engine = await Engine.open({ listen: `mem://served-${++engines}`, ...options });
  open.push(engine);
  return engine;
}

/** Groups of these engines that never change, with what each serves. */
async function groupOf(
  name: string,
  all: readonly Engine[],
  serve: readonly GroupImplementation[],
): Promise<Group[]> {
  const authority = staticAuthority(all.map(({ urls }) => ({ urls })));
  return Promise.all(
    all.map(async (engine, rank) => {
      const group = await joinGroup(name, { engine, authority, serve: serve.slice(rank, rank + 1) });
      open.push(group);
      return group;
    }),
  );
}

describe("a member", () => {
  it("joins once, and then calls and meets", async () => {
    const all = await Promise.all([openEngine(), openEngine(), openEngine()]);
    const groups = await groupOf("one", all, all.map(listOf));
    const [first] = groups as [Group];
    expect((await first.all(Ranks).list()).value.sort()).toEqual([0, 1, 2]);
    await Promise.all(groups.map((group) => group.barrier("ready")));
    const sums = await Promise.all(groups.map((group, rank) => group.reduce("sum", rank, (a, b) => a + b)));
    expect(sums).toEqual([3, undefined, undefined]);
    const words = await Promise.all(
      groups.map((group, rank) => group.broadcast("word", rank === 0 ? "go" : undefined)),
    );
    expect(words).toEqual(["go", "go", "go"]);
    expect(first.collectiveStats().started).toBeGreaterThan(0);
  });

  it("serves one implementation to several groups, and goes on when it has left one", async () => {
    const all = await Promise.all([openEngine(), openEngine()]);
    const lists = all.map(listOf);
    const [one] = (await groupOf("one", all, lists)) as [Group];
    const [two] = (await groupOf("two", all, lists)) as [Group];
    await one.close();
    expect((await two.all(Ranks).list()).ok).toEqual([0, 1]);
    const [again] = (await groupOf("three", all, lists)) as [Group];
    expect((await again.all(Ranks).list()).ok).toEqual([0, 1]);
  });

  it("may not join a group twice, nor serve a service twice", async () => {
    const engine = await openEngine();
    const list = listOf();
    await groupOf("one", [engine], [list]);
    await expect(groupOf("one", [engine], [list])).rejects.toThrow('serves the group "one" already');
    await expect(groupOf("two", [engine], [listOf()])).rejects.toThrow("implemented twice");
    const other = await openEngine({ serve: [implement(Who, { hello: () => undefined })] });
    const who = implement(Who, { hello: () => undefined });
    const authority = staticAuthority([{ urls: other.urls }]);
    await expect(joinGroup("two", { engine: other, authority, serve: [who] })).rejects.toThrow(
      "implemented twice",
    );
    await expect(joinGroup("two", { engine: other, authority, serve: who as never })).rejects.toThrow(
      "serve must be an array",
    );
  });

  it("refuses members that were removed, for what it serves to a group whose members change", async () => {
    const [one, two] = (await Promise.all([openEngine(), openEngine()])) as [Engine, Engine];
    const members = [one, two].map(({ urls }, rank) => member(rank, 1, urls[0] as string));
    const who = implement(Who, { hello: () => undefined });
    const callee = scripted(members, members[0]);
    const caller = scripted(members, members[1]);
    const group = await joinGroup("test", { engine: one, authority: callee.authority, serve: [who] });
    open.push(group);
    const removed = await joinGroup("test", { engine: two, authority: caller.authority });
    open.push(removed);
    callee.publish(makeView("test", 2, members.slice(0, 1)));
    await group.when(({ version }) => version === 2);
    const result = await removed.at(0).client(Who).hello.result();
    expect(result).toMatchObject({ ok: false, error: { code: "failed_precondition" } });
    // A group of a fixed list may share what refuses removed members, and not the other way round.
    const fixed = await openEngine();
    const list = listOf();
    await groupOf("fixed", [fixed], [list]);
    const changing = scripted([member(0, 1, fixed.urls[0] as string)], member(0, 1, fixed.urls[0] as string));
    await expect(
      joinGroup("test", { engine: fixed, authority: changing.authority, serve: [list] }),
    ).rejects.toThrow("is served for a group whose members never change");
  });
});

describe("variables", () => {
  const options = { schema: z.int(), initial: 1 };

  it("are served to groups and their subgroups, and not to observers", async () => {
    const all = await Promise.all([openEngine(), openEngine()]);
    const variables = all.map(() => implementVariables());
    const groups = await groupOf("one", all, variables);
    const subgroups = groups.map((group) => group.subgroup("part", [1, 0]));
    for (const each of [groups, subgroups]) {
      const limits = each.map((group, rank) => variables[rank]?.variable(group, "limit", options));
      const version = (await limits[1]?.set(7, { sync: true })) as number;
      expect(await limits[0]?.get()).toEqual({ version, value: 7 });
    }
    const engine = await openEngine();
    const authority = staticAuthority(all.map(({ urls }) => ({ urls })));
    const observed = await observeGroup("one", { engine, authority });
    open.push(observed);
    expect(() => implementVariables().variable(observed, "limit", options)).toThrow(
      'this process does not serve variables in the group "one"',
    );
  });

  it("end with their group, and other groups go on", async () => {
    const all = await Promise.all([openEngine()]);
    const variables = implementVariables();
    const [one] = (await groupOf("one", all, [variables])) as [Group];
    const [two] = (await groupOf("two", all, [variables])) as [Group];
    const [ended, other] = [one, two].map((group) => variables.variable(group, "limit", options));
    await one.close();
    await expect(ended?.set(2)).rejects.toMatchObject({ code: "unavailable" });
    expect(() => variables.variable(one, "limit", options)).toThrow("does not serve variables");
    await other?.set(3);
    expect((await other?.get())?.value).toBe(3);
  });
});

it("an observer calls collectives and waits for nobody", async () => {
  const all = await Promise.all([openEngine(), openEngine()]);
  await groupOf("one", all, all.map(listOf));
  const engine = await openEngine();
  const authority = staticAuthority(all.map(({ urls }) => ({ urls })));
  const group = await observeGroup("one", { engine, authority });
  open.push(group);
  expect((await group.all(Ranks).list()).ok).toEqual([0, 1]);
  const refused = await group.barrier("never").catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(RpcError);
  expect(refused).toMatchObject({ code: "failed_precondition" });
});
