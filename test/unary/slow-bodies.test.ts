import { setTimeout as delay } from "node:timers/promises";
import { bytes, type EngineOptions, implement, service, unary } from "cinnabar";
import { expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { type OneSidedPlan, Scheduler } from "../../src/transfer/scheduler.ts";
import { exact } from "../matrix/exact-limits.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const mebi = 1024 * 1024;

const Long = service("long.v1", {
  answer: unary({ input: z.number(), output: bytes() }),
  input: unary({ input: bytes(), output: z.number() }),
});
const serve = [
  implement(Long, {
    answer: (length) => new Uint8Array(length).fill(7),
    input: ({ byteLength }) => byteLength,
  }),
];

/** From now on no transfer begins. `end` ends those that would have. */
function holdTransfers(): { readonly plans: readonly OneSidedPlan[]; end(): void } {
  const plans: OneSidedPlan[] = [];
  const spy = vi.spyOn(Scheduler.prototype, "start").mockImplementation((plan) => {
    plans.push(plan);
    return undefined as never;
  });
  const end = () => {
    spy.mockRestore();
    for (const { listener } of plans.splice(0)) listener.onEnded(0);
  };
  onTestFinished(end);
  return { plans, end };
}

it.each(transports)("a caller over $name that lives and reads nothing is let go", async (provider) => {
  const limits = exact({ maxBodyStallMs: 300 });
  const { server, client, api } = await pair(provider, serve, { server: { limits }, endsHard: true });
  const held = holdTransfers();
  // At a second for each 128 KiB the answer would be kept for 64 s.
  const error = await failure(api(Long).answer(8 * mebi, { timeoutMs: 600_000 }));
  expect(error).toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("too slowly: one has waited for"),
  });
  expect([held.plans.length, server.stats().counters.sessionsEvicted]).toEqual([1, 1]);
  held.end();
  await until(() => client.stats().pullingBytes === 0, "memory given back");
  const isKept = () => server.stats().offeredBytes > 0 || server.stats().quarantinedBytes > 0;
  // Over iWARP the client, which lives, might still read it: it stays in quarantine until the connection has ended.
  if (provider.name.endsWith("siw")) expect(isKept()).toBe(true);
  else await until(() => !isKept(), "memory given back, and an empty quarantine");
  expect(server.stats().counters.malformed + client.stats().counters.malformed).toBe(0);
});

/** Transfers seem to take long: half a MiB comes every 100 ms. */
function slowTransfers(): void {
  const begin = Scheduler.prototype.start;
  const spy = vi.spyOn(Scheduler.prototype, "start").mockImplementation(function (this: Scheduler, plan) {
    const { listener } = plan;
    const ended = new Promise<number>((onEnded) => {
      const moving = { stopped: () => listener.stopped(), onMoved: () => {}, onEnded };
      begin.call(this, { ...plan, listener: moving });
    });
    const slow = async () => {
      const bytes = plan.extents.reduce((sum, extent) => sum + extent.bytes, 0);
      for (let left = bytes; left > 0; left -= mebi / 2) {
        await delay(100);
        listener.onMoved(Math.min(left, mebi / 2));
      }
      listener.onEnded(await ended);
    };
    void slow();
    return undefined as never;
  });
  onTestFinished(() => spy.mockRestore());
}

it.each(transports)("bodies over $name that are read slowly arrive", async (provider) => {
  // They take three times as long as a peer may move nothing, and move five times what it must.
  const options: EngineOptions = { limits: exact({ maxBodyStallMs: 1000 }) };
  const { server, client, api } = await pair(provider, serve, { server: options, client: options });
  const body = new Uint8Array(16 * mebi).fill(7);
  slowTransfers();
  const { answer, input } = api(Long, { timeoutMs: 120_000 });
  const [answered, taken] = await Promise.all([answer(body.length), input(body)]);
  expect([answered.byteLength, answered.at(-1), taken]).toEqual([body.length, 7, body.length]);
  for (const engine of [server, client])
    expect(engine.stats().counters).toMatchObject({ bodiesPulled: 1, sessionsEvicted: 0, malformed: 0 });
});
