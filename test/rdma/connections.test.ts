import { execFile } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { type ConnectionEvent, implement, type PortStats, rdmaConnections, service, unary } from "cinnabar";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";
import { endAllPeers, startServer } from "../processes/peers.ts";

const run = promisify(execFile);

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

afterEach(endAllPeers);

describe("RDMA connections", () => {
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

describe.each(providers.filter(({ scheme }) => scheme === "verbs"))(
  "RDMA connections on $name",
  (provider) => {
    // First, as a watch stays for good.
    it("are not told of where nobody subscribed", async () => {
      const { server, api } = await pair(provider, [echo]);
      await api(Echo).echo("x");
      expect(portOf(server).verbs).toEqual({ connectionEvents: "not asked for", queuePair: undefined });
    });

    it("are told of at both sides, from the address to the end", async () => {
      const events = connectionEvents();
      const { server, client, api, url } = await pair(provider, [echo]);
      await api(Echo).echo("x");
      const at = url.slice("verbs://".length);
      const ours = () => events.filter(({ peer }) => peer === url);
      const theirs = () => events.filter(({ local, peer }) => local === at && peer === undefined);
      await expect.poll(() => names(theirs()), soon).toContain("established");
      expect(names(ours())).toEqual(["address_resolved", "route_resolved", "established"]);
      expect(names(theirs())).toEqual(["connect_request", "established"]);

      const { device } = portOf(server).granted as { device: string };
      for (const event of events) expect(event).toMatchObject({ status: 0, lost: 0, device });
      for (const { event, queuePair } of events) {
        if (event !== "established") expect(queuePair).toBeUndefined();
        else {
          expect(queuePair).toMatchObject({
            number: expect.any(Number),
            mtuBytes: expect.any(Number),
            sharesReceives: true,
            receiveDepth: expect.any(Number),
          });
          expect(
            Math.min(
              ...[queuePair?.sendDepth, queuePair?.receiveDepth, queuePair?.completionDepth].map(Number),
            ),
          ).toBeGreaterThan(0);
          expect(
            Math.min(Number(queuePair?.sendSegments), Number(queuePair?.receiveSegments)),
          ).toBeGreaterThan(0);
        }
      }
      expect(portOf(client).verbs).toMatchObject({ connectionEvents: "published" });
      expect(portOf(client).verbs?.queuePair?.number).toBeGreaterThan(0);

      const known = rdmaConnections();
      const listening = known.find(({ state, local }) => state === "listen" && local === at);
      expect(listening).toMatchObject({ device, remote: "", pid: process.pid });
      const made = known.find(({ state, remote }) => state === "connect" && remote === at);
      expect(made).toMatchObject({ queuePair: { state: "rts" } });
      expect(rdmaConnections({ pid: "all" }).length).toBeGreaterThanOrEqual(known.length);
      expect(rdmaConnections({ pid: process.pid + 1 })).toEqual([]);

      await client.close();
      await expect.poll(() => names(theirs()), soon).toContain("disconnected");
    });

    it("tell of a peer that nobody listens as", async () => {
      const events = connectionEvents();
      const engine = await openEngine({ connectTimeoutMs: 20_000 }, true);
      const url = provider.deadUrl();
      await failure(engine.connect(url));
      const refused = events.filter(({ peer }) => peer === url).at(-1);
      expect(["rejected", "connect_error", "unreachable"]).toContain(refused?.event);
      expect(refused?.status).not.toBe(0);
    });

    it("tell of a peer that was killed", async () => {
      const events = connectionEvents();
      const { server, url } = await startServer({ listen: provider.freshUrl() });
      const engine = await openEngine({}, true);
      await engine.connect(url);
      await expect
        .poll(() => names(events.filter(({ peer }) => peer === url)), soon)
        .toContain("established");
      await server.destroy();
      await expect
        .poll(() => names(events.filter(({ peer }) => peer === url)), soon)
        .toContain("disconnected");
    });

    it("tell of a device that is taken away", async () => {
      const events = connectionEvents();
      const { server, client, api } = await pair(provider, [echo], { endsHard: true });
      await api(Echo).echo("x");
      const { device } = portOf(server).granted as { device: string };
      const [type] = device.split(/\d/);
      // Only devices in software can be made again.
      if (type !== "rxe" && type !== "siw") return;
      const file = `/sys/class/infiniband/${device}/ports/1/gid_attrs/ndevs/0`;
      const netdev = readFileSync(file, "utf8").trim();
      const deleted = run("rdma", ["link", "delete", device]);
      onTestFinished(async () => {
        await deleted;
        await run("rdma", ["link", "add", device, "type", type, "netdev", netdev]);
        await expect.poll(() => rdmaState(device), soon).toBe("4: ACTIVE");
      });
      await expect
        .poll(() => names(events.filter((event) => event.device === device)), soon)
        .toContain("device_removal");
      await Promise.all([client.close(), server.close()]);
    });
  },
);

function rdmaState(device: string): string {
  return readFileSync(`/sys/class/infiniband/${device}/ports/1/state`, "utf8").trim();
}
