import type { EngineStats } from "cinnabar/inspect";
import { afterAll, afterEach, expect, it } from "vitest";
import { Authority } from "../security/support/authority.ts";
import { secured } from "../security/support/engines.ts";
import { Trial } from "./programs/trial.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

const ca = Authority.create("stall-authority");

afterEach(endAllPeers);
afterAll(() => ca.remove());

const heartbeatMs = 1_000;
/** Three bounds: a session that hears nothing is lost after one. */
const stallMs = 3 * heartbeatMs;

it("a process that computes for three heartbeats keeps its sealed sessions by sealed keepalives", async () => {
  const security = { ...secured(ca, "server.example") };
  const { server, url } = await startServer({ listen: "tcp://127.0.0.1:0", heartbeatMs, security });
  const engine = await openEngine({ heartbeatMs, security: secured(ca, "client.example") });
  const peer = await engine.connect(url);
  const trial = peer.client(Trial, { timeoutMs: 50_000 });
  expect(await trial.echo({ token: "before" })).toMatchObject({ token: "before" });
  const spun = trial.spin({ ms: stallMs });
  await until(() => peer.state === "suspect");
  const echo = trial.echo({ token: "meanwhile" });
  await spun;
  expect(await echo).toMatchObject({ token: "meanwhile" });
  await until(() => peer.state === "connected");
  const clean = {
    sessionsLost: 0,
    malformed: 0,
    messagesForged: 0,
    messagesRepeated: 0,
    keepalivesRefused: 0,
  };
  expect(engine.stats()).toMatchObject({ sessions: 1, counters: { sessionsOpened: 1, ...clean } });
  const stats = await server.ask<EngineStats>("stats");
  expect(stats).toMatchObject({ sessions: 1, counters: clean });
  expect(stats.ports[0]?.stalls.longestMs).toBeGreaterThan(stallMs / 2);
});
