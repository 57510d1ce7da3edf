import { type Client, type Engine, implement, RpcError, service, unary } from "cinnabar";
import { connectLanes, type LanesPeer, type LanesPeerOptions, lazyLanes } from "cinnabar-lanes";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { expectAtRest } from "../../../test/matrix/at-rest.ts";
import { openEngine } from "../../../test/matrix/pair.ts";
import { type Provider, providers } from "../../../test/matrix/providers.ts";
import { deferred, failure, until } from "../../../test/matrix/wait.ts";
import { LaneList } from "../src/lane-list.ts";
import { laneOfKey } from "../src/lane-of-key.ts";
import type { ListedLane } from "../src/lanes-service.ts";

const Who = service("who.v1", {
  name: unary({ input: z.object({ key: z.string().optional() }), output: z.string() }),
  hold: unary(),
});

const mem = providers[0] as Provider;
const never = deferred();
const lists = new WeakMap<Engine, LaneList>();

function open(name: string, listen: string): Promise<Engine> {
  const who = implement(Who, { name: () => name, hold: () => never.promise });
  return openEngine({ listen, serve: [who] }, true);
}

/** A server that lists lanes, as `openLanes` makes one. */
async function openDispatcher(listen: string): Promise<Engine> {
  const list = new LaneList();
  const dispatcher = await open("dispatcher", listen);
  dispatcher.serve(list.implementation);
  lists.set(dispatcher, list);
  return dispatcher;
}

function announceLanes(dispatcher: Engine, lanes: readonly ListedLane[]): void {
  lists.get(dispatcher)?.post({ urls: dispatcher.urls, lanes });
}

const entryOf = ({ urls, incarnation }: Engine) => ({ urls, incarnation });
const nobodyAt = (urls: readonly string[]) => ({ urls, incarnation: 0n });
/** An engine that is listed, and does not answer there. */
const silentAt = (urls: readonly string[]) => ({ urls, incarnation: 7n });

/** A dispatcher and its lanes, engines of this thread: what a peer does with them is no matter of threads. */
async function lanesOver(provider: Provider, count: number, options: LanesPeerOptions = {}) {
  const dispatcher = await openDispatcher(provider.freshUrl());
  const lanes: Engine[] = [];
  for (let i = 0; i < count; i++) lanes.push(await open(`${i}`, provider.freshUrl()));
  announceLanes(dispatcher, lanes.map(entryOf));
  const client = await openEngine({ connectTimeoutMs: 3000 }, true);
  const url = dispatcher.urls[0] as string;
  const peer = await connectLanes(client, url, options);
  return { dispatcher, lanes, client, url, peer, who: peer.client(Who) };
}

const statesOf = (peer: LanesPeer) => peer.lanes.map(({ state }) => state);
const openCalls = (peer: LanesPeer) => peer.lanes.reduce((sum, { calls }) => sum + calls.out, 0);
/** Nothing is left when the peer is closed: until then it follows the list of lanes by a stream. */
async function expectNothing(peer: LanesPeer, client: Engine): Promise<void> {
  peer.close();
  await expectAtRest(client);
}
const byKey: LanesPeerOptions = {
  keyOf: ({ input }) => (input as { key?: string } | undefined)?.key,
};
const keysOf = (lane: number, lanes: number, count: number) =>
  Array.from({ length: 1000 }, (_, i) => `${i}`)
    .filter((key) => laneOfKey(key, lanes) === lane)
    .slice(0, count);

