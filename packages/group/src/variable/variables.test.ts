import type { RpcError } from "cinnabar/standard";
import { afterEach, expect, it, vi } from "vitest";
import { z } from "zod";
import { closeAll, groupOf, type TestMember } from "../collective/group-of.test-support.ts";
import { makeView, notInView, type View } from "../view/view.ts";
import type { Copies } from "./copies.ts";
import type { VariableService } from "./variable-service.ts";
import {
  implementVariables,
  type Variable,
  type VariableImplementation,
  type Variables,
  VersionConflictError,
} from "./variables.ts";

const Limit = z.object({ maxBytes: z.int().positive() });
const initial = { maxBytes: 1 };
const open: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

interface Place {
  readonly member: TestMember;
  readonly implementation: VariableImplementation;
  readonly variables: Variables;
  readonly limit: Variable<typeof Limit>;
}

async function variablesOf(size: number): Promise<Place[]> {
  const implementations = Array.from({ length: size }, () => implementVariables());
  const members = await groupOf(size, (rank) => [implementations[rank] as VariableImplementation]);
  const places = members.map((member, rank) => {
    const implementation = implementations[rank] as VariableImplementation;
    const variables = implementation.open(member.collectives);
    const limit = variables.variable("limit", { schema: Limit, initial });
    return { member, implementation, variables, limit };
  });
  open.push(async () => {
    for (const { variables } of places) variables.close();
    await closeAll(members);
  });
  return places;
}

/** The view after these ranks have gone. */
const without = ({ members, version }: View, ...ranks: number[]): View =>
  makeView(
    "test",
    version + 1,
    members.filter(({ rank }) => !ranks.includes(rank)),
  );

const failureOf = (work: Promise<unknown>): Promise<RpcError> =>
  work.then(
    () => Promise.reject(new Error("it succeeded")),
    (error: RpcError) => error,
  );

it("has its initial value, and what any member sets is what all read", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  const begun = await second.limit.get();
  expect(begun.value).toEqual(initial);
  const version = await third.limit.set({ maxBytes: 2 });
  expect(version).toBeGreaterThan(begun.version);
  for (const { limit } of [first, second, third])
    expect(await limit.get({ minVersion: version })).toEqual({ version, value: { maxBytes: 2 } });
  const later = await first.limit.set({ maxBytes: 3 }, { sync: true });
  for (const { limit } of [first, second, third])
    expect(await limit.get()).toEqual({ version: later, value: { maxBytes: 3 } });
  const unknown = await failureOf(second.limit.get({ minVersion: later + 1 }));
  expect(unknown).toMatchObject({ code: "failed_precondition" });
});

it("is set only at the version that the caller has seen: of many, one succeeds each time", async () => {
  const places = await variablesOf(4);
  const add = async ({ limit }: Place): Promise<number> => {
    for (let conflicts = 0; ; conflicts++) {
      const { version, value } = await limit.get();
      try {
        await limit.set({ maxBytes: value.maxBytes + 1 }, { ifVersion: version });
        return conflicts;
      } catch (error) {
        if (!(error instanceof VersionConflictError)) throw error;
        expect(error.version).toBeGreaterThan(version);
        await limit.get({ minVersion: error.version });
      }
    }
  };
  await Promise.all([...places, ...places, ...places].map(add));
  const [first] = places as [Place];
  expect((await first.limit.get()).value).toEqual({ maxBytes: 13 });
  const conflict = await failureOf(first.limit.set({ maxBytes: 1 }, { ifVersion: 7 }));
  expect(conflict).toBeInstanceOf(VersionConflictError);
  expect(conflict).toMatchObject({ code: "failed_precondition", notExecuted: true });
});

it("is made anew after it was invalidated", async () => {
  const [first, second] = (await variablesOf(2)) as [Place, Place];
  let made = 0;
  const options = { schema: z.int(), initial: async () => ++made };
  const [one, other] = [first, second].map(({ variables }) => variables.variable("made", options));
  expect((await other?.get())?.value).toBe(1);
  expect((await one?.get())?.value).toBe(1);
  const invalid = await other?.invalidate({ sync: true });
  const again = await one?.get();
  expect(again).toEqual({ version: (invalid as number) + 1, value: 2 });
  expect((await other?.get())?.value).toBe(2);
});

it("is watched: versions come in order, and those that are invalid do not", async () => {
  const [first, second] = (await variablesOf(2)) as [Place, Place];
  const end = new AbortController();
  const seen: number[] = [];
  const watching = (async () => {
    for await (const { value } of second.limit.watch(end.signal)) seen.push(value.maxBytes);
  })();
  for (const maxBytes of [5, 6]) await first.limit.set({ maxBytes }, { sync: true });
  await first.limit.invalidate({ sync: true });
  await first.limit.set({ maxBytes: 7 }, { sync: true });
  await vi.waitFor(() => expect(seen.at(-1)).toBe(7), { timeout: 20_000 });
  expect(seen).toEqual([...seen].sort());
  end.abort();
  await watching;
});

