import { Engine, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { isLong } from "../matrix/long.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Work = service("work.v1", {
  /** Answers with how many were served before it. */
  count: unary({ input: z.number(), output: z.number() }),
  hold: unary({ input: z.unknown(), output: z.number() }),
  urgent: unary({ input: z.unknown(), output: z.number(), priority: "control" }),
});

function working(gate: Promise<unknown> = Promise.resolve()) {
  const served: unknown[] = [];
  const hold = async (input: unknown) => {
    const place = served.push(input);
    await gate;
    return place;
  };
  let counted = 0;
  return { served, implementation: implement(Work, { count: () => counted++, hold, urgent: hold }) };
}

describe.each(transports)("calls over $name, more than the peer takes at once", (provider) => {
  it("wait for their turn, and all succeed in the order they were made", async () => {
    const { implementation } = working();
    const { client, peer, api } = await pair(provider, [implementation], {
      server: { limits: { maxRequests: 7 } },
    });
    const work = api(Work);
    const places = await Promise.all(Array.from({ length: 500 }, (_, i) => work.count(i)));
    expect(places).toEqual(Array.from({ length: 500 }, (_, i) => i));
    expect(client.stats().counters).toMatchObject({ callsWaited: 493, callsNotAdmitted: 0 });
    expect(peer.stats()).toMatchObject({
      calls: { waiting: 0 },
      waitingBytes: 0,
      window: { limit: 7, credits: 7 },
    });
  });

  it("fail at once where they are not to wait, and say which window is full", async () => {
    const gate = deferred();
    const { implementation } = working(gate.promise);
    const { api, client } = await pair(provider, [implementation], {
      server: { limits: { maxRequests: 2 } },
    });
    const work = api(Work, { whenFull: "fail" });
    const held = [work.hold(1), work.hold(2)];
    const error = await failure(work.hold(3));
    expect(error).toMatchObject({ code: "resource_exhausted", notExecuted: true, origin: "local" });
    expect(error.message).toContain("its window of 2 (of 2 granted) is full");
    const waiting = work.hold(4, { whenFull: "wait" });
    gate.resolve();
    expect(await Promise.all([...held, waiting])).toEqual([1, 2, 3]);
    expect(client.stats().counters).toMatchObject({ callsWaited: 1, callsNotAdmitted: 1 });
  });

  it("can be cancelled and run out of time while they wait, which frees what they held", async () => {
    const gate = deferred();
    const { implementation, served } = working(gate.promise);
    const { api, client, peer } = await pair(provider, [implementation], {
      server: { limits: { maxRequests: 1 } },
    });
    const work = api(Work);
    const held = work.hold("held");
    const abort = new AbortController();
    const cancelled = failure(work.hold(new Uint8Array(10_000), { signal: abort.signal }));
    const late = failure(work.hold("x".repeat(5000), { timeoutMs: 20 }));
    expect(peer.stats()).toMatchObject({ calls: { out: 1, waiting: 2 }, waitingBytes: 15_032 });
    expect(client.calls().filter(({ phase }) => phase === "waiting")).toMatchObject([
      { method: "work.v1/hold", peer: peer.url, callId: 0 },
      { method: "work.v1/hold", peer: peer.url, callId: 0 },
    ]);
    abort.abort();
    expect(await cancelled).toMatchObject({ code: "cancelled", notExecuted: true });
    expect(peer.stats().waitingBytes).toBe(5016);
    expect(await late).toMatchObject({ code: "deadline_exceeded", notExecuted: true });
    expect(peer.stats()).toMatchObject({ calls: { waiting: 0 }, waitingBytes: 0 });
    gate.resolve();
    await held;
    expect(served).toEqual(["held"]);
  });

  it("leave by urgency: the call's, else the client's, else the method's", async () => {
    const gate = deferred();
    const { implementation, served } = working(gate.promise);
    const { api } = await pair(provider, [implementation], { server: { limits: { maxRequests: 1 } } });
    const [work, background] = [api(Work), api(Work, { priority: "normal" })];
    const all = [
      work.hold("first"),
      background.urgent("normal by its client"),
      work.hold("normal"),
      work.urgent("control by its method"),
      background.hold("control by its call", { priority: "control" }),
    ];
    gate.resolve();
    await Promise.all(all);
    expect(served).toEqual([
      "first",
      "control by its method",
      "control by its call",
      "normal by its client",
      "normal",
    ]);
  });

  it("have certainly not been executed when their peer is closed", async () => {
    const { implementation, served } = working(new Promise(() => {}));
    const { api, peer } = await pair(provider, [implementation], {
      server: { limits: { maxRequests: 1 } },
      endsHard: true,
    });
    const held = failure(api(Work).hold("held"));
    const waiting = failure(api(Work).hold("waiting"));
    await until(() => served.length === 1, "the first is served");
    peer.close();
    expect((await held).notExecuted).not.toBe(true);
    expect(await waiting).toMatchObject({ code: "unavailable", notExecuted: true });
  });

  it("ask for a session again where calls wait for a lost peer, alone and with retries", async () => {
    const { implementation, served } = working(new Promise(() => {}));
    const first = await openEngine(
      { listen: provider.freshUrl(), serve: [implementation], limits: { maxRequests: 1 } },
      true,
    );
    const url = first.urls[0] as string;
    const client = await openEngine({}, true);
    const peer = await client.connect(url, {
      reconnect: { whileLost: "wait", baseDelayMs: 1, maxDelayMs: 20 },
    });
    const work = peer.client(Work);
    const held = failure(work.hold("held"));
    const waiting = work.hold("alone");
    const retried = work.hold("with retries", { retry: { attempts: 2 } });
    await until(() => served.length === 1, "the first is served");
    await first.close();
    expect(await held).toMatchObject({ code: "unavailable" });
    const again = working();
    await openEngine({ listen: url, serve: [again.implementation] }, true);
    expect((await Promise.all([waiting, retried])).sort()).toEqual([1, 2]);
    expect(again.served.sort()).toEqual(["alone", "with retries"]);
    expect(client.stats().counters.retries).toBe(0);
  });

  // A hundred thousand take minutes on a device in a guest.
  const many = provider.carriesLargest && isLong ? 100_000 : 10_000;

  it(`neither overrun the server nor get lost, ${many} at once`, async () => {
    const { implementation } = working();
    const { api, client, server } = await pair(provider, [implementation]);
    const work = api(Work, { timeoutMs: 120_000 });
    let sum = 0;
    const calls: Promise<void>[] = [];
    for (let i = 0; i < many; i++) calls.push(work.count(i).then((place) => void (sum += place)));
    expect(client.stats()).toMatchObject({ calls: { out: 4096, waiting: many - 4096 } });
    await Promise.all(calls);
    expect(sum).toBe((many * (many - 1)) / 2);
    expect(server.stats().counters).toMatchObject({ requestsStarted: many, malformed: 0 });
  }, 120_000);
});

