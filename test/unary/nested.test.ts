import { type Engine, implement, type Peer, type RpcError, type Schema, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { currentCall } from "../../src/call/current-call.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { type providers, transports } from "../matrix/providers.ts";
import { deferred, failure, fired, until } from "../matrix/wait.ts";

const Inner = service("inner.v1", {
  left: unary({ output: z.number() }),
  wait: unary({ output: z.unknown() }),
});
const Outer = service("outer.v1", { run: unary({ output: z.unknown() }) });

type Call = Parameters<Parameters<typeof implement<typeof Outer>>[1]["run"]>[1];

/** A caller of a server that itself calls a third: what the middle does is the test's. */
async function chain(
  provider: (typeof providers)[number],
  run: (inner: ReturnType<typeof innerOf>, call: Call) => unknown,
) {
  const gate = deferred<unknown>();
  const inner: { signal?: AbortSignal; served: number } = { served: 0 };
  const last = await openEngine({
    listen: provider.freshUrl(),
    serve: [
      implement(Inner, {
        left: (_, call) => call.timeLeftMs,
        wait: (_, call) => {
          inner.served++;
          inner.signal = call.signal;
          return gate.promise;
        },
      }),
    ],
  });
  const middle = await openEngine();
  const peer = await middle.connect(last.urls[0] as string);
  const all = await pair(provider, [implement(Outer, { run: (_, call) => run(innerOf(peer), call) })]);
  return { ...all, middle, last, inner, gate, outer: all.api(Outer) };
}

function innerOf(peer: Peer) {
  return { inherits: peer.client(Inner), goesOn: peer.client(Inner, { inherit: false }), peer };
}

describe.each(transports)("a call made inside a handler over $name", (provider) => {
  it("has no more time than the call it is made for, however deep in the handler", async () => {
    const { outer } = await chain(provider, async ({ inherits }, call) => {
      await Promise.resolve();
      await new Promise(setImmediate);
      const own = await inherits.left({ timeoutMs: 300 });
      const longer = await inherits.left({ timeoutMs: 60_000 });
      return [own, longer, call.timeLeftMs];
    });
    const [own, longer] = (await outer.run({ timeoutMs: 8000 })) as number[];
    expect(own).toBeLessThanOrEqual(301);
    // Time left travels in whole milliseconds, rounded up at each of the two hops.
    expect(longer).toBeLessThanOrEqual(8002);
    expect(longer).toBeGreaterThan(2000);
  });

  it("has its own time when it says so, and so has one made outside of any", async () => {
    const { outer, api } = await chain(provider, async ({ goesOn, inherits }) => [
      await goesOn.left({ timeoutMs: 60_000 }),
      await inherits.left({ timeoutMs: 60_000, inherit: false }),
    ]);
    for (const left of (await outer.run({ timeoutMs: 8000 })) as number[])
      expect(left).toBeGreaterThan(30_000);
    expect(api).toBeDefined();
  });

  it("ends with deadline_exceeded when the other's time is up", async () => {
    const met = deferred<RpcError>();
    const { outer, inner, gate, middle } = await chain(provider, async ({ inherits }) => {
      const error = await failure(inherits.wait({ timeoutMs: 60_000 }));
      met.resolve(error);
      throw error;
    });
    // Both requests must have arrived by then, on a slow machine too.
    expect(await failure(outer.run({ timeoutMs: 500 }))).toMatchObject({
      code: "deadline_exceeded",
    });
    expect(await met.promise).toMatchObject({ method: "inner.v1/wait" });
    expect(["deadline_exceeded", "cancelled"]).toContain((await met.promise).code);
    await fired(inner.signal as AbortSignal);
    await until(() => middle.stats().calls.out === 0, "the inner call is over");
    gate.resolve(undefined);
  });

  it("is cancelled with the other, with retries as without", async () => {
    for (const retry of [false, { attempts: 3 }] as const) {
      const met = deferred<RpcError>();
      const { outer, inner, gate } = await chain(provider, async ({ inherits }) => {
        met.resolve(await failure(inherits.wait({ retry })));
      });
      const controller = new AbortController();
      const call = failure(outer.run({ signal: controller.signal }));
      await until(() => inner.served === 1, "the inner call is served");
      controller.abort();
      expect(await call).toMatchObject({ code: "cancelled" });
      expect(await met.promise).toMatchObject({ code: "cancelled", method: "inner.v1/wait" });
      expect((await met.promise).cause).toMatchObject({
        code: "cancelled",
        message: "[cancelled] the caller gave up",
      });
      await fired(inner.signal as AbortSignal);
      gate.resolve(undefined);
    }
  });

  it("tells the caller of the other no address when it fails, and the operator all", async () => {
    const url = provider.freshUrl().replace(/:0$/, ":1");
    const told: unknown[] = [];
    const middle = await openEngine({
      listen: provider.freshUrl(),
      serve: (engine) => {
        const inner = engine.lazyPeer(url).client(Inner);
        return [implement(Outer, { run: () => inner.left({ timeoutMs: 60_000 }) })];
      },
      onHandlerError: (error) => void told.push(error),
    });
    const first = await openEngine();
    const outer = (await first.connect(middle.urls[0] as string)).client(Outer);
    // Over verbs a peer that is not there is known by its silence, after the 5 s that connecting may take.
    const error = await failure(outer.run({ timeoutMs: 60_000 }));
    expect(error).toMatchObject({ code: "unavailable", origin: "remote" });
    expect(error.message).toContain("(address)");
    expect(error.message).not.toContain(url);
    expect(told).toEqual([expect.objectContaining({ method: "inner.v1/left", code: "unavailable" })]);
    expect((told[0] as RpcError).message).toContain(url);
  });

  it("is not made at all when the other has been cancelled", async () => {
    const met = deferred<RpcError>();
    const { outer, inner } = await chain(provider, async ({ inherits }, call) => {
      await fired(call.signal);
      met.resolve(await failure(inherits.wait()));
    });
    // Its request must have arrived by then, on a slow machine too.
    const call = failure(outer.run({ timeoutMs: 500 }));
    await call;
    expect(await met.promise).toMatchObject({ notExecuted: true });
    expect(inner.served).toBe(0);
  });

  it("is nobody's when the handler has answered: it goes on by itself", async () => {
    const later = deferred<unknown>();
    const answered = deferred();
    const { outer } = await chain(provider, ({ inherits }) => {
      void answered.promise.then(async () => later.resolve(await inherits.left({ timeoutMs: 60_000 })));
      return "early";
    });
    expect(await outer.run({ timeoutMs: 5000 })).toBe("early");
    answered.resolve();
    expect(await later.promise).toBeGreaterThan(30_000);
  });

  it("does not leave its handler's call behind in the turns of the engine that it sets off", async () => {
    const around: unknown[] = [];
    const watching: Schema = {
      "~standard": {
        version: 1,
        vendor: "by hand",
        validate: (value) => {
          around.push(currentCall());
          return { value };
        },
      },
    };
    const Watched = service("watched.v1", { run: unary({ input: watching, output: z.unknown() }) });
    const gate = deferred<unknown>();
    let peer: Peer | undefined;
    const last = await openEngine({
      listen: provider.freshUrl(),
      serve: [implement(Inner, { left: () => 1, wait: () => gate.promise })],
    });
    const middle: Engine = await openEngine({
      listen: provider.freshUrl(),
      serve: [
        implement(Watched, {
          // Made at once, in the turn that the request came in: the next turn is set off from here.
          run: (input) => (input === "calls" ? peer?.client(Inner).wait() : undefined),
        }),
      ],
    });
    peer = await middle.connect(last.urls[0] as string);
    const first = await openEngine();
    const { run } = (await first.connect(middle.urls[0] as string)).client(Watched);
    const waiting = run("calls");
    // Without a pause, in which the engine would fall asleep and wake in nobody's call.
    for (let i = 0; i < 20; i++) await run(i);
    gate.resolve(undefined);
    await waiting;
    // The caller's check runs in nobody's call either.
    expect(around).toEqual(new Array(around.length).fill(undefined));
    expect(around.length).toBeGreaterThan(40);
  });
});
