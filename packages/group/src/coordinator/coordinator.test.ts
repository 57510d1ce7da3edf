import { Engine, implement, service, unary } from "cinnabar/standard";
import { afterEach, describe, expect, it } from "vitest";
import type { Authority, Candidate, Membership } from "../authority/authority.ts";
import type { Group } from "../group/group.ts";
import { createGroup, type JoinOptions, joinGroup, observeGroup } from "../group/join-group.ts";
import type { View } from "../view/view.ts";
import { notInView } from "../view/view.ts";
import { coordinatorAuthority } from "./coordinator-authority.ts";
import { Membership as MembershipService } from "./membership-service.ts";

const Who = service("who.v1", { hello: unary({ idempotent: true }), hold: unary() });
const open: AsyncDisposable[] = [];

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

let names = 0;
const freshUrls = (count: number) =>
  Array.from({ length: count }, () => `mem://coordinated-${process.pid}-${++names}`);

interface Process {
  readonly engine: Engine;
  readonly group: Group;
}

async function openEngine(url: string): Promise<Omit<Process, "group">> {
  const who = implement(Who, {
    hello: () => undefined,
    hold: (_, { signal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  });
  const engine = await Engine.open({ listen: url, serve: [who] });
  open.push(engine);
  return { engine };
}

async function start(
  url: string,
  authority: Authority,
  options: Partial<JoinOptions> = {},
): Promise<Process> {
  const { engine } = await openEngine(url);
  const group = await joinGroup("test", { engine, authority, ...options });
  open.push(group);
  return { engine, group };
}

/** All begin at the same time, with the same seeds. */
async function startAll(
  count: number,
): Promise<{ urls: string[]; authority: Authority; processes: Process[] }> {
  const urls = freshUrls(count);
  // Its own times are for processes that do not answer; here all do.
  const authority = coordinatorAuthority({ seeds: urls, refreshMs: 50 });
  const processes = await Promise.all(urls.map((url) => start(url, authority)));
  const sorted = processes.sort((a, b) => rankOf(a.group) - rankOf(b.group));
  await agree(sorted, count);
  return { urls, authority, processes: sorted };
}

const rankOf = (group: Group): number => group.self?.rank ?? -1;
const ranksOf = ({ members }: View): number[] => members.map(({ rank }) => rank);

/** Until all have a view with so many members; that is the same one. */
async function agree(processes: readonly Process[], members: number): Promise<View> {
  const views = await Promise.all(
    processes.map(({ group }) => group.when((view) => view.members.length === members)),
  );
  expect(new Set(views.map((view) => JSON.stringify(view))).size).toBe(1);
  return views[0] as View;
}

describe("a group with a coordinator", () => {
  it("is made by the first seed, and joined by any", async () => {
    const { processes, authority, urls } = await startAll(4);
    expect(processes.map(({ group }) => rankOf(group))).toEqual([0, 1, 2, 3]);
    expect(processes[0]?.engine.urls).toEqual([urls[0]]);
    for (const { group } of processes)
      for (const rank of [0, 1, 2, 3]) await group.at(rank).client(Who).hello();
    const { engine } = await openEngine(freshUrls(1)[0] as string);
    await expect(createGroup("test", { engine, authority })).rejects.toMatchObject({
      code: "already_exists",
    });
    const other = await createGroup("other", {
      engine,
      authority: coordinatorAuthority({ seeds: [] }),
      rank: 7,
    });
    open.push(other);
    expect(ranksOf(other.view)).toEqual([7]);
    const impatient = coordinatorAuthority({ seeds: urls, joinTimeoutMs: 50 });
    await expect(observeGroup("other", { engine, authority: impatient })).rejects.toMatchObject({
      code: "unavailable",
    });
  });

  it("removes a member that has died before it followed", async () => {
    const { processes, urls } = await startAll(2);
    const { engine } = await openEngine(freshUrls(1)[0] as string);
    const candidate = {
      ...{ creates: false, engine: engine.incarnation.toString(16).padStart(16, "0"), urls: engine.urls },
      ...{ host: undefined, detector: undefined, metadata: {} },
    };
    const answer = await engine
      .lazyPeer(urls[0] as string)
      .client(MembershipService)
      .join({ group: "test", candidate });
    expect(answer).toMatchObject({ kind: "joined", rank: 2 });
    await agree(processes, 3);
    await engine.close();
    expect(ranksOf(await agree(processes, 2))).toEqual([0, 1]);
  });

  it("goes on without members that leave, the coordinator too", async () => {
    const { processes } = await startAll(4);
    const [first, second, third, last] = processes as [Process, Process, Process, Process];
    await last.group.leave();
    expect(ranksOf(await agree([first, second, third], 3))).toEqual([0, 1, 2]);
    await first.group.leave();
    const view = await agree([second, third], 2);
    expect([ranksOf(view), view.version]).toEqual([[1, 2], 1000]);
    await Promise.all([second.group.leave(), third.group.leave()]);
  });

  it("removes a process that is gone, and takes over from a coordinator that is", async () => {
    const { processes } = await startAll(4);
    const [first, second, third, last] = processes as [Process, Process, Process, Process];
    const held = first.group.at(3).client(Who).hold.result();
    await last.engine.close();
    await agree([first, second, third], 3);
    const result = await held;
    // Its connection ended, or the view without it came first.
    expect(result.ok || ["unavailable", "failed_precondition"].includes(result.error.code)).toBe(true);
    await first.engine.close();
    expect((await agree([second, third], 2)).version).toBe(1000);
    // The one that is left of two decides alone, since the host of the other has said that it is gone.
    await second.engine.close();
    expect(ranksOf(await agree([third], 1))).toEqual([2]);
  });

  it("gives the place of a process that is gone to its successor, and to no other", async () => {
    const { processes, authority } = await startAll(3);
    const [first, second, third] = processes as [Process, Process, Process];
    const thief = await openEngine(freshUrls(1)[0] as string);
    await expect(joinGroup("test", { ...thief, authority, rank: 1 })).rejects.toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining("rank 1 is taken by a process that answers"),
    });
    const former = first.group.at(1);
    await former.client(Who).hello();
    // The coordinator's too: the others find out that it is gone when its successor asks for the place.
    for (const { engine, group } of [second, first]) {
      const url = engine.urls[0] as string;
      const { incarnation = 0 } = group.self ?? {};
      await engine.close();
      const again = await start(url, authority, { rank: rankOf(group) });
      expect(again.group.self?.incarnation).toBeGreaterThan(incarnation);
      const view = await third.group.when(({ members }) =>
        members.some(({ engine: id }) => id === again.group.self?.engine),
      );
      expect(view.members.find(({ rank }) => rank === again.group.self?.rank)?.urls).toEqual([url]);
      await third.group
        .at(again.group.self?.rank ?? -1)
        .client(Who)
        .hello();
    }
    // The process that asked is no member any more, and its engine is closed.
    const result = await former.client(Who).hello.result();
    expect(!result.ok && notInView(result.error)?.rank).toBe(1);
  });

  it("is followed from outside, by way of any member that is left", async () => {
    const { processes, authority } = await startAll(3);
    const [first, second, third] = processes as [Process, Process, Process];
    const { engine } = await openEngine(freshUrls(1)[0] as string);
    const observer = await observeGroup("test", { engine, authority });
    open.push(observer);
    expect(ranksOf(observer.view)).toEqual([0, 1, 2]);
    const client = observer.at(1).client(Who);
    await client.hello();
    for (const { group } of [second, first]) {
      const { self } = group;
      await group.leave();
      await observer.when(({ members }) => members.every(({ rank }) => rank !== self?.rank));
    }
    const result = await client.hello.result();
    expect(!result.ok && notInView(result.error)?.rank).toBe(1);
    expect(ranksOf(third.group.view)).toEqual([2]);
  });
});

