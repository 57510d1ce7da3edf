import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import type { Footprint } from "./programs/commands.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

/** The server stands still at signal or in a handler for less than this; nobody may take it for lost. */
const heartbeatMs = 30_000;
const small = { count: underSanitizers ? 4_000 : 20_000, load: 10 };
const large = { count: 200, load: 15 * 1024 };

describe.each(fabrics)("a server over %s that does not look at its peers for a while", (fabric) => {
  async function pressers(url: string, ...writers: string[]): Promise<Child[]> {
    const children = writers.map((writer) => new Child("presser", { url, writer }));
    for (const child of children) await child.report("connected");
    return children;
  }

  it.each([
    ["many small calls", small],
    ["calls of nearly a message each", large],
  ])("answers %s in their order, all of them, once it does", async (_, burst) => {
    const limits = { maxRequests: small.count };
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs, limits });
    const clients = await pressers(url, "a", "b");
    const [before] = await Promise.all(clients.map((client) => client.ask<Footprint>("footprint")));
    await server.stop();
    for (const client of clients) await client.ask("press", burst);
    // Everything that finds room has left, and the rest waits: asleep, not spinning.
    const [share] = await Promise.all(clients.map((client) => client.ask<number>("idleShare", 500)));
    if (!underSanitizers) expect(share).toBeLessThan(0.2);
    const stats = await (clients[0] as Child).ask<EngineStats>("stats");
    expect(stats.calls.out).toBe(burst.count);
    const after = await (clients[0] as Child).ask<Footprint>("footprint");
    // The calls themselves, 20,000 promises and closures, and at most 8 MiB of frames.
    if (!underSanitizers) expect(after.rssBytes - (before as Footprint).rssBytes).toBeLessThan(128 * mebi);

    server.kill("SIGCONT");
    for (const [i, client] of clients.entries()) {
      const { places, codes } = await client.report("pressed");
      expect(codes).toEqual({});
      // Each call was executed once, after those made before it.
      expect(places).toEqual(Array.from({ length: burst.count }, (_, number) => number + 1));
      const executed = await server.ask<number[]>("notes", ["a", "b"][i]);
      expect(executed).toEqual(Array.from({ length: burst.count }, (_, number) => number));
      expect(await client.ask("stats")).toMatchObject({ calls: { out: 0 }, queuedBytes: 0, deadlines: 0 });
    }
    const { ports, counters } = await server.ask<EngineStats>("stats");
    expect(ports[0]).toMatchObject({ sends: 0, transfers: 0, freeSlots: 64 });
    expect(counters).toMatchObject({ malformed: 0, strays: 0, sessionsLost: 0 });
  });

  it("refuses what is beyond its limit, and executes the rest once", async () => {
    const { server, url } = await startServer({
      listen: freshUrl(fabric),
      heartbeatMs,
      limits: { maxRequests: 100 },
    });
    const [client] = (await pressers(url, "a")) as [Child];
    await server.stop();
    await client.ask("press", { count: 1000, load: 10 });
    server.kill("SIGCONT");
    const { places, codes } = await client.report("pressed");
    expect(codes).toEqual({ resource_exhausted: 900 });
    expect(places.slice(0, 101)).toEqual([...Array.from({ length: 100 }, (_, i) => i + 1), 0]);
    expect(await server.ask("notes", "a")).toHaveLength(100);
  });

  it("refuses what is beyond the client's queue, and executes the rest once", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const [client] = (await pressers(url, "a")) as [Child];
    await server.stop();
    // 4000 times 12 KiB are below the server's limit on calls, and five times what a client's outbox holds.
    await client.ask("press", { count: 4000, load: 12 * 1024 });
    const { queuedBytes } = await client.ask<EngineStats>("stats");
    // After the first refusal the kernel may still take what its buffers hold: the sender's 4 MiB (tcp_wmem) and some
    // of the receiver's.
    expect(queuedBytes).toBeGreaterThan(2 * mebi);
    expect(queuedBytes).toBeLessThan(8 * mebi + 16 * 1024);
    server.kill("SIGCONT");
    const { places, codes } = await client.report("pressed");
    expect(Object.keys(codes)).toEqual(["resource_exhausted"]);
    const executed = (places as number[]).filter((place) => place > 0);
    expect(executed.length + codes.resource_exhausted).toBe(4000);
    expect(await server.ask("notes", "a")).toHaveLength(executed.length);
  });

  it("does not stop calls to another server of the same client", async () => {
    const blocked = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const free = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const client = new Child("presser", { url: blocked.url, other: free.url, writer: "a" });
    await client.report("connected");
    await blocked.server.stop();
    await client.ask("press", { count: 3000, load: 1000 });
    // More slots and provider room than one stopped peer can hold are left for others.
    await client.ask("elsewhere", 500);
    expect((await client.ask<EngineStats>("stats")).calls.out).toBe(3000);
    blocked.server.kill("SIGCONT");
    expect((await client.report("pressed")).codes).toEqual({});
  });

  it("does not stop calls to another server even when several are blocked", async () => {
    const blocked = await Promise.all(
      [1, 2, 3, 4, 5].map(() => startServer({ listen: freshUrl(fabric), heartbeatMs })),
    );
    const free = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const client = new Child("many-peers", { urls: blocked.map(({ url }) => url), other: free.url });
    await client.report("connected");
    await Promise.all(blocked.map(({ server }) => server.stop()));
    await client.ask("pressAll", { count: 2000, load: 3900 });
    await client.ask("elsewhere", 200);
    for (const { server } of blocked) server.kill("SIGCONT");
    await client.report("pressed");
  });

  it("is sent bodies to pull while its own thread runs a handler, and pulls them then", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs });
    const [client] = (await pressers(url, "a")) as [Child];
    await server.ask("block", 500);
    await server.report("blocking");
    await client.ask("press", { count: 50, load: 100_000 });
    const { codes } = await client.report("pressed");
    expect(codes).toEqual({});
    await until(async () => (await client.ask<EngineStats>("stats")).ports[0]?.regions === 0);
  });
});
