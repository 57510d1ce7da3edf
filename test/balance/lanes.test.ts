import {
  type Client,
  type ConnectOptions,
  type Engine,
  implement,
  type Peer,
  service,
  unary,
} from "cinnabar";
import type { BalanceOptions } from "cinnabar/options";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { hashToNumber } from "../../src/connect/hash.ts";
import { announceLanes } from "../../src/engine/engine.ts";
import { expectAtRest } from "../matrix/at-rest.ts";
import { openEngine } from "../matrix/pair.ts";
import { type Provider, providers } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Who = service("who.v1", {
  name: unary({ input: z.object({ key: z.string().optional() }), output: z.string() }),
  hold: unary(),
});

const mem = providers[0] as Provider;
const never = deferred();

function open(name: string, listen: string): Promise<Engine> {
  const who = implement(Who, { name: () => name, hold: () => never.promise });
  return openEngine({ listen, serve: [who] }, true);
}

const entryOf = ({ urls, incarnation }: Engine) => ({ urls, incarnation });
const nobodyAt = (urls: readonly string[]) => ({ urls, incarnation: 0n });

/** A dispatcher and its lanes, engines of this thread: what a peer does with them is no matter of threads. */
async function lanesOver(provider: Provider, count: number, options: ConnectOptions = {}) {
  const dispatcher = await open("dispatcher", provider.freshUrl());
  const lanes: Engine[] = [];
  for (let i = 0; i < count; i++) lanes.push(await open(`${i}`, provider.freshUrl()));
  announceLanes(dispatcher, lanes.map(entryOf));
  const client = await openEngine({ connectTimeoutMs: 3000 });
  const url = dispatcher.urls[0] as string;
  const peer = await client.connect(url, options);
  return { dispatcher, lanes, client, url, peer, who: peer.client(Who) };
}

const statesOf = (peer: Peer) => peer.stats().lanes.map(({ state }) => state);
const byKey: ConnectOptions = {
  lanes: { keyOf: ({ input }) => (input as { key?: string } | undefined)?.key },
};
const keysOf = (lane: number, lanes: number, count: number) =>
  Array.from({ length: 1000 }, (_, i) => `${i}`)
    .filter((key) => hashToNumber(key, lanes) === lane)
    .slice(0, count);

describe.each(providers.slice(0, 3))("the lanes of a dispatcher over $name", (provider) => {
  it("get its peers' calls, by a policy", async () => {
    const { peer, who, client } = await lanesOver(provider, 3, { lanes: { policy: "roundRobin" } });
    expect(statesOf(peer)).toEqual(["connected", "connected", "connected"]);
    const names = await Promise.all([1, 2, 3, 4, 5, 6].map(() => who.name({})));
    expect(names.sort()).toEqual(["0", "0", "1", "1", "2", "2"]);
    await expectAtRest(client);
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
    await until(() => peer.stats().lanes[1]?.url === next.urls[0], "the peer has heard of it");
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
    await until(() => peer.stats().calls.out === 8, "all have left");
    const atZero = peer.stats().lanes[0]?.calls.out;
    // It has not gone, so nothing but this word can end its calls.
    announceLanes(dispatcher, lanesNow);
    await until(() => peer.stats().calls.out === 8 - (atZero ?? 0), "those of lane 0 have ended");
    peer.close();
    for (const error of await Promise.all(held)) expect(error.code).toBe("unavailable");
    await expectAtRest(client);
  });

  it("are no more when the dispatcher says so: it serves itself", async () => {
    const { who, dispatcher, peer } = await lanesOver(provider, 2);
    expect(await who.name({})).not.toBe("dispatcher");
    // Told at the next welcome: an empty list is told to nobody.
    announceLanes(dispatcher, []);
    const again = await (await openEngine()).connect(peer.url);
    expect(await again.client(Who).name({})).toBe("dispatcher");
    expect(again.stats().lanes).toEqual([]);
  });

  it("are there from the moment that the dispatcher speaks of them", async () => {
    const { who, dispatcher, peer } = await lanesOver(provider, 0);
    expect(await who.name({})).toBe("dispatcher");
    const lane = await open("late", provider.freshUrl());
    announceLanes(dispatcher, [entryOf(lane)]);
    await until(() => statesOf(peer)[0] === "connected", "it is connected");
    expect(await who.name({})).toBe("late");
  });

  it("are waited for while all are being replaced", async () => {
    const dispatcher = await open("dispatcher", provider.freshUrl());
    // A tcp port that was free a moment ago; the others have names of their own.
    const first = await open("first", provider.freshUrl());
    const { urls } = entryOf(first);
    await first.close();
    announceLanes(dispatcher, [nobodyAt(urls)]);
    const client = await openEngine({}, true);
    const connecting = client.connect(dispatcher.urls[0] as string);
    await until(() => dispatcher.stats().sessions === 1, "the dispatcher has welcomed the client");
    const next = await open("next", urls[0] as string);
    announceLanes(dispatcher, [entryOf(next)]);
    expect(await (await connecting).client(Who).name({})).toBe("next");
  });

  it("serve though one of them cannot be reached, and not when none can", async () => {
    const dispatcher = await open("dispatcher", provider.freshUrl());
    const lane = await open("0", provider.freshUrl());
    announceLanes(dispatcher, [entryOf(lane), nobodyAt([provider.deadUrl()])]);
    const client = await openEngine({}, true);
    const peer = await client.connect(dispatcher.urls[0] as string, { timeoutMs: 1500 });
    expect(await peer.client(Who).name({})).toBe("0");
    peer.close();
    announceLanes(dispatcher, [nobodyAt([provider.deadUrl()])]);
    const error = await failure(client.connect(dispatcher.urls[0] as string, { timeoutMs: 300 }));
    expect(error.code).toBe("unavailable");
    expect(error.message).toContain("no lane of");
  });
});

