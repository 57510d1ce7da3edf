import { type Engine, implement, type Peer, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Life = service("life.v1", { ping: unary({ output: z.string() }), hold: unary() });
const gate = deferred();
const living = implement(Life, { ping: () => "pong", hold: () => gate.promise });

/** What happens to a peer, by name. */
function eventsOf(peer: Peer): string[] {
  const events: string[] = [];
  peer.on("suspect", () => events.push("suspect"));
  peer.on("draining", () => events.push("draining"));
  peer.on("lost", ({ reason }) => events.push(`lost ${reason.code}`));
  peer.on("back", ({ after, restarted }) =>
    events.push(`back after ${after}${restarted ? ", restarted" : ""}`),
  );
  peer.on("closed", () => events.push("closed"));
  return events;
}

describe.each(transports)("a peer over $name", (provider) => {
  it("tells when it drains, is lost, is back with another life, and is closed", async () => {
    const { server, peer, client } = await pair(provider, [living]);
    const events = eventsOf(peer);
    await server.drain();
    await until(() => peer.state === "lost", "the loss is known");
    await openEngine({ listen: peer.url, serve: [living] });
    const again = peer.client(Life);
    await until(() => client.stats().sessions === 0, "the old session is gone");
    // tcp may need more than one try while its old connection dies.
    for (let answer = ""; answer !== "pong"; ) answer = (await again.ping.result()).ok ? "pong" : "";
    expect(events).toEqual(["draining", "lost unavailable", "back after lost, restarted"]);
    peer.close();
    peer.close();
    expect(events.at(-1)).toBe("closed");
    expect(events).toHaveLength(4);
  });

  it("may keep calls waiting until it is back", async () => {
    const { server, client } = await pair(provider, [living]);
    const url = server.urls[0] as string;
    const peer = await client.connect(url, { reconnect: { whileLost: "wait", maxDelayMs: 20 } });
    const api = peer.client(Life, { timeoutMs: 50_000 });
    await server.close();
    await until(() => peer.state === "lost", "the loss is known");
    const calls = Array.from({ length: 10 }, () => api.ping());
    const hasty = failure(api.ping({ timeoutMs: 20 }));
    expect(await hasty).toMatchObject({ code: "deadline_exceeded" });
    expect(peer.state).toBe("connecting");
    const second = await openEngine({ listen: url, serve: [living] });
    expect(new Set(await Promise.all(calls))).toEqual(new Set(["pong"]));
    expect(peer.incarnation).toBe(second.incarnation);
    expect(second.stats().sessions).toBe(1);
  });
});

describe("a peer", () => {
  const mem = providers[0] as (typeof providers)[number];
  const waiting = { reconnect: { whileLost: "wait" } } as const;

  it("stops trying when no call waits any more", async () => {
    const { server, client } = await pair(mem, [living]);
    const peer = await client.connect(server.urls[0] as string, waiting);
    await server.close();
    await until(() => peer.state === "lost", "the loss is known");
    await failure(peer.client(Life).ping({ timeoutMs: 30 }));
    await until(() => peer.state === "lost", "it has stopped trying");
  });

  it("lets no call wait longer than it is open, or its engine", async () => {
    for (const end of [(peer: Peer) => peer.close(), (_: Peer, client: Engine) => void client.close()]) {
      const { server, client } = await pair(mem, [living], { endsHard: true });
      const peer = await client.connect(server.urls[0] as string, waiting);
      await server.close();
      await until(() => peer.state === "lost", "the loss is known");
      const call = failure(peer.client(Life).ping());
      await until(() => peer.state === "connecting", "it tries");
      end(peer, client);
      expect(await call).toMatchObject({ code: "unavailable", origin: "local" });
    }
  });

  it("that waits sends calls made while its server drains to the next one", async () => {
    const { server, client } = await pair(mem, [living], { endsHard: true });
    const url = server.urls[0] as string;
    const peer = await client.connect(url, { reconnect: { whileLost: "wait", maxDelayMs: 20 } });
    const held = failure(peer.client(Life).hold());
    await until(() => server.stats().calls.in === 1, "it is served");
    const drained = server.drain({ graceMs: 60_000 });
    await until(() => peer.state === "draining", "it is told");
    const call = peer.client(Life).ping();
    await server.close();
    await openEngine({ listen: url, serve: [living] });
    expect(await call).toBe("pong");
    await Promise.all([held, drained]);
  });

  it("tells nobody who has been taken away, and one that was added twice twice", async () => {
    const { server, peer } = await pair(mem, [living]);
    const told: string[] = [];
    const listener = () => void told.push("twice");
    const off = peer.on("lost", () => void told.push("never"));
    peer.on("lost", listener);
    peer.on("lost", listener);
    off();
    off();
    await server.close();
    await until(() => peer.state === "lost", "the loss is known");
    expect(told).toEqual(["twice", "twice"]);
  });

  it("may be closed by its own listener", async () => {
    const { server, peer } = await pair(mem, [living]);
    const events = eventsOf(peer);
    peer.on("lost", () => peer.close());
    await server.close();
    await until(() => peer.state === "closed", "the listener has closed it");
    expect(events).toEqual(["lost unavailable", "closed"]);
  });
});
