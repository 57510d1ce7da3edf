import { service } from "cinnabar/standard";
import { afterEach, expect, it } from "vitest";
import { channels } from "../group/events.ts";
import { closeAll, groupOf, type TestMember } from "./group-of.test-support.ts";
import { implementCollectives } from "./handlers.ts";
import { collective } from "./method.ts";

const Store = service("store.v1", { touch: collective() });

let members: TestMember[] = [];
const stops: (() => void)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) stop();
  await closeAll(members);
});

type Event = { readonly what: string } & Record<string, unknown>;

function collect(): Event[] {
  const events: Event[] = [];
  for (const what of ["collectiveStarted", "collectiveEnded", "collectiveRepaired"] as const) {
    const onMessage = (message: unknown) => events.push({ what, ...(message as object) });
    channels[what].subscribe(onMessage);
    stops.push(() => channels[what].unsubscribe(onMessage));
  }
  return events;
}

it("tells when a collective starts, is repaired and ends, and counts them", async () => {
  members = await groupOf(8, () => [implementCollectives(Store, { touch: () => undefined })]);
  const { collectives } = members[0] as TestMember;
  const options = { timeoutMs: 60_000, onFailure: "partial", tree: { kind: "knomial", ratio: 2 } } as const;
  const events = collect();
  await collectives.all(Store).touch({ ...options, exclude: [0] });
  await members[4]?.engine.close();
  await collectives.all(Store).touch(options);
  const about = { group: "test", method: "store.v1/touch" };
  const all = [1, 2, 3, 4, 5, 6, 7];
  expect(events).toMatchObject([
    { what: "collectiveStarted", ...about, ranks: all },
    { what: "collectiveEnded", ...about, ok: expect.arrayContaining(all), failed: [], repaired: [] },
    { what: "collectiveStarted", ...about, ranks: [0, ...all] },
    { what: "collectiveRepaired", ...about, rank: 4, adopted: [5, 6, 7] },
    {
      ...{ what: "collectiveEnded", ...about, repaired: expect.arrayContaining([5, 6]) },
      failed: [{ rank: 4, code: "unavailable", executed: "no" }],
    },
  ]);
  const [first, , second, repaired, ended] = events.map(({ id }) => id);
  expect(new Set([first, second]).size).toBe(2);
  expect([repaired, ended]).toEqual([second, second]);
  for (const { what, tookMs } of events) if (what === "collectiveEnded") expect(tookMs).toBeGreaterThan(0);
  expect(collectives.stats()).toMatchObject({ started: 2, succeeded: 1, failed: 1, repairs: 1 });
});

it("counts a call that its caller gives up among the failed", async () => {
  let begun = (): void => undefined;
  const runs = new Promise<void>((resolve) => {
    begun = resolve;
  });
  members = await groupOf(2, () => [
    implementCollectives(Store, {
      touch: (_, { signal }) =>
        new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => resolve());
          begun();
        }),
    }),
  ]);
  const { collectives } = members[0] as TestMember;
  const events = collect();
  const controller = new AbortController();
  const call = collectives.all(Store).touch({ timeoutMs: 60_000, signal: controller.signal });
  await runs;
  controller.abort();
  await expect(call).rejects.toMatchObject({ code: "cancelled" });
  expect(collectives.stats()).toMatchObject({ started: 1, succeeded: 0, failed: 1, repairs: 0 });
  expect(events.map(({ what }) => what)).toEqual(["collectiveStarted", "collectiveEnded"]);
});
