import { implement, service, unary } from "cinnabar";
import type { PortStats } from "cinnabar/inspect";
import { rdmaConnections } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";
import { endAllPeers, startServer } from "../processes/support/peers.ts";

/** Generous: a guest with one processor, and connections that are given up by time alone. */
const soon = { timeout: 60_000, interval: 10 };

const Echo = service("echo.v1", { echo: unary({ input: z.string(), output: z.string() }) });
const echo = implement(Echo, { echo: async (text) => text });

const portOf = (engine: { stats(): { readonly ports: readonly PortStats[] } }) =>
  engine.stats().ports[0] as PortStats;

afterEach(endAllPeers);

describe.each(providers.filter(({ scheme }) => scheme === "verbs"))(
  "RDMA connections on $name",
  (provider) => {
    /** States of the connections of this process to an address. */
    const towards = (at: string) =>
      rdmaConnections()
        .filter(({ remote }) => remote === at)
        .map(({ state }) => state);

    it("are in the kernel's list, as are ports that listen", async () => {
      const { server, client, api, url } = await pair(provider, [echo]);
      await api(Echo).echo("x");
      const at = url.slice("verbs://".length);
      const { device } = portOf(server).granted as { device: string };
      const known = rdmaConnections();
      const listening = known.find(({ state, local }) => state === "listen" && local === at);
      expect(listening).toMatchObject({ device, remote: "", pid: process.pid });
      const made = known.find(({ state, remote }) => state === "connect" && remote === at);
      expect(made).toMatchObject({ queuePair: { state: "rts" } });
      expect(rdmaConnections({ pid: "all" }).length).toBeGreaterThanOrEqual(known.length);
      await client.close();
      await expect.poll(() => towards(at), soon).toEqual([]);
    });

    it("to where nobody listens are refused at once", async () => {
      const engine = await openEngine({}, true);
      const error = await failure(
        engine.connect(provider.deadUrl(), { timeoutMs: provider.connectTimeoutMs }),
      );
      expect(error).toMatchObject({ code: "unavailable", retryable: true, fabric: { name: "ECONNREFUSED" } });
      expect(error.message).toContain("nobody listens there");
    });

    it("leave the list where the peer was killed", async () => {
      const { server, url } = await startServer({ listen: provider.freshUrl() });
      const engine = await openEngine({}, true);
      await engine.connect(url, { timeoutMs: provider.connectTimeoutMs });
      const at = url.slice("verbs://".length);
      expect(towards(at)).toContain("connect");
      await server.destroy();
      await expect.poll(() => towards(at), soon).not.toContain("connect");
    });
  },
);