describe.each(providers.slice(0, 3))("the lanes of a dispatcher over $name", (provider) => {
  it("get its peers' calls, by a policy", async () => {
    const { peer, who, client } = await lanesOver(provider, 3, { policy: "roundRobin" });
    expect(statesOf(peer)).toEqual(["connected", "connected", "connected"]);
    const names = await Promise.all([1, 2, 3, 4, 5, 6].map(() => who.name({})));
    expect(names.sort()).toEqual(["0", "0", "1", "1", "2", "2"]);
    await expectNothing(peer, client);
  });

  it("get the calls of their keys, and keep them when another engine takes a lane's place", async () => {
    const { peer, who, lanes, dispatcher } = await lanesOver(provider, 3, byKey);
    for (const lane of [0, 1, 2])
      for (const key of keysOf(lane, 3, 5)) expect(await who.name({ key })).toBe(`${lane}`);
    const url = provider.freshUrl();
    const next = await open("next", url);
    announceLanes(
      dispatcher,
      [lanes[0], next, lanes[2]].map((lane) => entryOf(lane as Engine)),
    );
    await until(() => peer.lanes[1]?.url === next.urls[0], "the peer has heard of it");
    const [key] = keysOf(1, 3, 1) as [string];
    expect(await who.name({ key })).toBe("next");
    expect(await who.name({ key: keysOf(2, 3, 1)[0] as string })).toBe("2");
  });

  it("end their sessions when the dispatcher says that they are gone", async () => {
    const { peer, who, lanes, dispatcher, client } = await lanesOver(provider, 2, byKey);
    const [key] = keysOf(0, 2, 1) as [string];
    await who.name({ key });
    const lanesNow = [nobodyAt(lanes[0]?.urls ?? []), entryOf(lanes[1] as Engine)];
    const held = [1, 2, 3, 4, 5, 6, 7, 8].map(() => failure(who.hold()));
    await until(() => openCalls(peer) === 8, "all have left");
    const atZero = peer.lanes[0]?.calls.out ?? 0;
    // The lane has not gone, so only this message can end its calls.
    announceLanes(dispatcher, lanesNow);
    await until(
      () => openCalls(peer) === 8 - atZero && peer.lanes.length === 1,
      "those of lane 0 have ended",
    );
    peer.close();
    for (const error of await Promise.all(held)) expect(error.code).toBe("unavailable");
    await expectNothing(peer, client);
  });

  it("are no more when the dispatcher says so: it serves itself", async () => {
    const { who, dispatcher, peer } = await lanesOver(provider, 2);
    expect(await who.name({})).not.toBe("dispatcher");
    announceLanes(dispatcher, []);
    await until(() => peer.lanes[0]?.url === dispatcher.urls[0], "the peer has heard of it");
    await until(() => statesOf(peer)[0] === "connected", "it is connected");
    expect(await who.name({})).toBe("dispatcher");
  });

  it("are there from the moment that the dispatcher speaks of them", async () => {
    const { who, dispatcher, peer } = await lanesOver(provider, 0);
    expect(await who.name({})).toBe("dispatcher");
    const lane = await open("late", provider.freshUrl());
    announceLanes(dispatcher, [entryOf(lane)]);
    await until(() => peer.lanes[0]?.url === lane.urls[0], "the peer has heard of it");
    await until(() => statesOf(peer)[0] === "connected", "it is connected");
    expect(await who.name({})).toBe("late");
  });

  it("are waited for while all are being replaced", async () => {
    const dispatcher = await openDispatcher(provider.freshUrl());
    // A tcp port that was free a moment ago; the others have names of their own.
    const first = await open("first", provider.freshUrl());
    const { urls } = entryOf(first);
    await first.close();
    announceLanes(dispatcher, [nobodyAt(urls)]);
    const client = await openEngine({}, true);
    const connecting = connectLanes(client, dispatcher.urls[0] as string);
    await until(() => dispatcher.stats().sessions === 1, "the dispatcher has welcomed the client");
    const next = await open("next", urls[0] as string);
    announceLanes(dispatcher, [entryOf(next)]);
    expect(await (await connecting).client(Who).name({})).toBe("next");
  });

  it("serve though one of them cannot be reached, and not when none can", async () => {
    const dispatcher = await openDispatcher(provider.freshUrl());
    const lane = await open("0", provider.freshUrl());
    announceLanes(dispatcher, [entryOf(lane), silentAt([provider.deadUrl()])]);
    const client = await openEngine({}, true);
    const peer = await connectLanes(client, dispatcher.urls[0] as string, { timeoutMs: 1500 });
    expect(await peer.client(Who).name({})).toBe("0");
    peer.close();
    announceLanes(dispatcher, [silentAt([provider.deadUrl()])]);
    const error = await failure(connectLanes(client, dispatcher.urls[0] as string, { timeoutMs: 300 }));
    expect(error.code).toBe("unavailable");
    expect(error.message).toContain("one of the lanes of");
  });
});

