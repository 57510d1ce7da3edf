import { implement, type RpcError, type Schema, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { blockFor, deferred, failure, fired, until, untilTurn } from "../matrix/wait.ts";

const Time = service("time.v1", {
  left: unary({ output: z.number() }),
  short: unary({ output: z.number(), timeoutMs: 3000 }),
  wait: unary({ input: z.unknown(), output: z.unknown() }),
});

type Wait = Parameters<typeof implement<typeof Time>>[1]["wait"];
const timing = (wait: Wait) =>
  implement(Time, { left: (_, call) => call.timeLeftMs, short: (_, call) => call.timeLeftMs, wait });

const never = () => new Promise<never>(() => {});
const large = 32 * 1024 * 1024;

/**
 * What a call fails with whose time is up while its body is being pulled. It gets no more time than a pull needs to
 * begin, which depends on the machine: software devices take long to register as much memory.
 */
async function overdueWhilePulled(
  call: (timeoutMs: number) => Promise<unknown>,
  isPulling: () => boolean,
): Promise<RpcError> {
  for (let timeoutMs = 200; ; timeoutMs *= 2) {
    let isOver = false;
    const error = failure(call(timeoutMs)).finally(() => {
      isOver = true;
    });
    await untilTurn(() => isOver || isPulling(), "the pull is under way");
    if (isOver) continue;
    blockFor(timeoutMs + 50);
    return error;
  }
}

describe.each(transports)("a deadline over $name", (provider) => {
  it("is ten seconds by default; the method's, the client's and the call's word come before it, the last one last", async () => {
    const { api } = await pair(provider, [timing(never)]);
    const between = (value: number, low: number, high: number) => {
      expect(value).toBeGreaterThan(low);
      // Time left travels in whole milliseconds, rounded up.
      expect(value).toBeLessThanOrEqual(high + 1);
    };
    // The lower bounds leave seconds for a machine under load.
    between(await api(Time).left(), 5000, 10_000);
    between(await api(Time).short(), 100, 3000);
    const client = api(Time, { timeoutMs: 60_000 });
    between(await client.left(), 30_000, 60_000);
    between(await client.short(), 30_000, 60_000);
    between(await client.left({ timeoutMs: 600_000 }), 500_000, 600_000);
    between(await client.short({ timeoutMs: 2_147_483_647 }), 2_147_000_000, 2_147_483_647);
  });

  it("ends a call whose handler runs on, at both sides", async () => {
    let left = Number.NaN;
    const signals: AbortSignal[] = [];
    const gate = deferred();
    const { api, client, server } = await pair(provider, [
      timing(async (_, call) => {
        signals.push(call.signal);
        await fired(call.signal);
        left = call.timeLeftMs;
        await gate.promise;
      }),
    ]);
    const started = performance.now();
    // The handler must have started by then, on a slow machine too.
    const error = await failure(api(Time).wait(1, { timeoutMs: 400 }));
    expect(performance.now() - started).toBeGreaterThanOrEqual(399);
    expect(error).toMatchObject({
      code: "deadline_exceeded",
      retryable: false,
      method: "time.v1/wait",
    });
    // Both sides run a clock. On a busy machine the server's verdict may arrive before the caller's own timer has
    // fired.
    if (error.origin === "local") expect(error.message).toContain("400 ms");
    else expect(error.origin).toBe("remote");
    // Whichever comes first at the server: its own deadline, or the caller's cancel.
    expect(["deadline_exceeded", "cancelled"]).toContain(
      ((await fired(signals[0] as AbortSignal)) as { code: string }).code,
    );
    await until(() => !Number.isNaN(left), "the handler has seen it");
    expect(left).toBeLessThanOrEqual(400);
    await until(() => client.stats().calls.out === 0 && server.stats().calls.in === 0, "both sides let go");
    gate.resolve();
    await until(() => server.stats().counters.lateResults === 1, "the late result is counted");
  });

  it("is kept by the server alone too, when the caller cannot say that it is over", async () => {
    let signal: AbortSignal | undefined;
    const gate = deferred();
    const { api } = await pair(provider, [
      timing(async (_, call) => {
        signal = call.signal;
        await gate.promise;
        return call.timeLeftMs;
      }),
    ]);
    const call = failure(api(Time).wait(1, { timeoutMs: 400 }));
    await untilTurn(() => signal !== undefined, "the handler runs");
    // Both deadlines are overdue when the loop goes on; the server must not need the cancel.
    blockFor(450);
    expect(await call).toMatchObject({ code: "deadline_exceeded" });
    expect(await fired(signal as AbortSignal)).toBeDefined();
    gate.resolve();
  });

  it("ends a call that waits for its input's check, and nothing is sent later", async () => {
    const verdict = deferred<{ value: unknown }>();
    const waiting: Schema = {
      "~standard": { version: 1, vendor: "by hand", validate: () => verdict.promise },
    };
    const Waiting = service("time.v1", { wait: unary({ input: waiting, output: z.unknown() }) });
    const { api, server } = await pair(provider, [timing(never)]);
    const error = await failure(api(Waiting).wait(1, { timeoutMs: 20 }));
    expect(error).toMatchObject({ code: "deadline_exceeded" });
    expect(error.message).toContain("before it could be sent");
    verdict.resolve({ value: 1 });
    await new Promise(setImmediate);
    expect(server.stats().counters.requestsStarted).toBe(0);
  });

  it("ends a call whose output is being checked", async () => {
    const verdict = deferred<{ value: unknown }>();
    const waiting: Schema = {
      "~standard": { version: 1, vendor: "by hand", validate: () => verdict.promise },
    };
    const Waiting = service("time.v1", { wait: unary({ input: z.unknown(), output: waiting }) });
    const { api, client } = await pair(provider, [timing((input) => input)]);
    expect(await failure(api(Waiting).wait(1, { timeoutMs: 30 }))).toMatchObject({
      code: "deadline_exceeded",
    });
    verdict.resolve({ value: 1 });
    await new Promise(setImmediate);
    expect(client.stats().counters).toMatchObject({ callsSucceeded: 0, callsFailed: 1 });
  });

  it("keeps a handler from starting when the server's check of the input took all the time", async () => {
    const verdict = deferred<{ value: unknown }>();
    const waiting: Schema = {
      "~standard": { version: 1, vendor: "by hand", validate: () => verdict.promise },
    };
    const Waiting = service("time.v1", { wait: unary({ input: waiting, output: z.unknown() }) });
    let runs = 0;
    const { api, server } = await pair(provider, [implement(Waiting, { wait: () => runs++ })]);
    // Its request must have arrived by then, on a slow machine too.
    expect(await failure(api(Time).wait(1, { timeoutMs: 400 }))).toMatchObject({ code: "deadline_exceeded" });
    await until(() => server.stats().counters.requestsFailed === 1, "the server has begun it, and lets go");
    verdict.resolve({ value: 1 });
    await new Promise(setImmediate);
    expect(runs).toBe(0);
  });

  it("ends a call while its answer is being pulled", async () => {
    const { api, client, server } = await pair(provider, [timing(() => new Uint8Array(large))]);
    const error = await overdueWhilePulled(
      (timeoutMs) => api(Time).wait(1, { timeoutMs }),
      () => client.stats().pullingBytes > 0,
    );
    expect(error).toMatchObject({ code: "deadline_exceeded" });
    await until(() => server.stats().ports.every(({ regions }) => regions === 0), "the body is let go");
    // A device in software moves few megabytes a second.
    expect(await api(Time).wait(1, { timeoutMs: 60_000 })).toHaveLength(large);
  });

  it("ends a call while its input is being pulled", async () => {
    let runs = 0;
    const { api, server, client } = await pair(provider, [timing(() => runs++)]);
    const error = await overdueWhilePulled(
      (timeoutMs) => api(Time).wait(new Uint8Array(large), { timeoutMs }),
      () => server.stats().pullingBytes > 0,
    );
    expect(error).toMatchObject({ code: "deadline_exceeded" });
    await until(() => client.stats().ports.every(({ regions }) => regions === 0), "the body is let go");
    expect(runs).toBe(0);
  });

  it("of thousands of calls costs one timer and leaves none", async () => {
    const { api, client, server } = await pair(provider, [timing(never)]);
    const calls = Array.from({ length: 2000 }, (_, index) =>
      api(Time).wait.result(index, { timeoutMs: 30 + (index % 50) }),
    );
    expect(client.stats().deadlines).toBe(2000);
    const codes = new Set((await Promise.all(calls)).map((result) => (result.ok ? "ok" : result.error.code)));
    expect(codes).toEqual(new Set(["deadline_exceeded"]));
    await until(
      () => client.stats().deadlines === 0 && server.stats().deadlines === 0,
      "no deadline is armed",
    );
  });
});
