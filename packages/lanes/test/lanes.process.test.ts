import { type Client, type ClientOptions, Engine, RpcError } from "cinnabar";
import { connectLanes, type LanesPeer, type LanesPeerOptions } from "cinnabar-lanes";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { Child, sharedFiles } from "../../../test/processes/support/child.ts";
import { anyFabrics, fabrics, freshName, freshUrl } from "../../../test/processes/support/fabrics.ts";
import { endAllPeers, openEngine, outcome, until } from "../../../test/processes/support/peers.ts";
import { observeGroup, staticAuthority } from "../../group/src/index.ts";
import { laneOfKey } from "../src/lane-of-key.ts";
import { Laned } from "./programs/laned.ts";
import type { LanesServerSettings } from "./programs/lanes-server.ts";

afterEach(endAllPeers);

interface Running {
  readonly server: Child;
  readonly url: string;
  readonly engine: Engine;
  readonly peer: LanesPeer;
  readonly api: Client<typeof Laned>;
}

async function startLanes(
  settings: LanesServerSettings,
  options: LanesPeerOptions = {},
  client: ClientOptions = {},
): Promise<Running> {
  const server = new Child("lanes-server", settings);
  const report = await Promise.race([server.report("listening"), server.report("failed")]);
  if (report.report === "failed") throw new Error(report.message);
  const url: string = report.urls[0];
  // A lost server that has gone for good is given up after so long. Under sanitizers the first connect to three threads
  // takes more than three seconds, and devices in software need longer.
  const engine = await openEngine(url.startsWith("verbs") ? {} : { connectTimeoutMs: 10_000 });
  const peer = await connectLanes(engine, url, options);
  const api = peer.client(Laned, { timeoutMs: 30_000, ...client });
  return { server, url, engine, peer, api };
}

const lanesOf = async (calls: readonly Promise<{ lane: number | "dispatcher" }>[]) =>
  (await Promise.all(calls)).map(({ lane }) => lane);

const keyFor = (lane: number, lanes: number): string => {
  for (let i = 0; ; i++) if (laneOfKey(`key-${i}`, lanes) === lane) return `key-${i}`;
};

/** Calls that name a key belong to its lane. */
const byKey: LanesPeerOptions = {
  keyOf: ({ input }) => (input as { readonly key?: string } | undefined)?.key,
};

const laneAt = (peer: LanesPeer, number: number) => peer.lanes.find(({ lane }) => lane === number);
const callsTo = (peer: LanesPeer) => peer.lanes.reduce((sum, { calls }) => sum + calls.out, 0);

