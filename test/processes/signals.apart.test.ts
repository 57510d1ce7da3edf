import type { Peer } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child, sharedFiles } from "./support/child.ts";
import { anyFabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, outcome, until } from "./support/peers.ts";

afterEach(endAllPeers);

describe.each(anyFabrics)("a service that is sent a signal, over %s", (fabric) => {
  async function start(graceMs: number) {
    const server = new Child("service", { listen: freshUrl(fabric), graceMs });
    const url: string = (await server.report("listening")).urls[0];
    const connect = async (): Promise<Peer> => (await openEngine()).connect(url);
    const peer = await connect();
    return { server, url, peer, connect, trial: peer.client(Trial, { timeoutMs: 60_000 }) };
  }

  it.each(["SIGTERM", "SIGINT"] as const)(
    "ends with status 0 after %s when nothing is in flight",
    async (signal) => {
      const { server, url, peer, trial } = await start(30_000);
      await trial.nothing();
      server.kill(signal);
      expect(await server.report("drained")).toMatchObject({ aborted: [] });
      expect(await server.ended).toBe(0);
      expect(server.stderr).toBe("");
      await until(() => peer.state === "lost");
      expect(sharedFiles(server.pid, new URL(url).host)).toEqual([]);
    },
  );

  it("tells its clients, refuses what is new, and answers what it had taken", async () => {
    const { server, peer, connect, trial } = await start(30_000);
    const other = await connect();
    const asked = trial.wait({ key: "question" });
    await server.report("waiting");
    server.kill("SIGTERM");
    await until(() => peer.state === "draining" && other.state === "draining");
    expect(await outcome(other.client(Trial).nothing())).toBe("unavailable");
    expect(await server.ask("state")).toBe("draining");
    await server.ask("release", { key: "question", value: "answer" });
    expect(await asked).toBe("answer");
    expect(await server.report("drained")).toMatchObject({ aborted: [] });
    expect(await server.ended).toBe(0);
  });

  it("aborts what is open when the grace is over, and ends with status 1", async () => {
    const { server, trial } = await start(100);
    const held = outcome(trial.hold({ key: "k" }));
    await server.report("held");
    server.kill("SIGTERM");
    expect(await server.report("drained")).toMatchObject({ aborted: ["in trial.v1/hold"] });
    expect(await held).toBe("unavailable");
    expect(await server.report("aborted")).toMatchObject({ code: "unavailable" });
    expect(await server.ended).toBe(1);
  });

  it("closes at once at the second signal, and ends by it", async () => {
    const { server, url, peer, trial } = await start(600_000);
    const held = outcome(trial.hold({ key: "k" }));
    await server.report("held");
    server.kill("SIGTERM");
    await until(() => peer.state === "draining");
    server.kill("SIGINT");
    expect(await held).toBe("unavailable");
    expect(await server.ended).toBe("SIGINT");
    expect(sharedFiles(server.pid, new URL(url).host)).toEqual([]);
  });
});
