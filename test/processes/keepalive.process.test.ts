import { afterEach, describe, expect, it } from "vitest";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer } from "./support/peers.ts";

afterEach(endAllPeers);

describe.each(fabrics)("an engine with keepaliveMs over %s", (fabric) => {
  it("pings an idle server, and does not keep its process alive", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric) });
    const idler = new Child("idler", { url });
    await idler.report("pinged");
    expect(await idler.ended).toBe(0);
  });

  it("loses a server that was stopped, though nothing is open", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric), maxStallMs: 0 });
    const engine = await openEngine({ keepaliveMs: 200, heartbeatMs: 500 });
    const lost = new Promise<{ reason: Error }>((resolve) => engine.on("sessionEnded", resolve));
    await engine.connect(url);
    await server.stop();
    expect((await lost).reason.message).toContain("has been silent for");
    server.kill("SIGCONT");
  });
});