describe.each(anyFabrics)("lanes over %s", (fabric) => {
  const listen = () => freshUrl(fabric);

  it("serve one client together, in threads of their own", async () => {
    const { server, peer, api } = await startLanes({ listen: listen(), lanes: 3 }, { policy: "roundRobin" });
    expect(peer.lanes.map(({ state }) => state)).toEqual(["connected", "connected", "connected"]);
    const places = await Promise.all(Array.from({ length: 30 }, () => api.where({})));
    expect(new Set(places.map(({ lane }) => lane))).toEqual(new Set([0, 1, 2]));
    expect(new Set(places.map(({ thread }) => thread)).size).toBe(3);
    expect(await server.ask("stats")).toEqual({
      // The stream by which the client follows the list of lanes.
      ...{ dispatcher: 1, sessions: 1, lanes: [10, 10, 10] },
      ...{ timed: [10, 10, 10], histograms: false },
    });
  });

  it("have a health each: a lane that says that it does not serve gets no calls", async () => {
    const { server, api } = await startLanes({ listen: listen(), lanes: 2 }, { policy: "roundRobin" });
    const { lane: resting } = await api.rest();
    const served = [];
    // It may get calls until the client knows that it rests.
    await until(async () => (await api.where({})).lane !== resting && (await api.where({})).lane !== resting);
    for (let call = 0; call < 6; call++) served.push((await api.where({})).lane);
    expect(new Set(served)).toEqual(new Set([1 - (resting as number)]));
    const health = (await server.ask("health")) as { readonly status: string }[];
    expect(health.map(({ status }) => status)).toEqual(
      [0, 1].map((lane) => (lane === resting ? "not_serving" : "serving")),
    );
  });

  it("are used beside each other: none waits for another that computes", async () => {
    const { api, peer } = await startLanes({ listen: listen(), lanes: 2 }, { policy: "leastInFlight" });
    // A call goes to a lane that is connected already, rather than wait for another.
    await until(() => peer.lanes.filter(({ state }) => state === "connected").length === 2);
    const computing = api.compute({ us: 300_000 });
    const { lane } = await api.where({});
    expect([0, 1]).toContain(lane);
    expect((await computing).lane).toBe(1 - (lane as number));
  });

  it("take a key's calls at its number, from every client", async () => {
    const { url, api } = await startLanes({ listen: listen(), lanes: 4 }, byKey);
    const other = (await connectLanes(await openEngine(), url, byKey)).client(Laned);
    for (let lane = 0; lane < 4; lane++) {
      const key = keyFor(lane, 4);
      const calls = [1, 2, 3].flatMap(() => [api.where({ key }), other.where({ key })]);
      expect(new Set(await lanesOf(calls))).toEqual(new Set([lane]));
    }
  });

  it("serve the clients that name them by their numbers, members of a group too", async () => {
    const { url, peer, engine } = await startLanes({ listen: listen(), lanes: 3 });
    const authority = staticAuthority([{ urls: [url], lanes: [url] }]);
    const group = await observeGroup("laned", { engine, authority });
    onTestFinished(() => group.close());
    for (const lane of [2, 0, 1])
      for (const isMember of [false, true]) {
        const options = { lane, timeoutMs: 30_000, retry: { attempts: 2 } };
        const api = isMember ? group.at(0).laneClient(Laned, options) : peer.client(Laned, options);
        expect(await lanesOf([1, 2, 3].map(() => api.where({})))).toEqual([lane, lane, lane]);
      }
    expect(await outcome(peer.client(Laned, { lane: 3 }).where({}))).toBe("failed_precondition");
  });

  it("that are one lane serve as one engine does", async () => {
    const { api } = await startLanes({ listen: listen(), lanes: 1 });
    expect(await lanesOf([api.where({}), api.where({ key: "a" })])).toEqual([0, 0]);
  });

  it("serve those who know no lanes at the published address", async () => {
    const { engine, url } = await startLanes({ listen: listen(), lanes: 2 });
    const api = (await engine.connect(url)).client(Laned);
    expect(await lanesOf([api.where({}), api.where({})])).toEqual(["dispatcher", "dispatcher"]);
  });

  it("refuse those by name where the dispatcher serves nothing", async () => {
    const { engine, url } = await startLanes({ listen: listen(), lanes: 1, dispatcher: "refer" });
    const api = (await engine.connect(url)).client(Laned);
    const error = await api.where({}).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ code: "unimplemented", message: expect.stringContaining("laned.v1") });
  });

  it("are backends of a balanced peer beside those of another server", async () => {
    const first = await startLanes({ listen: listen(), lanes: 2, dispatcher: "refer" });
    const second = await startLanes({ listen: listen(), lanes: 2, dispatcher: "refer" });
    const balanced = await connectLanes(first.engine, [first.url, second.url], { policy: "roundRobin" });
    await until(() => balanced.lanes.filter(({ state }) => state === "connected").length === 4);
    const api = balanced.client(Laned);
    const threads = await Promise.all(Array.from({ length: 40 }, () => api.where({})));
    expect(threads.every(({ lane }) => lane !== "dispatcher")).toBe(true);
    const counts = await Promise.all([first, second].map(({ server }) => server.ask("stats")));
    for (const { lanes } of counts as { lanes: number[] }[])
      expect(lanes.reduce((sum, calls) => sum + calls)).toBeGreaterThanOrEqual(10);
  });
});