describe.each(providers.slice(0, 3))("a peer of several servers with lanes over $name", (provider) => {
  async function serverOf(name: string) {
    const dispatcher = await openDispatcher(provider.freshUrl());
    const lane = await open(name, provider.freshUrl());
    announceLanes(dispatcher, [entryOf(lane)]);
    return { dispatcher, lane, url: dispatcher.urls[0] as string };
  }

  async function balancedOver(urls: readonly string[], options: LanesPeerOptions = {}) {
    const client = await openEngine({ connectTimeoutMs: 3000 }, true);
    const balanced = await connectLanes(client, urls, { policy: "roundRobin", ...options });
    await until(
      () => balanced.lanes.filter(({ state }) => state === "connected").length === urls.length,
      "all are connected",
    );
    return balanced;
  }

  const ask = (who: Client<typeof Who>, calls: number) =>
    Promise.all(Array.from({ length: calls }, () => who.name({})));

  it("gives each its share from the moment it is connected", async () => {
    const [a, b] = [await serverOf("a"), await serverOf("b")];
    const balanced = await balancedOver([a.url, b.url]);
    expect((await ask(balanced.client(Who), 4)).sort()).toEqual(["a", "a", "b", "b"]);
  });

  it("leaves alone who has lost all its lanes until it has one again", async () => {
    const [a, b] = [await serverOf("a"), await serverOf("b")];
    const balanced = await balancedOver([a.url, b.url]);
    const who = balanced.client(Who);
    await ask(who, 4);
    await a.lane.close();
    announceLanes(a.dispatcher, [nobodyAt([provider.deadUrl()])]);
    await expect.poll(() => ask(who, 4).catch(() => []), { timeout: 20_000 }).toEqual(["b", "b", "b", "b"]);
    expect(new Set(await ask(who, 20))).toEqual(new Set(["b"]));
    const next = await open("next", provider.freshUrl());
    announceLanes(a.dispatcher, [entryOf(next)]);
    await expect.poll(() => ask(who, 4), { timeout: 20_000 }).toContain("next");
  });

  it("lets calls wait for a lane when nobody has one, if they may", async () => {
    const { dispatcher, lane, url } = await serverOf("a");
    const balanced = await balancedOver([url], { reconnect: { whileLost: "wait" } });
    const who = balanced.client(Who, { timeoutMs: 20_000 });
    await ask(who, 1);
    await lane.close();
    announceLanes(dispatcher, [nobodyAt([provider.deadUrl()])]);
    await until(() => balanced.lanes.length === 0, "the client has heard of it");
    const waiting = who.name({});
    const next = await open("next", provider.freshUrl());
    announceLanes(dispatcher, [entryOf(next)]);
    expect(await waiting).toBe("next");
  });
});

