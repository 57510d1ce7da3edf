import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { type ConnectionEvent, implement, service, unary } from "cinnabar";
import type { PortStats } from "cinnabar/inspect";
import { rdmaConnections } from "cinnabar/inspect";
import { afterEach, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";
import { endAllPeers, startServer } from "../processes/support/peers.ts";

/** Generous: a guest with one processor, and connections that are given up by time alone. */
const soon = { timeout: 60_000, interval: 10 };

const Echo = service("echo.v1", { echo: unary({ input: z.string(), output: z.string() }) });
const echo = implement(Echo, { echo: async (text) => text });

/** What is published from now on, until the test ends. */
function connectionEvents(): ConnectionEvent[] {
  const events: ConnectionEvent[] = [];
  const listener = (event: unknown) => void events.push(event as ConnectionEvent);
  subscribe("cinnabar:rdma.connection", listener);
  onTestFinished(() => void unsubscribe("cinnabar:rdma.connection", listener));
  return events;
}

const names = (events: readonly ConnectionEvent[]) => events.map(({ event }) => event);
const portOf = (engine: { stats(): { readonly ports: readonly PortStats[] } }) =>
  engine.stats().ports[0] as PortStats;

const verbs = providers.filter(({ scheme }) => scheme === "verbs");

afterEach(endAllPeers);

describe("RDMA connections", () => {
  // First, and on all devices: a watch that was asked for once stays for the process.
  it.each(verbs)("are not told of where nobody subscribed, on $name", async (provider) => {
    const { server, api } = await pair(provider, [echo]);
    await api(Echo).echo("x");
    expect(portOf(server).verbs).toEqual({ connectionEvents: "not asked for", queuePair: undefined });
  });

  it.each(verbs)("are not read unless the environment asks for it, on $name", async (provider) => {
    const events = connectionEvents();
    const { server, api } = await pair(provider, [echo]);
    await api(Echo).echo("x");
    expect(portOf(server).verbs?.connectionEvents).toBe(
      "off; CINNABAR_PATCHES=connection-events switches it on",
    );
    expect(events).toEqual([]);
  });

  it("are not watched where there is no verbs port", async () => {
    const events = connectionEvents();
    const tcp = providers.find(({ scheme }) => scheme === "tcp") as (typeof providers)[number];
    const { server, api } = await pair(tcp, [echo]);
    await api(Echo).echo("x");
    expect(portOf(server).verbs).toBeUndefined();
    expect(events).toEqual([]);
    expect(() => rdmaConnections({ pid: 1.5 })).toThrow("pid must be an integer");
    expect(() => rdmaConnections({ pit: 1 } as never)).toThrow('unknown option "pit"');
  });
});

describe.each(verbs)("RDMA connections on $name", (provider) => {
  // The addon reads it when a port opens.
  beforeAll(() => void (process.env.CINNABAR_PATCHES = "connection-events"));

  const toPeer = (events: readonly ConnectionEvent[], url: string) =>
    names(events.filter(({ peer }) => peer === url));

  it("are told of at both sides, from the address to the end", async () => {
    const events = connectionEvents();
    const { server, client, api, url } = await pair(provider, [echo]);
    await api(Echo).echo("x");
    const at = url.slice("verbs://".length);
    const theirs = () => events.filter(({ local }) => local === at);
    await expect.poll(() => names(theirs()), soon).toContain("established");
    expect(toPeer(events, url)).toEqual(["address_resolved", "route_resolved", "established"]);
    expect(names(theirs())).toEqual(["connect_request", "established"]);

    const { device } = portOf(server).granted as { device: string };
    for (const event of theirs()) expect(event).toMatchObject({ device, peer: undefined });
    for (const { event, status, lost, queuePair } of events) {
      expect([status, lost]).toEqual([0, 0]);
      expect(queuePair !== undefined).toBe(event === "established");
      if (queuePair === undefined) continue;
      const { number, mtuBytes, sendDepth, completionDepth, sendSegments, receiveSegments } = queuePair;
      expect(
        Math.min(number, mtuBytes, sendDepth, completionDepth, sendSegments, receiveSegments),
      ).toBeGreaterThan(0);
      expect(queuePair.sharesReceives).toBe(true);
    }
    expect(portOf(client).verbs?.connectionEvents).toBe("published");
    expect(portOf(client).verbs?.queuePair?.number).toBeGreaterThan(0);

    const known = rdmaConnections();
    const listening = known.find(({ state, local }) => state === "listen" && local === at);
    expect(listening).toMatchObject({ device, remote: "", pid: process.pid });
    const made = known.find(({ state, remote }) => state === "connect" && remote === at);
    expect(made).toMatchObject({ queuePair: { state: "rts" } });
    expect(rdmaConnections({ pid: "all" }).length).toBeGreaterThanOrEqual(known.length);

    await client.close();
    await expect.poll(() => names(theirs()), soon).toContain("disconnected");
  });

  it("are told of where nobody listens", async () => {
    const events = connectionEvents();
    const engine = await openEngine({}, true);
    const url = provider.deadUrl();
    const error = await failure(engine.connect(url, { timeoutMs: provider.connectTimeoutMs }));
    expect(error).toMatchObject({ code: "unavailable", retryable: true, fabric: { name: "ECONNREFUSED" } });
    expect(error.message).toContain("nobody listens there");
    // Events come by the loop, after the error on a machine under load.
    const firstTwo = () => toPeer(events, url).slice(0, 2);
    await expect.poll(firstTwo, soon).toEqual(["address_resolved", "route_resolved"]);
    // Soft-iWARP says no inside of the call that connects, without an event.
    if (portOf(engine).granted?.device.startsWith("siw")) return;
    const refused = () => events.find(({ event }) => event === "rejected" || event === "connect_error");
    await expect.poll(refused, soon).toMatchObject({ peer: url, queuePair: undefined });
    expect(refused()?.status).not.toBe(0);
  });

  it("are told of where the peer was killed", async () => {
    const events = connectionEvents();
    const { server, url } = await startServer({ listen: provider.freshUrl() });
    const engine = await openEngine({}, true);
    await engine.connect(url, { timeoutMs: provider.connectTimeoutMs });
    await expect.poll(() => toPeer(events, url), soon).toContain("established");
    await server.destroy();
    await expect.poll(() => toPeer(events, url), soon).toContain("disconnected");
  });
});