describe.each(fabrics)("lanes over %s", (fabric) => {
  const listen = () => freshUrl(fabric);

  describe("of which one dies", () => {
    it.each([
      ["throw", 1, "on purpose"],
      ["exit", 3, undefined],
      ["memory", 1, expect.stringContaining("memory")],
    ] as const)(
      "by %s: its calls end, another takes its place at its address",
      async (how, exitCode, message) => {
        const { server, api, peer } = await startLanes(
          { listen: listen(), lanes: 2, heartbeatMs: 10_000, resourceLimits: { maxOldGenerationSizeMb: 64 } },
          byKey,
        );
        const urls = peer.lanes.map(({ url }) => url);
        const pinned = peer.client(Laned, { timeoutMs: 30_000 });
        const key = keyFor(1, 2);
        await pinned.where({ key });
        const held = [0, 1, 2, 3].map(() => outcome(api.once({ ms: 10_000_000 })));
        await until(() => callsTo(peer) === 4);
        const begun = performance.now();
        const inLane1 = laneAt(peer, 1)?.calls.out ?? 0;
        const dying = await killLane(peer, 1, how);
        expect(dying).toBe("unavailable");
        expect(await server.report("died")).toMatchObject({ lane: 1, exitCode, message, deaths: 1 });
        // By the dispatcher's word, not by the heartbeat's bound.
        if (how !== "memory") expect(performance.now() - begun).toBeLessThan(9000);
        const ended = held.slice(0);
        await until(() => laneAt(peer, 1)?.state === "connected" && laneAt(peer, 1)?.calls.out === 0);
        expect(await pinned.where({ key })).toMatchObject({ lane: 1 });
        expect(peer.lanes.map(({ url }) => url)).toEqual(urls);
        // The other lane's calls have not noticed.
        expect(laneAt(peer, 0)?.calls.out).toBe(4 - inLane1);
        peer.close();
        expect(new Set(await Promise.all(ended))).toEqual(new Set(["unavailable"]));
      },
    );

    it("ends what was under way as unavailable, and idempotent calls succeed by retry", async () => {
      const { server, api, peer } = await startLanes(
        { listen: listen(), lanes: 2, heartbeatMs: 10_000 },
        byKey,
        { retry: { attempts: 5 } },
      );
      const idempotent = Array.from({ length: 16 }, () => api.later({ ms: 800 }));
      const others = Array.from({ length: 16 }, () => outcome(api.once({ ms: 800 })));
      await until(() => callsTo(peer) === 32);
      await killLane(peer, 0, "exit");
      await server.report("died");
      for (const { lane } of await Promise.all(idempotent)) expect([0, 1]).toContain(lane);
      const codes = await Promise.all(others);
      expect(codes).toContain("unavailable");
      expect(new Set(codes)).toEqual(new Set(["answered", "unavailable"]));
    });

    it("while it writes into a client's memory: the memory comes back at once", async () => {
      const { server, engine, peer } = await startLanes(
        { listen: listen(), lanes: 1, heartbeatMs: 60_000 },
        byKey,
      );
      const api = peer.client(Laned, { timeoutMs: 60_000 });
      const memory = new Uint8Array(8 << 20);
      using region = engine.expose(memory, { access: "write" });
      const filling = outcome(api.fill({ into: region }));
      await until(() => memory[memory.length - 1] === 0xf1);
      await killLane(peer, 0, "exit");
      await server.report("died");
      expect(await filling).toBe("unavailable");
      await until(() => engine.stats().quarantinedBytes === 0);
      memory.fill(0);
      await until(() => laneAt(peer, 0)?.state === "connected");
      expect(await api.where({})).toMatchObject({ lane: 0 });
      expect(memory.every((byte) => byte === 0)).toBe(true);
    });

    it("again and again, under load, is replaced each time with a pause that grows, and nothing is left of it", async () => {
      const { server, engine, peer } = await startLanes(
        { listen: listen(), lanes: 2, restart: { baseDelayMs: 1, maxDelayMs: 60_000 } },
        byKey,
      );
      const descriptors = async () => (await server.ask<{ descriptors: number }>("footprint")).descriptors;
      const before = await descriptors();
      using region = engine.expose(new Uint8Array(1 << 20), { access: "write" });
      const loading = peer.client(Laned, { timeoutMs: 60_000 });
      let stopped = false;
      const ends = [0, 1, 2].map(async (i) => {
        for (; !stopped; await new Promise(setImmediate)) {
          const call = i === 0 ? loading.fill({ into: region }) : loading.later({ ms: 5 });
          expect(["answered", "unavailable"]).toContain(await outcome(call));
        }
      });
      const pauses: number[] = [];
      for (let round = 1; round <= 4; round++) {
        await until(() => laneAt(peer, 0)?.state === "connected");
        await killLane(peer, 0, "exit");
        const died = await server.report("died");
        expect(died).toMatchObject({ lane: 0, deaths: round });
        pauses.push(died.replacedInMs);
      }
      expect(pauses).toEqual([0, 1, 2, 4]);
      const api = peer.client(Laned, { timeoutMs: 30_000, retry: { attempts: 20 } });
      expect(await api.where({ key: keyFor(0, 2) })).toMatchObject({ lane: 0 });
      stopped = true;
      peer.close();
      await Promise.all(ends);
      await until(async () => (await descriptors()) <= before);
    });
  });

  it("drain together: what runs finishes, new calls are refused, nothing is left", async () => {
    const address = listen();
    const { server, api } = await startLanes({ listen: address, lanes: 2 }, { policy: "roundRobin" });
    const running = [1, 2, 3, 4].map(() => api.once({ ms: 500 }));
    await until(async () => {
      const { lanes } = await server.ask<{ lanes: number[] }>("stats");
      return lanes.every((calls) => calls === 2);
    });
    server.kill("SIGTERM");
    expect(await lanesOf(running)).toHaveLength(4);
    expect(await server.report("drained")).toMatchObject({ aborted: [] });
    expect(await outcome(api.where({}))).toBe("unavailable");
    expect(await server.ended, server.stderr).toBe(0);
    expect(server.stderr).toBe("");
    const names = address.startsWith("shm://") ? [address.slice("shm://".length)] : [];
    expect(sharedFiles(server.pid, ...names)).toEqual([]);
  });

  it("drain no longer than their grace, and say what was cut off", async () => {
    const { server, api } = await startLanes({ listen: listen(), lanes: 2 }, { policy: "roundRobin" });
    const held = [outcome(api.once({ ms: 1e6 })), outcome(api.once({ ms: 1e6 }))];
    await until(async () => {
      const { lanes } = await server.ask<{ lanes: number[] }>("stats");
      return lanes.every((calls) => calls === 1);
    });
    const { aborted, unanswered } = await server.ask<{ aborted: { method: string }[]; unanswered: number[] }>(
      "drain",
      50,
    );
    expect(aborted.map(({ method }) => method)).toEqual(["laned.v1/once", "laned.v1/once"]);
    expect(unanswered).toEqual([]);
    expect(await Promise.all(held)).toEqual(["unavailable", "unavailable"]);
    expect(await server.ask("closed")).toBe(3);
  });

  it("close in the middle of a drain, and end their modules once", async () => {
    const { server, api } = await startLanes({ listen: listen(), lanes: 2 }, { policy: "roundRobin" });
    const held = [outcome(api.once({ ms: 1e6 })), outcome(api.once({ ms: 1e6 }))];
    await until(async () => {
      const { lanes } = await server.ask<{ lanes: number[] }>("stats");
      return lanes.every((calls) => calls === 1);
    });
    expect(await server.ask("drainAndClose")).toBe(2);
    expect(await Promise.all(held)).toEqual(["unavailable", "unavailable"]);
    expect(await server.ask("closed")).toBe(3);
  });

  it("whose module cannot be loaded again are told of, and tried until it can", async () => {
    const { server, peer } = await startLanes(
      { listen: listen(), lanes: 1, restart: { baseDelayMs: 10, maxDelayMs: 50 } },
      { ...byKey, reconnect: { whileLost: "wait" } },
    );
    await server.ask("break", true);
    await killLane(peer, 0, "exit");
    for (const message of [undefined, "broken on purpose", "broken on purpose", "broken on purpose"]) {
      const died = await server.report("died");
      expect(died.message ?? "").toContain(message ?? "");
      expect(died.replacedInMs).toBeLessThanOrEqual(50);
    }
    const waiting = peer.client(Laned, { timeoutMs: 30_000 }).where({});
    await server.ask("break", false);
    expect(await waiting).toMatchObject({ lane: 0 });
  });

  it("close though one loops for ever", async () => {
    const { server, api, peer } = await startLanes({ listen: listen(), lanes: 2 }, byKey);
    const looping = outcome(api.loop());
    await until(() => callsTo(peer) === 1);
    // Begun: its lane answers nothing any more.
    await until(async () => {
      const { lanes } = await server.ask<{ lanes: (number | undefined)[] }>("stats");
      return lanes.includes(undefined);
    });
    await server.ask("close");
    expect((await server.ask<{ state: string }[]>("lanes")).map(({ state }) => state)).toEqual([
      "closed",
      "closed",
    ]);
    await server.ask("exit");
    expect(await server.ended, server.stderr).toBe(0);
    peer.close();
    expect(await looping).toBe("unavailable");
  });

  it("find their clients again when the whole process is another", async () => {
    const address = fabric === "shm" ? listen() : undefined;
    if (address === undefined) return;
    const { server, peer, api } = await startLanes(
      { listen: address, lanes: 2 },
      { reconnect: { whileLost: "wait" } },
    );
    await api.where({});
    await server.destroy();
    const again = new Child("lanes-server", { listen: address, lanes: 3 });
    await again.report("listening");
    await until(() => peer.lanes.filter(({ state }) => state === "connected").length === 3);
    expect((await api.where({})).lane).not.toBe("dispatcher");
  });
});

