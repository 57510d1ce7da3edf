import { type ClientOptions, implement, RpcError, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { frameKind } from "../../src/wire/frame.ts";
import { isLong } from "../matrix/long.ts";
import { seeded } from "../matrix/random.ts";
import { type Fate, LossyPair } from "./support/lossy-fabric.ts";

const Ledger = service("ledger.v1", {
  book: unary({ input: z.int(), output: z.int(), replay: true }),
});

const patient: ClientOptions = {
  timeoutMs: 60_000,
  attemptTimeoutMs: 40,
  retry: { attempts: 100, baseDelayMs: 4, maxDelayMs: 16, budget: { ratio: 100, perSecond: 1e6 } },
};

const seed = Number(process.env.CINNABAR_SEED ?? Date.now() % 2 ** 31);

/** Executions by the number booked, and a handler that counts them; some end at once, some take their time. */
function ledger(random: () => number, pair: () => LossyPair) {
  const executions: number[] = [];
  const implementation = implement(Ledger, {
    book(number) {
      executions[number] = (executions[number] ?? 0) + 1;
      if (random() < 0.8) return number;
      return new Promise((resolve) => pair().clock.timer(1 + random() * 60, () => resolve(number)));
    },
  });
  return { executions, implementation };
}

/** The fates of messages that carry frames of this kind. */
function losing(random: () => number, kind: number, lost: number, broken: number) {
  return (kinds: readonly number[]): Fate => {
    // A connection that cannot be opened is another test's.
    if (!kinds.includes(kind) || kinds.some((each) => each <= frameKind.refuse)) return "arrives";
    const drawn = random();
    if (drawn < lost) return "lost";
    return drawn < lost + broken ? "lost with its session" : "arrives";
  };
}

/** Makes `count` calls, `width` at a time, and tells how each ended. */
async function book(pair: LossyPair, options: ClientOptions, count: number, width: number) {
  const { book } = pair.peer.client(Ledger, options);
  const outcomes: (number | RpcError)[] = new Array(count);
  let next = 0;
  let ended = 0;
  const worker = async () => {
    while (next < count) {
      const number = next++;
      try {
        outcomes[number] = await book(number);
      } catch (error) {
        outcomes[number] = error as RpcError;
      }
      ended++;
    }
  };
  for (let i = 0; i < width; i++) void worker();
  await pair.run(() => ended === count);
  return outcomes;
}

function expectNothingHeld(pair: LossyPair): void {
  expect(
    [pair.client.host.wheel.size, pair.connection.retried.size],
    "timers and calls of the client",
  ).toEqual([0, 0]);
  pair.breakSessions();
  expect([...pair.client.table, ...pair.server.table]).toEqual([]);
  pair.close();
  expect([pair.server.host.wheel.size, pair.server.replays.size], "executions").toEqual([0, 0]);
}

describe(`a method with replay (CINNABAR_SEED=${seed})`, () => {
  it("executes each call exactly once, whatever requests, answers and sessions are lost", async () => {
    const random = seeded(seed);
    const { executions, implementation } = ledger(random, () => pair);
    const pair: LossyPair = new LossyPair([implementation], { maxRequests: 2 ** 16 });
    pair.fates(losing(random, frameKind.request, 0.02, 0.01), losing(random, frameKind.response, 0.1, 0.02));
    const count = isLong ? 100_000 : 20_000;
    const outcomes = await book(pair, patient, count, 400);
    const wrong = outcomes.flatMap((outcome, number) =>
      outcome === number && executions[number] === 1
        ? []
        : [{ number, outcome, executed: executions[number] }],
    );
    expect(wrong.slice(0, 5), `seed ${seed}`).toEqual([]);
    expect(executions.length, `seed ${seed}`).toBe(count);
    expect(pair.server.host.counters.replays).toBeGreaterThan(count / 100);
    // With nothing else open, the next call says that all before it have their answers.
    await book(pair, patient, 1, 1);
    expect(pair.server.replays.size).toBe(1);
    expectNothingHeld(pair);
  });

  it("never executes one twice when the server is restarted or forgets, and says what it does not know", async () => {
    const random = seeded(seed + 1);
    const { executions, implementation } = ledger(random, () => pair);
    const pair: LossyPair = new LossyPair([implementation], {
      maxRequests: 2 ** 16,
      maxReplayCalls: 64,
      maxReplayBytes: 10_000,
      maxReplayMs: 30,
    });
    const answers = losing(random, frameKind.response, 0.2, 0.05);
    pair.fates(losing(random, frameKind.request, 0.05, 0.02), (kinds) => {
      if (random() < 0.005) setImmediate(() => pair.restart());
      return answers(kinds);
    });
    const outcomes = await book(pair, patient, 5000, 100);
    const codes: Record<string, number> = {};
    for (const [number, outcome] of outcomes.entries()) {
      const executed = executions[number] ?? 0;
      expect(executed, `call ${number}, seed ${seed}`).toBeLessThanOrEqual(1);
      if (outcome instanceof RpcError) {
        codes[outcome.code] = (codes[outcome.code] ?? 0) + 1;
        if (outcome.notExecuted) expect(executed, `call ${number}, seed ${seed}`).toBe(0);
        else expect(outcome.message, `seed ${seed}`).toContain("may have been executed");
      } else expect([outcome, executed], `seed ${seed}`).toEqual([number, 1]);
    }
    expect(Object.keys(codes).filter((code) => code !== "aborted")).toEqual([]);
    expect(codes.aborted, `seed ${seed}`).toBeGreaterThan(0);
    expectNothingHeld(pair);
  });
});
