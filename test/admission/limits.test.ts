import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Engine, RpcError } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { openEngine, pair } from "../matrix/pair.ts";
import { type Provider, providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";
import { waits } from "../matrix/waits.ts";
import { Held, Other, other, Work } from "./support/work.ts";

const mem = providers[0] as Provider;
const patient = { timeoutMs: 60_000 };
const names = (count: number, prefix = "call") => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

function queued(server: Engine, count: number): Promise<void> {
  return until(() => server.stats().admission.queued === count, `${count} wait`);
}

describe.each(transports)("admission over $name", (provider) => {
  it("runs no more handlers at once than maxConcurrent, and all in the end, in order", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work()], {
      server: { admission: { maxConcurrent: 3, ...waits } },
    });
    const work = api(Work, patient);
    const calls = names(20).map((name) => work.hold(name));
    await queued(server, 17);
    expect(held.running).toBe(3);
    expect(server.calls().map(({ phase }) => phase)).toEqual(
      expect.arrayContaining(["open", "open", "open", ...names(17).map(() => "queued")]),
    );
    held.endAll();
    expect(await Promise.all(calls)).toEqual(names(20));
    expect([held.most, held.began]).toEqual([3, names(20)]);
    expect(server.stats().admission).toMatchObject({ running: 0, queued: 0, queuedBytes: 0 });
  });

  it("lets no service wait for another that is full", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, ...waits }), other()], {
      server: { admission: { maxConcurrent: 2 } },
    });
    const work = api(Work, patient);
    const calls = names(10).map((name) => work.hold(name));
    await queued(server, 9);
    for (let i = 0; i < 5; i++) expect(await api(Other).ping()).toBe("pong");
    expect(held.most).toBe(1);
    held.endAll();
    await Promise.all(calls);
    expect(held.most).toBe(1);
  });

  it("refuses what finds no room to wait, as not executed, and says when to come again", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, maxQueued: 2, ...waits })]);
    const work = api(Work, patient);
    const calls = names(3).map((name) => work.hold(name));
    await queued(server, 2);
    const error = await failure(work.hold("too many"));
    expect(error).toMatchObject({
      code: "resource_exhausted",
      origin: "remote",
      notExecuted: true,
      retryable: true,
      retryAfterMs: expect.any(Number),
      message: expect.stringContaining('"work.v1" runs 1 handlers (maxConcurrent), and 2 requests'),
    });
    expect(error.retryAfterMs).toBeGreaterThan(0);
    expect(server.stats().admission.shed.full).toBe(1);
    held.endAll();
    await Promise.all(calls);
    expect(held.began).not.toContain("too many");
  });

  it("bounds what waits in bytes", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [
      held.work({ maxConcurrent: 1, maxQueuedBytes: 100_000, ...waits }),
    ]);
    const work = api(Work, patient);
    const long = (letter: string) => letter.repeat(40_000);
    const calls = ["a", "b", "c"].map((letter) => work.hold(letter === "a" ? letter : long(letter)));
    await queued(server, 2);
    expect(server.stats().admission.queuedBytes).toBeGreaterThan(80_000);
    expect(await failure(work.hold(long("d")))).toMatchObject({
      code: "resource_exhausted",
      notExecuted: true,
    });
    held.endAll();
    await Promise.all(calls);
  });

  it("ends what waits when it is cancelled or its time is up, and its room is free at once", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, maxQueued: 2, ...waits })]);
    const work = api(Work, patient);
    const first = work.hold("first");
    await until(() => held.running === 1, "it runs");
    const abort = new AbortController();
    const cancelled = failure(work.hold("cancelled", { signal: abort.signal }));
    await queued(server, 1);
    // Its deadline is the server's to tell: the caller's own clock must not be the first.
    const late = failure(work.hold("late", { timeoutMs: 50 }));
    abort.abort();
    expect(await cancelled).toMatchObject({ code: "cancelled" });
    expect(await late).toMatchObject({ code: "deadline_exceeded" });
    await until(() => server.stats().admission.queuedBytes === 0, "its bytes are free");
    const more = ["x", "y"].map((name) => work.hold(name));
    await queued(server, 2);
    held.endAll();
    await Promise.all([first, ...more]);
    expect(held.began).toEqual(["first", "x", "y"]);
  });

  it("gives the place of a handler that never ends to others, a second after its call", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, ...waits })]);
    const work = api(Work, patient);
    // Its request must have arrived by then, on a slow machine too.
    const stuck = failure(work.hold("stuck", { timeoutMs: 500 }));
    await until(() => held.running === 1, "it runs");
    const next = work.hold("next");
    expect(await stuck).toMatchObject({ code: "deadline_exceeded" });
    await until(() => held.began.includes("next"), "the place is free");
    expect(server.stats()).toMatchObject({ admission: { overdue: 1 } });
    held.endAll();
    expect(await next).toBe("next");
  });

  it("finishes what waits when it drains, and tells what the grace cuts off that it was not executed", async () => {
    const held = new Held();
    const { server, api } = await pair(provider, [held.work({ maxConcurrent: 1, ...waits })]);
    const calls = names(4).map((name) => api(Work, patient).hold(name));
    await queued(server, 3);
    const report = server.drain({ graceMs: 60_000 });
    held.endAll();
    expect(await Promise.all(calls)).toEqual(names(4));
    expect((await report).aborted).toEqual([]);

    const again = new Held();
    const other = await pair(provider, [again.work({ maxConcurrent: 1, ...waits })], { endsHard: true });
    const cut = names(3).map((name) => failure(other.api(Work, patient).hold(name)));
    await queued(other.server, 2);
    const { aborted } = await other.server.drain({ graceMs: 20 });
    expect(aborted.map(({ phase }) => phase).sort()).toEqual(["open", "queued", "queued"]);
    const errors = await Promise.all(cut);
    expect(errors.map(({ code, notExecuted }) => [code, notExecuted])).toEqual([
      ["unavailable", undefined],
      ["unavailable", true],
      ["unavailable", true],
    ]);
    expect(again.began).toEqual(["call0"]);
    again.endAll();
  });
});

