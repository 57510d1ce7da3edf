import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { waits } from "../matrix/waits.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

describe.each(fabrics)("a client killed over %s while its requests wait for their turn", (fabric) => {
  it("takes them along, and others get the places", async () => {
    const heartbeatMs = fabric === "shm" ? 60_000 : 400;
    const { server, url } = await startServer({
      listen: freshUrl(fabric),
      heartbeatMs,
      admission: { maxConcurrent: 2, ...waits },
    });
    const admission = async () => (await server.ask<EngineStats>("stats")).admission;
    const doomed = new Child("client", { url, engines: 6 });
    await doomed.report("connected");
    await until(async () => (await admission()).queued === 4);
    const engine = await openEngine({});
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 60_000 });
    const echo = trial.echo({ token: "mine" });
    await until(async () => (await admission()).queued === 5);
    await doomed.destroy();
    expect(await echo).toMatchObject({ token: "mine" });
    await until(async () => (await server.ask<EngineStats>("stats")).sessions === 1);
    expect(await admission()).toMatchObject({
      running: 0,
      queued: 0,
      queuedBytes: 0,
      shed: { full: 0, pushed_out: 0, age: 0, deadline: 0 },
    });
    const stats = await server.ask<EngineStats>("stats");
    expect(stats).toMatchObject({ calls: { in: 0 }, deadlines: 0 });
  });
});