describe("views of two coordinators", () => {
  it("end with those of the one that took over: the former one learns that it was removed", async () => {
    const urls = freshUrls(3);
    const authority = coordinatorAuthority({ seeds: urls, refreshMs: 20 });
    const members: Membership[] = [];
    for (const url of urls) {
      const { engine } = await openEngine(url);
      const candidate: Candidate = {
        ...{ creates: false, urls: [url], host: undefined, detector: undefined, metadata: {} },
        engine: engine.incarnation.toString(16).padStart(16, "0"),
      };
      const member = await authority.join("test", candidate, { engine });
      open.push({ [Symbol.asyncDispose]: () => member.close() });
      members.push(member);
    }
    const [first, second, third] = members as [Membership, Membership, Membership];
    for (const member of members) await until(member, ({ version }) => version === 3);
    // A false alarm: rank 0 lives, and goes on.
    second.report(first.self, "dead");
    first.report(third.self, "dead");
    expect([first.view, second.view].map((view) => [view.version, ranksOf(view)])).toEqual([
      [4, [0, 1]],
      [1000, [1, 2]],
    ]);
    for (const member of members) await until(member, ({ version }) => version === 1000);
    expect(members.map(({ view }) => ranksOf(view))).toEqual([
      [1, 2],
      [1, 2],
      [1, 2],
    ]);
  });
});

async function until(member: Membership, accepts: (view: View) => boolean): Promise<void> {
  if (accepts(member.view)) return;
  for await (const view of member.views()) if (accepts(view)) return;
}

it("a group that nobody finds is an error that says whom it has asked", async () => {
  const { engine } = await openEngine(freshUrls(1)[0] as string);
  const nobody = freshUrls(1);
  const impatient = coordinatorAuthority({ seeds: nobody, joinTimeoutMs: 50 });
  await expect(joinGroup("test", { engine, authority: impatient })).rejects.toThrow(
    `no member was found by the seeds: [unavailable] cannot connect to ${nobody[0]}`,
  );
  await expect(observeGroup("test", { engine, authority: impatient })).rejects.toMatchObject({
    code: "unavailable",
  });
  const patient = coordinatorAuthority({ seeds: () => nobody });
  const signal = AbortSignal.timeout(50);
  await expect(joinGroup("test", { engine, authority: patient, signal })).rejects.toMatchObject({
    cause: expect.objectContaining({ name: "TimeoutError" }),
  });
  expect(() => coordinatorAuthority({ seeds: "tcp://a:1" as never })).toThrow("seeds must be an array");
  expect(() => coordinatorAuthority({ seeds: [], refreshMs: 0 })).toThrow("refreshMs must be a number");
});