describe("the options of the window", () => {
  it.each([
    [{ window: { maxInFlight: 0 } }, "window.maxInFlight must be an integer from 1 to 1048576, it is 0"],
    [{ window: { maxWaiting: -1 } }, "window.maxWaiting must be an integer from 0 to 10000000, it is -1"],
    [{ window: { maxWaitingBytes: 1 } }, "window.maxWaitingBytes must be an integer from 1024"],
    [{ window: { adaptive: true } }, 'connect: unknown option "window.adaptive"'],
    [{ window: { width: 1 } }, 'connect: unknown option "window.width"'],
  ])("are checked: %j", async (options, message) => {
    await using engine = await Engine.open();
    await expect(engine.connect("mem://nobody", options as never)).rejects.toThrow(message);
    await expect(engine.connect(["mem://nobody"], options as never)).rejects.toThrow(message);
  });

  it("of calls and methods are checked", async () => {
    const [provider] = providers as [(typeof providers)[number]];
    const { api } = await pair(provider, [working().implementation]);
    expect(() => api(Work, { whenFull: "drop" } as never)).toThrow(
      'client: whenFull must be "wait" or "fail", it is "drop"',
    );
    expect(() => api(Work).count(1, { priority: "urgent" } as never)).toThrow(
      'call: priority must be "control" or "normal", it is "urgent"',
    );
    expect(() => unary({ priority: 1 } as never)).toThrow('unary: priority must be "control"');
  });
});
