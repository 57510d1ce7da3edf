import { implement, oneWay, RpcError, service, unary } from "cinnabar";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";
import { waits } from "../matrix/waits.ts";

const Metrics = service("metrics.v1", {
  count: oneWay({ input: z.object({ by: z.number() }) }),
  note: oneWay({ input: z.unknown() }),
  total: unary({ output: z.number() }),
});

function counting() {
  let total = 0;
  const gate = deferred();
  const implementation = implement(Metrics, {
    count: ({ by }) => {
      if (by < 0) throw new Error("less than nothing");
      total += by;
    },
    note: () => gate.promise,
    total: () => total,
  });
  return { implementation, gate };
}

describe.each(transports)("one-way calls over $name", (provider) => {
  it("are executed once each, in order with the calls behind them", async () => {
    const { implementation } = counting();
    const { api, client, server } = await pair(provider, [implementation]);
    const metrics = api(Metrics);
    for (let i = 0; i < 500; i++) await metrics.count({ by: 1 });
    await Promise.all(Array.from({ length: 500 }, () => metrics.count({ by: 1 })));
    await until(() => server.stats().counters.requestsSucceeded === 1000, "all calls");
    expect(await metrics.total()).toBe(1000);
    await until(() => client.stats().calls.out === 0, "all places free");
    expect(client.stats().counters).toMatchObject({ callsStarted: 1001, callsSucceeded: 1001 });
  });

  it("tell nobody but the server of a handler that fails", async () => {
    const { implementation } = counting();
    const told: unknown[] = [];
    const onHandlerError = (error: unknown, call: { readonly method: string }) =>
      told.push([(error as Error).message, call.method]);
    const { api, server, client } = await pair(provider, [implementation], { server: { onHandlerError } });
    await api(Metrics).count({ by: -1 });
    await until(() => told.length === 1, "what the server was told");
    expect(told).toEqual([["less than nothing", "metrics.v1/count"]]);
    await until(() => server.stats().counters.requestsFailed === 1, "the count");
    await until(() => client.stats().calls.out === 0, "the free place");
    expect(client.stats().counters.callsFailed).toBe(0);
  });

  it("fail for their caller while they have not left", async () => {
    const { implementation } = counting();
    const { api, client } = await pair(provider, [implementation]);
    const metrics = api(Metrics);
    expect(await failure(metrics.count({ by: "x" as unknown as number }))).toMatchObject({
      code: "invalid_argument",
      notExecuted: true,
    });
    using region = client.expose(new Uint8Array(8), { access: "read" });
    const error = await failure(metrics.note(region));
    expect(error).toMatchObject({ code: "invalid_argument", notExecuted: true });
    expect(error.message).toContain("one-way");
    expect(await failure(metrics.count({ by: 1 }, { signal: AbortSignal.abort() }))).toMatchObject({
      code: "cancelled",
      notExecuted: true,
    });
  });

  it("settle each for itself, where a getter of the input gives one up and makes another", async () => {
    const { implementation, gate } = counting();
    const { api, client, server } = await pair(provider, [implementation]);
    const metrics = api(Metrics);
    await metrics.count({ by: 1 });
    const controller = new AbortController();
    const inner: Promise<void>[] = [];
    const input = {
      get by() {
        controller.abort("given up");
        inner.push(metrics.count({ by: "x" as unknown as number }));
        return 1;
      },
    };
    const outer = failure(metrics.note(input, { signal: controller.signal }));
    expect(await failure(inner[0] as Promise<void>)).toMatchObject({ code: "invalid_argument" });
    expect(await outer).toMatchObject({ code: "cancelled", cause: "given up" });
    gate.resolve();
    await until(() => client.stats().calls.out === 0, "all places free");
    expect(server.stats().counters.requestsFailed).toBe(0);
  });

  it("wait for the window like every call, and fail when they may not", async () => {
    const { implementation, gate } = counting();
    const { api, server } = await pair(provider, [implementation], {
      server: { limits: { maxRequests: 4 } },
    });
    const metrics = api(Metrics);
    const sent = Array.from({ length: 10 }, (_, i) => metrics.note(i));
    await until(() => server.stats().calls.in === 4, "as many as the server takes");
    expect(await failure(metrics.note("now", { whenFull: "fail" }))).toMatchObject({
      code: "resource_exhausted",
    });
    gate.resolve();
    await Promise.all(sent);
    await until(() => server.stats().counters.requestsSucceeded === 10, "all calls");
  });

  it("print one line of a kind and no more when a client with many of them is gone", async () => {
    const printed = vi.spyOn(console, "error").mockImplementation(() => {});
    const { implementation, gate } = counting();
    const { api, client, server } = await pair(provider, [implementation], { endsHard: true });
    const metrics = api(Metrics);
    const sent = Array.from({ length: 400 }, (_, i) => metrics.note(i));
    await Promise.all(sent);
    await until(() => server.stats().calls.in === 400, "all of them");
    await client.close();
    await until(() => server.stats().calls.in === 0, "the end of all");
    await server.close();
    gate.resolve();
    // The first of a kind, and its repetitions once a second; a slow machine takes some seconds.
    expect(printed.mock.calls.length).toBeLessThan(20);
  });

  it("are shed and told of where admission has no room", async () => {
    const { implementation, gate } = counting();
    const told: RpcError[] = [];
    const began: boolean[] = [];
    const { api, server } = await pair(provider, [implementation], {
      server: {
        admission: { maxConcurrent: 1, maxQueued: 2, ...waits },
        onHandlerError: (error, call) => {
          told.push(error as RpcError);
          began.push(call.began);
        },
      },
    });
    const metrics = api(Metrics);
    for (let i = 0; i < 8; i++) await metrics.note(i);
    await until(() => told.length === 5, "those that were shed");
    for (const error of told) {
      expect(error).toBeInstanceOf(RpcError);
      expect(error.code).toBe("resource_exhausted");
    }
    expect(began).toEqual([false, false, false, false, false]);
    expect(server.stats().admission.shed.full).toBe(5);
    gate.resolve();
    await until(() => server.stats().counters.requestsSucceeded === 3, "the others");
  });
});
