import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "../processes/programs/trial.ts";
import { fabrics, freshUrl } from "../processes/support/fabrics.ts";
import { endAllPeers, openEngine, outcome, startServer, until } from "../processes/support/peers.ts";

afterEach(endAllPeers);

/** Nothing is open to it, and nothing new is sent while it drains: its silence could go unnoticed for ever. */
describe.each(fabrics)("a server that is killed while it drains, over %s", (fabric) => {
  it("is lost to those that have nothing open with it, and is reached again when it is back", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric) });
    const engine = await openEngine({ heartbeatMs: 400 });
    const peer = await engine.connect(url);
    const balanced = await engine.connect([url]);
    const other = await openEngine({ heartbeatMs: 400 });
    const held = outcome((await other.connect(url)).client(Trial, { timeoutMs: 50_000 }).hold({ key: "x" }));
    await server.report("held");
    void server.ask("drain").catch(() => undefined);
    await until(() => peer.state === "draining" && balanced.backends[0]?.state === "draining");
    expect(await outcome(peer.client(Trial).nothing())).toBe("unavailable");
    await server.destroy();
    expect(await held).toBe("unavailable");
    await until(() => peer.state === "lost" && balanced.backends[0]?.state !== "draining");
    await startServer({ listen: url });
    await until(() => balanced.backends[0]?.state === "connected");
    expect(await outcome(balanced.client(Trial).nothing())).toBe("answered");
    await until(async () => (await outcome(peer.client(Trial).nothing())) === "answered");
  });
});