it("goes on at the next rank with the newest version that any member knows", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  const version = await first.limit.set({ maxBytes: 5 }, { sync: true });
  // A version that only the last member has.
  const unseen = version + 1;
  third.implementation.places.get("test")?.copies.put({
    ...{ name: "limit", term: 1, version: unseen, hasValue: true, value: { maxBytes: 6 } },
  });
  await first.member.engine.close();
  const view = without(second.member.view, 0);
  for (const { member } of [second, third]) member.view = view;
  const next = await third.limit.set({ maxBytes: 7 }, { ifVersion: unseen, sync: true });
  expect(next).toBeGreaterThan(unseen);
  expect(await second.limit.get()).toEqual({ version: next, value: { maxBytes: 7 } });
});

it("takes nothing of an owner that has been followed by another", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  const version = await first.limit.set({ maxBytes: 5 }, { sync: true });
  // The first rank does not know a view without it.
  const view = without(first.member.view, 0);
  for (const { member } of [second, third]) member.view = view;
  const next = await second.limit.set({ maxBytes: 6 }, { sync: true });
  expect(next).toBeGreaterThan(version);
  expect(await failureOf(first.limit.set({ maxBytes: 7 }, { sync: true }))).toMatchObject({
    code: "aborted",
    message: expect.stringContaining("another member has taken over in view 2"),
  });
  // It knows now, and changes nothing more.
  const late = await failureOf(first.limit.set({ maxBytes: 8 }, { timeoutMs: 200 }));
  expect(late).toMatchObject({ code: "deadline_exceeded" });
  for (const { limit } of [second, third])
    expect(await limit.get()).toEqual({ version: next, value: { maxBytes: 6 } });
});

it("takes nothing of a member that has been removed, and knows it", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  const version = await third.limit.set({ maxBytes: 5 }, { sync: true });
  const view = without(third.member.view, 0, 2);
  for (const { member } of [first, second, third]) member.view = view;
  // The former owner asks itself, the other one the new owner.
  for (const { limit, member } of [first, third]) {
    for (const change of [limit.set({ maxBytes: 6 }), limit.invalidate({ ifVersion: version })]) {
      const error = await failureOf(change);
      expect(error).toMatchObject({ code: "failed_precondition", notExecuted: true });
      expect(notInView(error)).toMatchObject({ rank: member.self?.rank, version: view.version });
    }
    expect(notInView(await failureOf(limit.get({ minVersion: version + 1 })))).toBeDefined();
    // Its copy stays.
    expect(await limit.get()).toEqual({ version, value: { maxBytes: 5 } });
  }
  expect(await second.limit.get()).toEqual({ version, value: { maxBytes: 5 } });
  await second.limit.set({ maxBytes: 7 }, { ifVersion: version });
});

it("waits for members that are there and lost, until the view is without them", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  await first.limit.set({ maxBytes: 5 }, { sync: true });
  await third.member.engine.close();
  let isDone = false;
  const setting = first.limit.set({ maxBytes: 6 }, { sync: true, timeoutMs: 100_000 }).finally(() => {
    isDone = true;
  });
  await vi.waitFor(async () => expect((await second.limit.get()).value.maxBytes).toBe(6), {
    timeout: 20_000,
  });
  expect(isDone).toBe(false);
  for (const { member } of [first, second]) member.view = without(second.member.view, 2);
  await setting;
  const late = failureOf(third.limit.get({ minVersion: Number.MAX_SAFE_INTEGER, timeoutMs: 50 }));
  expect(["deadline_exceeded", "unavailable"]).toContain((await late).code);
});

it("comes to all others at once while one member takes its time, and to that one in the end", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  await first.limit.set({ maxBytes: 1 }, { sync: true });
  const copies = third.implementation.places.get("test")?.copies as Copies;
  const put = copies.put.bind(copies);
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  // The handler of one member stands still.
  copies.put = async (version) => {
    await gate;
    put(version);
  };
  const seen = second.limit.watch();
  const beganMs = performance.now();
  let version = 0;
  for (let maxBytes = 2; maxBytes < 22; maxBytes++) {
    version = await first.limit.set({ maxBytes });
    for await (const each of { [Symbol.asyncIterator]: () => ({ next: () => seen.next() }) })
      if (each.version === version) break;
  }
  // Each change waited for half a second and longer where the slow one holds up the others.
  expect(performance.now() - beganMs).toBeLessThan(8_000);
  expect((await third.limit.get()).value).toEqual({ maxBytes: 1 });
  const setting = first.limit.set({ maxBytes: 100 }, { sync: true, timeoutMs: 60_000 });
  open();
  const last = await setting;
  for (const { limit } of [first, second, third])
    expect(await limit.get()).toEqual({ version: last, value: { maxBytes: 100 } });
  // It catches up.
  expect(last).toBeGreaterThan(version);
  await seen.return();
});

