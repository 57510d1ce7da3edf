import { type EngineOptions, implement, type Logger, RpcError, serverStream, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { type Provider, providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Work = service("work.v1", {
  run: unary({ input: z.enum(["well", "refused", "broken", "held"]), output: z.string(), idempotent: true }),
  items: serverStream({ output: z.int() }),
});
const gate = deferred();
const work = implement(Work, {
  async run(how) {
    if (how === "refused") throw new RpcError({ code: "not_found", message: "there is no such thing" });
    if (how === "broken") throw new Error("the handler's secret");
    if (how === "held") await gate.promise;
    return how;
  },
  items: async function* () {
    yield 1;
    throw new RpcError({ code: "data_loss", message: "the rest is lost" });
  },
});

/** A logger that keeps its lines. */
function lines() {
  const kept: { level: string; object: Record<string, unknown>; message: string }[] = [];
  const at = (level: string) => (object: object, message: string) =>
    void kept.push({ level, object: object as Record<string, unknown>, message });
  const logger: Logger = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  return { kept, logger };
}

const first = providers[0] as Provider;
const quiet: EngineOptions = { onHandlerError: () => {} };

describe.each(transports)("the logger over $name", (provider) => {
  it("has one line for each failed call, on each side, and none for others", async () => {
    const [atServer, atClient] = [lines(), lines()];
    const { api, peer } = await pair(provider, [work], {
      server: { ...quiet, logger: atServer.logger },
      client: { logger: atClient.logger },
    });
    await api(Work).run("well");
    await failure(api(Work).run("refused"));
    await failure(api(Work).run("broken"));
    await failure(api(Work, { retry: { attempts: 2, baseDelayMs: 1, codes: ["not_found"] } }).run("refused"));
    const stream = api(Work).items();
    const items: number[] = [];
    await failure(
      (async () => {
        for await (const item of stream) items.push(item);
      })(),
    );
    await until(() => atServer.kept.length === 5, "each attempt has a line at the server");
    const codes = (kept: typeof atServer.kept) => kept.map(({ level, object }) => [level, object.code]);
    expect(codes(atClient.kept)).toEqual([
      ["warn", "not_found"],
      ["error", "internal"],
      ["warn", "not_found"],
      ["error", "data_loss"],
    ]);
    expect(codes(atServer.kept)).toEqual([
      ["warn", "not_found"],
      ["error", "internal"],
      ["warn", "not_found"],
      ["warn", "not_found"],
      ["error", "data_loss"],
    ]);
    expect(atClient.kept[0]).toMatchObject({
      message: expect.stringMatching(/^call of work\.v1\/run failed with not_found after [\d.]+ ms$/),
      object: { direction: "out", method: "work.v1/run", peer: peer.url, error: "there is no such thing" },
    });
    expect(atServer.kept[0]).toMatchObject({
      message: expect.stringMatching(/^request for work\.v1\/run failed with not_found after/),
      object: { direction: "in", method: "work.v1/run", error: "there is no such thing" },
    });
    // What a handler threw is for `onHandlerError`.
    expect(JSON.stringify([...atServer.kept, ...atClient.kept])).not.toContain("secret");
  });
});

describe.each(transports)("the session and the trace of a line over $name", (provider) => {
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  const traceparent = `00-${traceId}-00f067aa0ba902b7-01`;
  const Front = service("front.v1", { run: unary({ output: z.string() }) });

  it("are the same on both sides, for calls of each kind, and for those that a handler makes", async () => {
    const [atServer, atClient] = [lines(), lines()];
    const front = implement(Front, { run: (_, call) => call.caller.client(Work).run("refused") });
    const { client, url } = await pair(provider, [work, front], {
      server: { ...quiet, logger: atServer.logger },
      client: { ...quiet, logger: atClient.logger },
    });
    const peer = await client.connect(url, { serve: [work], timeoutMs: provider.connectTimeoutMs });
    const [Calls, Nested] = [peer.client(Work), peer.client(Front)];
    const metadata = { traceparent };
    await failure(Calls.run("refused", { metadata }));
    await failure(
      peer
        .client(Work, { retry: { attempts: 2, baseDelayMs: 1, codes: ["not_found"] } })
        .run("refused", { metadata }),
    );
    await failure(Calls.items({ metadata }).toArray());
    await failure(Nested.run({ metadata }));
    await until(() => atServer.kept.length + atClient.kept.length === 11, "both ends of each are logged");
    for (const { object } of [...atServer.kept, ...atClient.kept]) {
      expect(object).toMatchObject({ traceId, session: atClient.kept[0]?.object.session });
      expect(object.session).toMatch(/^[0-9a-f]{12}$/);
    }
    const ends = (kept: typeof atServer.kept, direction: string) =>
      kept
        .map(({ object }) => object)
        .filter((object) => object.direction === direction && object.method !== "front.v1/run")
        .map(({ method, callId }) => `${method} ${callId}`);
    expect(ends(atServer.kept, "in")).toEqual(expect.arrayContaining(ends(atClient.kept, "out")));
    expect(ends(atServer.kept, "out")).toEqual(ends(atClient.kept, "in"));
  });

  it("are of the session that was lost, too", async () => {
    const [atServer, atClient] = [lines(), lines()];
    const held = implement(Work, {
      run: (_, call) => new Promise((_resolve, reject) => call.signal.addEventListener("abort", reject)),
      items: async function* () {},
    });
    const { api, server } = await pair(provider, [held], {
      server: { ...quiet, logger: atServer.logger },
      client: { logger: atClient.logger },
      endsHard: true,
    });
    const lost = failure(api(Work).run("held", { metadata: { traceparent } }));
    await until(() => server.calls().length === 1, "the handler runs");
    const { session } = server.calls()[0] as { session: string };
    await server.close();
    expect(await lost).toMatchObject({ code: "unavailable" });
    expect(atClient.kept.map(({ object }) => object)).toMatchObject([{ session, traceId }]);
  });
});

describe("the logger", () => {
  it("names no session before a request has left, and only traces of a valid traceparent", async () => {
    const { kept, logger } = lines();
    const { api } = await pair(first, [work], { client: { logger } });
    const trace = "0af7651916cd43dd8448eb211c80319c";
    await failure(
      api(Work).run("unknown" as never, { metadata: { traceparent: `00-${trace}-b7ad6b7169203331-00` } }),
    );
    expect(kept[0]?.object).toMatchObject({ session: "", callId: 0, traceId: trace });
    const traced = async (traceparent: string | string[]) => {
      await failure(api(Work).run("refused", { metadata: { traceparent } }));
      return kept.at(-1)?.object.traceId;
    };
    // A later version may append fields.
    expect(await traced(`cc-${trace}-b7ad6b7169203331-01-what-comes`)).toBe(trace);
    for (const invalid of [
      "",
      trace,
      `ff-${trace}-b7ad6b7169203331-01`,
      `00-${"0".repeat(32)}-b7ad6b7169203331-01`,
      `00-${trace}-${"0".repeat(16)}-01`,
      `00-${trace.toUpperCase()}-b7ad6b7169203331-01`,
      `00-${trace}-b7ad6b7169203331-01x`,
      `x00-${trace}-b7ad6b7169203331-01`,
    ])
      expect(await traced(invalid)).toBe(undefined);
    await failure(api(Work).run("refused"));
    expect(kept.at(-1)?.object).not.toHaveProperty("traceId");
  });

  it("has a line for a slow call, with its phases", async () => {
    const { kept, logger } = lines();
    const { api, server } = await pair(first, [work], { server: { logger, slowCallMs: 0 } });
    expect(await api(Work).run("well")).toBe("well");
    await until(() => kept.length === 1, "the call is logged");
    expect(kept[0]).toMatchObject({
      level: "warn",
      message: expect.stringMatching(/^request for work\.v1\/run took [\d.]+ ms$/),
      object: { code: "ok", phases: [{ phase: "serving" }] },
    });
    expect(server.stats().counters.requestsSucceeded).toBe(1);
  });

  it("says at another level that a caller gave up, and cannot end a call by throwing", async () => {
    const { kept, logger } = lines();
    const { api } = await pair(first, [work], {
      client: {
        logger: {
          ...logger,
          info(object, message) {
            logger.info(object, message);
            throw new Error("the disk is full");
          },
        },
      },
    });
    const giveUp = new AbortController();
    const held = failure(api(Work).run("held", { signal: giveUp.signal }));
    giveUp.abort();
    expect(await held).toMatchObject({ code: "cancelled" });
    expect(kept.map(({ level, object }) => [level, object.code])).toEqual([["info", "cancelled"]]);
    gate.resolve();
  });

  it("must have what a logger has", async () => {
    for (const logger of [null, 5, {}, { ...console, warn: undefined }])
      await expect(openEngine({ logger: logger as never })).rejects.toThrow(
        "logger must be a logger with debug, info, warn and error",
      );
    const { kept: _, logger } = lines();
    expect((await openEngine({ logger })).state).toBe("open");
  });
});

describe.each(transports)("latency by code over $name", (provider) => {
  it("tells successes from failures, and both add up", async () => {
    const { server, client, api } = await pair(provider, [work], { server: quiet });
    for (let i = 0; i < 3; i++) await api(Work).run("well");
    for (let i = 0; i < 2; i++) await failure(api(Work).run("refused"));
    await until(() => server.latency("work.v1/run", "in").count === 5, "all have ended");
    for (const [engine, direction] of [
      [server, "in"],
      [client, "out"],
    ] as const) {
      const of = (code?: "ok" | "not_found" | "internal") => engine.latency("work.v1/run", direction, code);
      expect([of().count, of("ok").count, of("not_found").count, of("internal").count]).toEqual([5, 3, 2, 0]);
      expect(of().max).toBe(Math.max(of("ok").max, of("not_found").max));
      const method = engine.stats().methods.find((each) => each.method === "work.v1/run");
      expect(method).toMatchObject({ succeeded: 3, failures: { not_found: 2 }, latencyMs: { count: 5 } });
      expect(method?.latencyMsByCode).toBe(undefined);
      const full = engine.stats({ histograms: true }).methods.find((each) => each.method === "work.v1/run");
      expect(full?.latencyMsByCode).toEqual({ ok: of("ok").toJSON(), not_found: of("not_found").toJSON() });
      expect(() => engine.stats({ histogram: true } as never)).toThrow("stats: unknown option");
    }
  });
});
