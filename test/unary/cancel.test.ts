import { getEventListeners } from "node:events";
import { implement, RpcError, type Schema, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { type Deferred, deferred, failure, fired, until, untilTurn } from "../matrix/wait.ts";

const Work = service("work.v1", { run: unary({ input: z.unknown(), output: z.unknown() }) });

/** A handler that tells of its signal and goes on only when let. */
class Worker {
  signal: AbortSignal | undefined;
  started = 0;
  readonly gate: Deferred<unknown> = deferred<unknown>();
  readonly implementation = implement(Work, {
    run: (_, call) => {
      this.started++;
      this.signal = call.signal;
      return this.gate.promise;
    },
  });
}

const large = 32 * 1024 * 1024;

describe.each(transports)("cancelling a call over $name", (provider) => {
  it("before it is made sends nothing", async () => {
    const worker = new Worker();
    const { api, server } = await pair(provider, [worker.implementation]);
    const reason = { why: "the user's own" };
    const error = await failure(api(Work).run(1, { signal: AbortSignal.abort(reason) }));
    expect(error).toMatchObject({
      code: "cancelled",
      origin: "local",
      retryable: false,
      method: "work.v1/run",
    });
    expect(error.cause).toBe(reason);
    expect(server.stats().counters.requestsStarted).toBe(0);
  });

  it("while its input is being checked sends nothing", async () => {
    const verdict = deferred<{ value: unknown }>();
    const waiting: Schema = {
      "~standard": { version: 1, vendor: "by hand", validate: () => verdict.promise },
    };
    const Waiting = service("work.v1", { run: unary({ input: waiting, output: z.unknown() }) });
    const worker = new Worker();
    const { api, server } = await pair(provider, [worker.implementation]);
    const controller = new AbortController();
    const call = failure(api(Waiting).run(1, { signal: controller.signal }));
    controller.abort("enough");
    expect(await call).toMatchObject({ code: "cancelled", cause: "enough" });
    verdict.resolve({ value: 1 });
    await new Promise(setImmediate);
    expect(server.stats().counters.requestsStarted).toBe(0);
  });

  it("while its handler runs rejects at once and fires the handler's signal", async () => {
    const worker = new Worker();
    const { api, client, server } = await pair(provider, [worker.implementation]);
    const controller = new AbortController();
    const call = failure(api(Work).run(1, { signal: controller.signal }));
    await until(() => worker.started === 1, "the handler runs");
    const signal = worker.signal as AbortSignal;
    expect(signal.aborted).toBe(false);
    const reason = new Error("the user's own");
    controller.abort(reason);
    const error = await call;
    expect(error).toMatchObject({ code: "cancelled", origin: "local" });
    expect(error.cause).toBe(reason);
    expect(error.callId).toBeGreaterThan(0);
    const told = await fired(signal);
    expect(told).toBeInstanceOf(RpcError);
    expect(told).toMatchObject({ code: "cancelled" });
    // The handler ignores it, and holds nobody.
    await until(() => client.stats().calls.out === 0 && server.stats().calls.in === 0, "both sides let go");
    expect(server.stats().counters.lateResults).toBe(0);
    worker.gate.resolve("late");
    await until(() => server.stats().counters.lateResults === 1, "the late result is counted");
    expect(client.stats().counters).toMatchObject({ callsSucceeded: 0, callsFailed: 1, lateAnswers: 0 });
  });

  it("counts a late failure as late, and does not report it", async () => {
    const worker = new Worker();
    const told: unknown[] = [];
    const { api, server } = await pair(provider, [worker.implementation], {
      server: { onHandlerError: (error) => told.push(error) },
    });
    const controller = new AbortController();
    const call = failure(api(Work).run(1, { signal: controller.signal }));
    await until(() => worker.started === 1, "the handler runs");
    controller.abort();
    await call;
    await until(() => server.stats().calls.in === 0, "the server lets go");
    worker.gate.reject(new Error("late"));
    await until(() => server.stats().counters.lateResults === 1, "counted");
    expect(told).toEqual([]);
  });

  it("by AbortSignal.timeout shows as deadline_exceeded", async () => {
    const worker = new Worker();
    const { api } = await pair(provider, [worker.implementation]);
    const error = await failure(api(Work).run(1, { signal: AbortSignal.timeout(20) }));
    expect(error).toMatchObject({ code: "deadline_exceeded", origin: "local" });
    expect(error.cause).toMatchObject({ name: "TimeoutError" });
    worker.gate.resolve(undefined);
  });

  it("while the answer is being pulled frees what was offered", async () => {
    const { api, client, server } = await pair(provider, [
      implement(Work, { run: () => new Uint8Array(large) }),
    ]);
    const controller = new AbortController();
    const call = failure(api(Work).run(1, { signal: controller.signal }));
    await untilTurn(() => client.stats().pullingBytes > 0, "the pull is under way");
    controller.abort();
    expect(await call).toMatchObject({ code: "cancelled" });
    await until(() => server.stats().ports.every(({ regions }) => regions === 0), "the body is let go");
    expect(client.stats().counters.bodiesPulled).toBe(0);
    // Over software devices the body takes some seconds.
    expect(await api(Work).run(1, { timeoutMs: 60_000 })).toHaveLength(large);
  });

  it("while the input is being pulled frees what was offered, and runs no handler", async () => {
    const worker = new Worker();
    const { api, client, server } = await pair(provider, [worker.implementation]);
    const controller = new AbortController();
    const call = failure(api(Work).run(new Uint8Array(large), { signal: controller.signal }));
    await untilTurn(() => server.stats().pullingBytes > 0, "the pull is under way");
    controller.abort();
    expect(await call).toMatchObject({ code: "cancelled" });
    await until(() => client.stats().ports.every(({ regions }) => regions === 0), "the body is let go");
    await until(() => server.stats().calls.in === 0, "the server lets go");
    expect(worker.started).toBe(0);
  });

  it("leaves no more than one listener on a signal that many calls share, and no warning", async () => {
    const warnings: unknown[] = [];
    const warn = (warning: unknown) => warnings.push(warning);
    process.on("warning", warn);
    const { api } = await pair(provider, [
      implement(Work, {
        run: (input) =>
          input === "throw" ? Promise.reject(new RpcError({ code: "aborted", message: "no" })) : input,
      }),
    ]);
    const { signal } = new AbortController();
    const { run } = api(Work);
    await Promise.all(Array.from({ length: 100 }, (_, index) => run(index, { signal })));
    await failure(run("throw", { signal }));
    await failure(run(() => {}, { signal }));
    expect(getEventListeners(signal, "abort").length).toBeLessThanOrEqual(1);
    await new Promise(setImmediate);
    process.off("warning", warn);
    expect(warnings).toEqual([]);
  });

  it("does not fire the signal of a call that has succeeded, not even when the peer goes", async () => {
    const worker = new Worker();
    const { api, client, server } = await pair(provider, [worker.implementation]);
    const call = api(Work).run(1);
    await until(() => worker.started === 1, "the handler runs");
    worker.gate.resolve("done");
    expect(await call).toBe("done");
    const signal = worker.signal as AbortSignal;
    await client.close();
    await until(() => server.stats().sessions === 0, "the server has seen the client go");
    expect(signal.aborted).toBe(false);
  });

  it("fires the handler's signal when the caller's engine closes", async () => {
    const worker = new Worker();
    const { api, client, server } = await pair(provider, [worker.implementation]);
    const call = failure(api(Work).run(1));
    await until(() => worker.started === 1, "the handler runs");
    await client.close();
    expect(await call).toMatchObject({ code: "unavailable" });
    expect(await fired(worker.signal as AbortSignal)).toMatchObject({ code: "unavailable" });
    worker.gate.resolve(undefined);
    await until(() => server.stats().counters.lateResults === 1, "the result goes nowhere");
  });

  it("of many at once takes each its own way", async () => {
    const gates = Array.from({ length: 200 }, () => deferred<number>());
    const { api, client } = await pair(provider, [
      implement(Work, { run: (index) => gates[index as number]?.promise }),
    ]);
    const controllers = gates.map(() => new AbortController());
    const calls = gates.map((_, index) =>
      api(Work).run.result(index, { signal: (controllers[index] as AbortController).signal }),
    );
    for (const [index, gate] of gates.entries()) {
      if (index % 3 === 0) controllers[index]?.abort();
      if (index % 2 === 0) gate.resolve(index);
    }
    for (const [index, gate] of gates.entries()) if (index % 2 !== 0) gate.resolve(index);
    const results = await Promise.all(calls);
    for (const [index, result] of results.entries()) {
      if (index % 3 === 0) expect(result).toMatchObject({ ok: false, error: { code: "cancelled" } });
      else expect(result).toEqual({ ok: true, value: index });
    }
    await until(() => client.stats().calls.out === 0, "every terminal frame has come");
  });
});
