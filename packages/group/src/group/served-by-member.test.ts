import { Engine, implement, RpcError, service, unary } from "cinnabar/standard";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { staticAuthority } from "../authority/static-authority.ts";
import { implementCollectives } from "../collective/handlers.ts";
import { collective } from "../collective/method.ts";
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
  serve: readonly ReturnType<typeof listOf>[],
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
  it("joins once, and then calls, meets and shares", async () => {
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
    const limits = groups.map((group) => group.variable("limit", { schema: z.int(), initial: 1 }));
    const version = (await limits[2]?.set(7, { sync: true })) as number;
    expect(await limits[1]?.get()).toEqual({ version, value: 7 });
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

it("an observer calls collectives, waits for nobody and has no variables", async () => {
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
  expect(() => group.variable("limit", { schema: z.int() })).toThrow(
    "this process is no member of the group",
  );
});