describe.each(providers.slice(0, 3))("a balanced peer of servers with lanes over $name", (provider) => {
  async function serverOf(name: string) {
    const dispatcher = await open("dispatcher", provider.freshUrl());
    const lane = await open(name, provider.freshUrl());
    announceLanes(dispatcher, [entryOf(lane)]);
    return { dispatcher, lane, url: dispatcher.urls[0] as string };
  }

  async function balancedOver(urls: readonly string[], options: BalanceOptions = {}) {
    const client = await openEngine({ connectTimeoutMs: 3000 }, true);
    const balanced = await client.connect(urls, { policy: "roundRobin", ...options });
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "all are connected");
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
    await until(() => dispatcher.stats().controlRequests.out === 0, "the client has heard of it");
    const waiting = who.name({});
    const next = await open("next", provider.freshUrl());
    announceLanes(dispatcher, [entryOf(next)]);
    expect(await waiting).toBe("next");
  });
});

describe("the lanes of a dispatcher", () => {
  it("must be at addresses of its kind", async () => {
    const dispatcher = await open("dispatcher", mem.freshUrl());
    const client = await openEngine({}, true);
    for (const url of ["tcp://127.0.0.1:1", "nonsense"]) {
      announceLanes(dispatcher, [{ urls: [url], incarnation: 1n }]);
      const error = await failure(client.connect(dispatcher.urls[0] as string));
      expect(error).toMatchObject({
        code: "internal",
        message: expect.stringContaining(`announces a lane at ${url}`),
      });
    }
  });

  it("stay as they are when the dispatcher speaks nonsense of them later", async () => {
    const { dispatcher, lanes, peer, who, client } = await lanesOver(mem, 1);
    for (const urls of [["tcp://127.0.0.1:1"], ["mem://"], ["x".repeat(321)]])
      announceLanes(dispatcher, [{ urls, incarnation: 1n }]);
    // Answered after what was asked before it.
    announceLanes(dispatcher, lanes.map(entryOf));
    await until(() => dispatcher.stats().controlRequests.out === 0, "all has been answered");
    expect(statesOf(peer)).toEqual(["connected"]);
    expect(await who.name({})).toBe("0");
    await expectAtRest(client);
  });

  it("are found where the dispatcher is, when they listen on every interface", async () => {
    const dispatcher = await open("dispatcher", "tcp://127.0.0.1:0");
    const lane = await open("0", "tcp://0.0.0.0:0");
    announceLanes(dispatcher, [entryOf(lane)]);
    const peer = await (await openEngine()).connect(dispatcher.urls[0] as string);
    expect(peer.stats().lanes[0]?.url).toMatch(/^tcp:\/\/127\.0\.0\.1:/);
    expect(await peer.client(Who).name({})).toBe("0");
  });

  it("are not connected to by an engine that borrows a region of the dispatcher", async () => {
    const dispatcher = await open("dispatcher", mem.freshUrl());
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
    const { peer } = await lanesOver(mem, 2, { lanes: { keyOf: () => 7 as never } });
    expect(await failure(peer.client(Who).name({}))).toMatchObject({
      code: "internal",
      message: expect.stringContaining("keyOf must return a string or undefined, it returned number"),
    });
  });

  it("are chosen by options that are checked", async () => {
    const client = await openEngine();
    const connect = (lanes: object) => client.connect(mem.deadUrl(), { lanes } as ConnectOptions);
    await expect(connect({ keys: 1 })).rejects.toThrow('connect: unknown option "lanes.keys"');
    await expect(connect({ policy: "best" })).rejects.toThrow("connect: lanes.policy must be one of");
    await expect(connect({ keyOf: 1 })).rejects.toThrow("connect: lanes.keyOf must be a function");
  });

  it("are followed to another dispatcher at the same address, though no call asks for it", async () => {
    const url = mem.freshUrl();
    const before = await open("dispatcher", url);
    const lane = await open("before", mem.freshUrl());
    announceLanes(before, [entryOf(lane)]);
    const peer = await (await openEngine({}, true)).connect(url);
    await before.close();
    const after = await open("dispatcher", url);
    const other = await open("after", mem.freshUrl());
    announceLanes(after, [entryOf(other)]);
    await until(
      () => peer.stats().lanes[0]?.url === other.urls[0],
      "the peer has come back to the dispatcher",
    );
    expect(await peer.client(Who).name({})).toBe("after");
  });
});