it("comes to a member that joins while another one takes its time", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  const whole = second.member.view;
  for (const { member } of [first, second]) member.view = without(whole, 2);
  await first.limit.set({ maxBytes: 1 }, { sync: true });
  const copies = second.implementation.places.get("test")?.copies as Copies;
  const put = copies.put.bind(copies);
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  let isAlone = (): void => undefined;
  const alone = new Promise<void>((resolve) => {
    isAlone = resolve;
  });
  let asked = 0;
  copies.put = async (version) => {
    // Once together with others, and then alone.
    if (++asked === 2) isAlone();
    await gate;
    put(version);
  };
  const setting = first.limit.set({ maxBytes: 2 }, { sync: true, timeoutMs: 60_000 });
  await alone;
  const joined = makeView("test", 3, whole.members);
  for (const { member } of [first, second, third]) member.view = joined;
  open();
  const version = await setting;
  for (const { limit } of [first, second, third])
    expect(await limit.get()).toEqual({ version, value: { maxBytes: 2 } });
}, 90_000);

it("has one version at a time on its way to a member, also to one that answers promptly again", async () => {
  const [first, second, third] = (await variablesOf(3)) as [Place, Place, Place];
  await first.limit.set({ maxBytes: 1 }, { sync: true });
  const { collectives } = first.member;
  const all = collectives.all.bind(collectives);
  const onTheirWay = new Map<number, number>();
  let most = 0;
  let sentAlone = 0;
  const count = (ranks: readonly number[], by: number): void => {
    for (const rank of ranks) onTheirWay.set(rank, (onTheirWay.get(rank) ?? 0) + by);
    most = Math.max(most, ...onTheirWay.values());
  };
  vi.spyOn(collectives, "all").mockImplementation(((service: typeof VariableService) => {
    const { put } = all(service);
    const counted: typeof put = async (copy, options) => {
      const ranks = options?.include as readonly number[];
      count(ranks, 1);
      if (ranks.length === 1 && ranks[0] === 2) sentAlone += 1;
      return put(copy, options).finally(() => count(ranks, -1));
    };
    return { put: counted };
  }) as never);
  const copies = third.implementation.places.get("test")?.copies as Copies;
  const put = copies.put.bind(copies);
  let isGated = true;
  // The first version is answered when it has been sent again; all others promptly.
  copies.put = async (version) => {
    if (isGated) await vi.waitFor(() => expect(sentAlone).toBe(1), { timeout: 20_000, interval: 1 });
    isGated = false;
    put(version);
  };
  let last = 0;
  for (let maxBytes = 2, rounds = 0; rounds < 60; maxBytes++) {
    last = await first.limit.set({ maxBytes });
    await second.limit.get({ minVersion: last });
    if (sentAlone > 0) rounds += 1;
  }
  await third.limit.get({ minVersion: last });
  expect(most).toBe(1);
}, 90_000);

it("ends what waits when the caller gives up or the variables are closed", async () => {
  const [first, second] = (await variablesOf(2)) as [Place, Place];
  // It is not open at the owner.
  const one = second.variables.variable("other", { schema: Limit });
  const end = new AbortController();
  const given = failureOf(one.get({ signal: end.signal }));
  const late = failureOf(one.get({ timeoutMs: 50 }));
  end.abort();
  expect([(await given).code, (await late).code]).toEqual(["cancelled", "deadline_exceeded"]);
  const waiting = failureOf(one.get({ timeoutMs: 100_000 }));
  second.variables.close();
  expect((await waiting).code).toBe("unavailable");
  const there = first.variables.variable("other", { schema: Limit });
  expect((await failureOf(there.get())).code).toBe("not_found");
});

it("refuses what is no value, no name and no option", async () => {
  const [first] = (await variablesOf(1)) as [Place];
  const { limit, variables } = first;
  expect(await failureOf(limit.set({ maxBytes: -1 }))).toMatchObject({ code: "invalid_argument" });
  await expect(limit.set(initial, { ifVersion: -1 })).rejects.toThrow("ifVersion must be an integer from 0");
  await expect(limit.get({ timeoutMs: 0 })).rejects.toThrow(
    "timeoutMs must be a number of milliseconds above 0",
  );
  expect(() => variables.variable("limit", { schema: Limit })).toThrow("it is open already");
  expect(() => variables.variable("", { schema: Limit })).toThrow("a name has 1 to 128 characters");
  expect(() => variables.variable("a", { schema: Limit, value: 1 } as never)).toThrow(
    'unknown option "value"',
  );
});
