import { type ClientOptions, implement, RpcError, service, unary } from "cinnabar";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { frameKind } from "../../src/wire/frame.ts";
import { seeded } from "../hostile/random.ts";
import { type Fate, LossyPair } from "./lossy-fabric.ts";

const schemas = { input: z.int(), output: z.int() };
const Work = service("work.v1", {
  plain: unary(schemas),
  idempotent: unary({ ...schemas, idempotent: true }),
  replayed: unary({ ...schemas, replay: true }),
});
type Name = keyof (typeof Work)["methods"];
const names = ["plain", "idempotent", "replayed"] as const;

/** What the handler does, how long it takes, and what happens to the call from outside. */
const plan = fc.record({
  name: fc.constantFrom(...names),
  startMs: fc.nat(80),
  handlerMs: fc.nat(60),
  outcome: fc.constantFrom("value", "unavailable", "declined", "internal", "forgets"),
  abortMs: fc.option(fc.nat(150)),
  timeoutMs: fc.integer({ min: 20, max: 300 }),
  attemptTimeoutMs: fc.option(fc.integer({ min: 8, max: 60 })),
  attempts: fc.integer({ min: 1, max: 5 }),
  hedge: fc.boolean(),
});

const events = fc.record({
  seed: fc.nat(),
  lost: fc.constantFrom(0, 0.1, 0.4),
  broken: fc.constantFrom(0, 0.05, 0.2),
  restarts: fc.array(fc.nat(150), { maxLength: 2 }),
  closesMs: fc.option(fc.nat(150), { freq: 4 }),
  calls: fc.array(plan, { minLength: 1, maxLength: 12 }),
});

describe("calls that may be tried again, in any order of events", () => {
  it("settle once, are executed at most once where that is promised, and leave nothing", async () => {
    await fc.assert(
      fc.asyncProperty(events, async ({ seed, lost, broken, restarts, closesMs, calls }) => {
        const random = seeded(seed);
        const executions = new Array<number>(calls.length).fill(0);
        const handle = (number: number): number | Promise<number> => {
          executions[number] = (executions[number] as number) + 1;
          const { handlerMs, outcome } = calls[number] as (typeof calls)[number];
          return new Promise<number>((resolve, reject) => {
            pair.clock.timer(handlerMs, () => {
              if (outcome === "value") resolve(number);
              else if (outcome === "unavailable" && random() < 0.5) resolve(number);
              else if (outcome === "unavailable")
                reject(new RpcError({ code: "unavailable", message: "not now" }));
              else if (outcome === "declined")
                reject(new RpcError({ code: "failed_precondition", message: "no" }));
              else if (outcome === "internal") reject(new Error("a bug"));
            });
          });
        };
        const pair = new LossyPair([
          implement(Work, { plain: handle, idempotent: handle, replayed: handle }),
        ]);
        const fate = (kinds: readonly number[]): Fate => {
          if (kinds.some((kind) => kind <= frameKind.refuse)) return "arrives";
          const drawn = random();
          return drawn < lost ? "lost" : drawn < lost + broken ? "lost with its session" : "arrives";
        };
        pair.fates(fate, fate);
        for (const atMs of restarts) pair.clock.timer(atMs, () => pair.restart());
        if (closesMs !== null) pair.clock.timer(closesMs, () => pair.peer.close());
        const settled = new Array<number>(calls.length).fill(0);
        const outcomes: (number | RpcError)[] = [];
        calls.forEach((call, number) => {
          pair.clock.timer(call.startMs, () => {
            const controller = new AbortController();
            if (call.abortMs !== null) pair.clock.timer(call.abortMs, () => controller.abort());
            const options: ClientOptions = {
              timeoutMs: call.timeoutMs,
              ...(call.attemptTimeoutMs === null ? {} : { attemptTimeoutMs: call.attemptTimeoutMs }),
              retry: { attempts: call.attempts, baseDelayMs: 4, maxDelayMs: 40 },
              ...(call.hedge ? { hedge: { afterMs: 12, attempts: 3 } } : {}),
            };
            const client = pair.peer.client(Work, options);
            const settle = (outcome: number | RpcError) => {
              settled[number] = (settled[number] as number) + 1;
              outcomes[number] = outcome;
            };
            client[call.name as Name](number, { signal: controller.signal }).then(settle, settle);
          });
        });
        await pair.run(() => settled.every((times) => times === 1));
        // Whatever still travels must not settle anybody again.
        const untilMs = pair.clock.now() + 400;
        await pair.run(() => pair.clock.now() >= untilMs);
        expect(settled).toEqual(calls.map(() => 1));
        for (const [number, outcome] of outcomes.entries()) {
          const executed = executions[number] as number;
          if (calls[number]?.name !== "idempotent") expect(executed).toBeLessThanOrEqual(1);
          if (outcome instanceof RpcError) {
            if (outcome.notExecuted) expect(executed).toBe(0);
            expect(outcome.attempts ?? 2).toBeGreaterThan(1);
          } else {
            expect(outcome).toBe(number);
            expect(executed).toBeGreaterThan(0);
          }
        }
        const { callsStarted, callsSucceeded, callsFailed } = pair.client.host.counters;
        expect(callsSucceeded + callsFailed).toBe(callsStarted);
        expect([pair.client.host.wheel.size, pair.peer.retried.size]).toEqual([0, 0]);
        expect(pair.server.host.wheel.size).toBe(0);
        expect(pair.client.host.counters.malformed + pair.server.host.counters.malformed).toBe(0);
        pair.close();
      }),
      { numRuns: 300 },
    );
  });
});