describe("admission", () => {
  it("is retried by a client that waits as long as it is told, and no longer than it must", async () => {
    const held = new Held();
    const { server, api } = await pair(mem, [held.work({ maxConcurrent: 1, maxQueued: 0 })]);
    // What handlers take decides when a client is asked to come again.
    const work = api(Work, patient);
    const measured = work.hold("measured");
    await until(() => held.running === 1, "it runs");
    const beganMs = performance.now();
    await until(() => performance.now() - beganMs > 40, "it has taken its time");
    held.end("measured");
    await measured;
    const first = work.hold("first");
    await until(() => held.running === 1, "it runs");
    const told = (await failure(work.hold("probe"))).retryAfterMs as number;
    expect(told).toBeGreaterThanOrEqual(40);
    const retrying = api(Work, { ...patient, retry: { attempts: 20, baseDelayMs: 1, maxDelayMs: 1 } });
    const sentMs = performance.now();
    const second = retrying.hold("second");
    await until(() => server.stats().admission.shed.full >= 2, "it is refused");
    held.end("first");
    held.end("second");
    expect(await second).toBe("second");
    // Timers of a Node process may fire up to a millisecond early.
    expect(performance.now() - sentMs).toBeGreaterThanOrEqual(told - 2);
    await first;
  });

  it("lets replay calls that were refused be tried again, and executes them exactly once", async () => {
    const held = new Held();
    const { server, api } = await pair(mem, [held.work({ maxConcurrent: 2, maxQueued: 1, ...waits })]);
    const work = api(Work, {
      ...patient,
      retry: { attempts: 100, baseDelayMs: 1, maxDelayMs: 4, budget: { ratio: 100, perSecond: 1e6 } },
    });
    const calls = names(12).map((name) => work.book(name));
    await until(() => server.stats().admission.shed.full >= 9, "most are refused");
    // What has been refused holds nothing.
    await until(() => server.stats().replayCalls <= 3, "only what was let in is kept");
    held.endAll();
    expect(await Promise.all(calls)).toEqual(names(12));
    expect([...held.began].sort()).toEqual(names(12).sort());
    expect(held.most).toBe(2);
  });

  it("ends a replay call that waits when all who asked have cancelled", async () => {
    const held = new Held();
    const { server, api } = await pair(mem, [held.work({ maxConcurrent: 1, ...waits })]);
    const work = api(Work, { ...patient, retry: { attempts: 2 } });
    const first = work.book("first");
    await until(() => held.running === 1, "it runs");
    const abort = new AbortController();
    const second = failure(work.book("second", { signal: abort.signal }));
    await queued(server, 1);
    expect(server.calls().map(({ phase }) => phase)).toEqual(["open", "queued"]);
    abort.abort();
    expect(await second).toMatchObject({ code: "cancelled" });
    await until(() => server.stats().replayCalls === 1, "it is forgotten");
    await queued(server, 0);
    held.endAll();
    await first;
    expect(held.began).toEqual(["first"]);
  });

  it("lets what waits leave when its peer goes", async () => {
    const held = new Held();
    const { server, url, api } = await pair(mem, [held.work({ maxConcurrent: 1, ...waits })]);
    const first = api(Work, patient).hold("first");
    await until(() => held.running === 1, "it runs");
    const gone = await openEngine({}, true);
    const calls = names(5).map((name) =>
      failure(gone.connect(url).then((peer) => peer.client(Work).hold(name))),
    );
    await queued(server, 5);
    const stays = api(Work, patient).hold("stays");
    await queued(server, 6);
    await gone.close();
    await Promise.all(calls);
    await queued(server, 1);
    held.endAll();
    await Promise.all([first, stays]);
    expect(held.began).toEqual(["first", "stays"]);
  });

  it("holds against a peer that floods, and others are served meanwhile", async () => {
    const held = new Held();
    const { server, url, api } = await pair(mem, [
      held.work({ maxConcurrent: 4, maxQueued: 100, ...waits }),
      other(),
    ]);
    const flooder = await openEngine();
    const flood = (await flooder.connect(url)).client(Work, patient);
    const outcomes = names(4000).map((name) =>
      flood.hold(name).then(
        () => "served",
        (error: RpcError) => error.code,
      ),
    );
    for (let i = 0; i < 20; i++) {
      expect(await api(Other).ping()).toBe("pong");
      expect(server.stats().admission.queued).toBeLessThanOrEqual(100);
    }
    await until(() => server.stats().admission.shed.full > 3000, "most are refused");
    held.endAll();
    const ended = await Promise.all(outcomes);
    expect(new Set(ended)).toEqual(new Set(["served", "resource_exhausted"]));
    expect(held.most).toBe(4);
  });

  it("is as open as ever where no limit is set", async () => {
    const held = new Held();
    const { server, api } = await pair(mem, [held.work({})]);
    const calls = names(50).map((name) => api(Work, patient).hold(name));
    await until(() => held.running === 50, "all run");
    expect(server.stats().admission).toMatchObject({ running: 0, queued: 0 });
    held.endAll();
    await Promise.all(calls);
  });

  it("closes with a full queue, at once", async () => {
    const held = new Held();
    const { server, api } = await pair(mem, [held.work({ maxConcurrent: 1, ...waits })], { endsHard: true });
    const calls = names(500).map((name) => failure(api(Work, patient).hold(name)));
    await queued(server, 499);
    const gate = deferred();
    void server.close().then(() => gate.resolve());
    const errors = await Promise.all(calls);
    await gate.promise;
    expect(new Set(errors.map(({ code }) => code))).toEqual(new Set(["unavailable"]));
    expect(errors.filter(({ notExecuted }) => notExecuted)).toHaveLength(499);
    held.endAll();
  });
});

describe("a refusal", () => {
  it("is told on a channel, and a slow call's time in the line as a phase", async () => {
    const told: unknown[] = [];
    const slow: unknown[] = [];
    const listen = (channel: string, into: unknown[]) => {
      const listener = (message: unknown) => void into.push(message);
      subscribe(channel, listener);
      onTestFinished(() => void unsubscribe(channel, listener));
    };
    listen("cinnabar:call.shed", told);
    listen("cinnabar:call.slow", slow);
    const held = new Held();
    const { server, api } = await pair(mem, [held.work({ maxConcurrent: 1, maxQueued: 1, ...waits })], {
      server: { slowCallMs: 0 },
    });
    const work = api(Work, patient);
    const calls = names(2).map((name) => work.hold(name));
    await queued(server, 1);
    await failure(work.hold("too many"));
    expect(told).toMatchObject([
      { method: "work.v1/hold", priority: "normal", cause: "full", peer: expect.any(String) },
    ]);
    held.endAll();
    await Promise.all(calls);
    const phases = slow.map((call) =>
      (call as { phases: { phase: string }[] }).phases.map(({ phase }) => phase),
    );
    expect(phases).toContainEqual(["queued", "serving"]);
    expect(phases).toContainEqual(["serving"]);
  });
});