/** Lets the lane die, by a call to it, and gives what becomes of that call. */
function killLane(peer: LanesPeer, lane: number, how: "throw" | "exit" | "memory"): Promise<string> {
  return outcome(peer.client(Laned, { lane, timeoutMs: 30_000 }).die({ how }));
}

describe("openLanes", () => {
  const failure = async (settings: object) => {
    const child = new Child("lanes-server", settings);
    const report = await child.report("failed");
    expect(await child.ended, child.stderr).toBe(0);
    return report;
  };

  it.each<[string, object, string, RegExp]>([
    [
      "that is not there",
      { module: "./absent.js" },
      "failed_precondition",
      /absent\.js of .* could not be loaded/,
    ],
    [
      "without services",
      { module: "./lane-nothing.js" },
      "failed_precondition",
      /lane-nothing\.js of .* neither a default export/,
    ],
    [
      "that throws in one lane",
      { data: { failsIn: 1 } },
      "failed_precondition",
      /lane-service\.js of lane 1 failed to make its services: on purpose/,
    ],
    [
      "that never ends",
      { data: { hangsIn: 0 }, startTimeoutMs: 2000 },
      "deadline_exceeded",
      /lane 0 did not start to serve within 2000 ms: .*lane-service\.js/,
    ],
    [
      "that never ends at the dispatcher",
      { data: { hangsIn: "dispatcher" }, startTimeoutMs: 4000 },
      "deadline_exceeded",
      /the dispatcher did not start to serve within 4000 ms: .*lane-service\.js/,
    ],
  ])("names a module %s", async (_, options, code, message) => {
    const name = freshName();
    const report = await failure({ listen: `shm://${name}`, lanes: 2, ...options });
    expect(report).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(sharedFiles(name)).toEqual([]);
  });

  it("holds nothing when the published address is somebody else's", async () => {
    const name = freshName();
    await openEngine({ listen: `shm://${name}` });
    const report = await failure({ listen: `shm://${name}`, lanes: 2 });
    expect(report.code).toBe("already_exists");
    expect(sharedFiles(`${name}.lane0`)).toEqual([]);
  });

  it("listens at the ports it is told", async () => {
    // The system has just given it away as free, and gives it to nobody else so soon.
    const probe = await Engine.open({ listen: "tcp://127.0.0.1:0" });
    const first = Number(probe.urls[0]?.split(":").at(-1));
    await probe.close();
    const { server } = await startLanes({ listen: "tcp://127.0.0.1:0", lanes: 1, firstLanePort: first });
    expect(await server.ask("lanes")).toMatchObject([{ urls: [`tcp://127.0.0.1:${first}`] }]);
  });
});