describe("the lanes of a dispatcher", () => {
  it("stay as they are when the dispatcher speaks nonsense of them later", async () => {
    const { dispatcher, lanes, peer, who, client } = await lanesOver(mem, 1);
    const sessions = lanes[0]?.stats().counters.sessionsOpened;
    for (const urls of [["x".repeat(321)], [""], 5 as never])
      announceLanes(dispatcher, [{ urls, incarnation: 1n }]);
    announceLanes(dispatcher, lanes.map(entryOf));
    await until(() => dispatcher.stats().calls.in === 1, "the client asks again");
    expect(statesOf(peer)).toEqual(["connected"]);
    expect(await who.name({})).toBe("0");
    expect(lanes[0]?.stats().counters.sessionsOpened).toBe(sessions);
    await expectNothing(peer, client);
  });

  it("are found where the dispatcher is, when they listen on every interface", async () => {
    const dispatcher = await openDispatcher("tcp://127.0.0.1:0");
    const lane = await open("0", "tcp://0.0.0.0:0");
    announceLanes(dispatcher, [entryOf(lane)]);
    const peer = await connectLanes(await openEngine({}, true), dispatcher.urls[0] as string);
    expect(peer.lanes[0]?.url).toMatch(/^tcp:\/\/127\.0\.0\.1:/);
    expect(await peer.client(Who).name({})).toBe("0");
  });

  it("are not connected to by an engine that borrows a region of the dispatcher", async () => {
    const dispatcher = await openDispatcher(mem.freshUrl());
    const lane = await open("0", mem.freshUrl());
    announceLanes(dispatcher, [entryOf(lane)]);
    await using region = dispatcher.expose(new Uint8Array(8).fill(7), { access: "read" });
    const client = await openEngine();
    await using borrowed = await client.borrow(await region.share());
    const got = new Uint8Array(8);
    await borrowed.get(got);
    expect(got).toEqual(new Uint8Array(8).fill(7));
    expect([client.stats().sessions, lane.stats().sessions]).toEqual([1, 0]);
  });

  it("fail calls whose key cannot be had", async () => {
    const { peer } = await lanesOver(mem, 2, { keyOf: () => 7 as never });
    expect(await failure(peer.client(Who).name({}))).toMatchObject({
      code: "internal",
      message: expect.stringContaining("keyOf must return a string or undefined, it returned number"),
    });
  });

  it("are chosen by options that are checked", async () => {
    const client = await openEngine();
    const connect = (options: object) => connectLanes(client, mem.deadUrl(), options);
    await expect(connect({ keys: 1 })).rejects.toThrow('connect: unknown option "keys"');
    await expect(connect({ policy: "best" })).rejects.toThrow("connect: policy must be one of");
    await expect(connect({ keyOf: 1 })).rejects.toThrow("connect: keyOf must be a function");
    await expect(connect({ incarnation: 1 })).rejects.toThrow("connect: incarnation must be a bigint");
    await expect(connectLanes(client, "nonsense")).rejects.toThrow('url "nonsense"');
    const peer = lazyLanes(client, mem.deadUrl());
    expect(() => peer.client(Who, { lane: 256 })).toThrow("client: lane must be an integer from 0 to 255");
  });

  it("are followed to another dispatcher at the same address, though no call asks for it", async () => {
    const url = mem.freshUrl();
    const before = await openDispatcher(url);
    const lane = await open("before", mem.freshUrl());
    announceLanes(before, [entryOf(lane)]);
    const peer = await connectLanes(await openEngine({}, true), url);
    await before.close();
    const after = await openDispatcher(url);
    const other = await open("after", mem.freshUrl());
    announceLanes(after, [entryOf(other)]);
    await until(() => peer.lanes[0]?.url === other.urls[0], "the peer has come back to the dispatcher");
    expect(await peer.client(Who).name({})).toBe("after");
  });

  it("are refused where another engine answers than the dispatcher has named, and taken when it is named", async () => {
    const { dispatcher, peer, who, lanes } = await lanesOver(mem, 1);
    const stranger = await open("stranger", mem.freshUrl());
    announceLanes(dispatcher, [{ urls: stranger.urls, incarnation: 5n }]);
    await until(() => peer.lanes[0]?.url === stranger.urls[0], "the peer has heard of it");
    expect(await failure(who.name({}))).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("another engine answers at"),
    });
    expect(lanes).toHaveLength(1);
    announceLanes(dispatcher, [entryOf(stranger)]);
    await until(() => statesOf(peer)[0] === "connected", "it is connected");
    expect(await who.name({})).toBe("stranger");
  });

  it("wait with their first calls for a server that was not waited for", async () => {
    const url = mem.freshUrl();
    const client = await openEngine({}, true);
    const lost = lazyLanes(client, url);
    expect(await failure(lost.client(Who).name({}))).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("could not be resolved"),
    });
    lost.close();
    const dispatcher = await openDispatcher(url);
    const lane = await open("0", mem.freshUrl());
    announceLanes(dispatcher, [entryOf(lane)]);
    const peer = lazyLanes(client, ["carrier-pigeon://roof", url].slice(1));
    expect(await peer.client(Who, { lane: 0 }).name({})).toBe("0");
    peer.close(new RpcError({ code: "aborted", message: "enough" }));
    expect(await failure(peer.client(Who).name({}))).toMatchObject({
      code: "aborted",
      plainMessage: "enough",
    });
    await until(() => dispatcher.stats().sessions === 0, "the list is not followed any more");
  });

  it("are the server itself where it has none, for clients that name a lane, too", async () => {
    const server = await open("plain", mem.freshUrl());
    const peer = await connectLanes(await openEngine({}, true), server.urls[0] as string, byKey);
    expect(await peer.client(Who, { lane: 3 }).name({})).toBe("plain");
    expect(await peer.client(Who).name({ key: "a" })).toBe("plain");
  });

  it("of a server that drains are followed without a call that the drain waits for", async () => {
    const { dispatcher, peer } = await lanesOver(mem, 1);
    expect(dispatcher.stats().calls.in).toBe(1);
    lists.get(dispatcher)?.end();
    await until(() => dispatcher.stats().calls.in === 0, "the stream has ended");
    expect(statesOf(peer)).toEqual(["connected"]);
  });
});
