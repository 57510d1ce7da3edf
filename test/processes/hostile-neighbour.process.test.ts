import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { freshUrl } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, until } from "./support/peers.ts";

afterEach(endAllPeers);

const endsBySignal = "process.on('SIGTERM', () => process.exit(7))";

/** A server over shm, and a peer of it that is about to attack it. */
async function attacked() {
  const server = new Child(
    "server",
    { listen: freshUrl("shm"), heartbeatMs: 200 },
    { nodeOptions: ["--import", `data:text/javascript,${encodeURIComponent(endsBySignal)}`] },
  );
  const { urls } = await server.report("listening");
  const hostile = new Child("hostile-neighbour", { url: urls[0] });
  await hostile.report("met");
  const trial = (await (await openEngine()).connect(urls[0])).client(Trial);
  return { server, hostile, trial };
}

describe("a hostile neighbour over shm", () => {
  it("does not make a server's thread wait by what it does to shared descriptors", async () => {
    const { server, hostile, trial } = await attacked();
    expect(await hostile.ask("block")).toBeGreaterThan(0);
    // Beside a call that stays open the server has turns of its own, for its heartbeat.
    const open = trial.wait({ key: "open" }).catch(() => "ended");
    for (let call = 0; call < 100; call++) {
      expect((await trial.echo({ token: `${call}` })).token).toBe(`${call}`);
      await trial.pause({ ms: 5 });
    }
    server.kill("SIGTERM");
    expect(await server.ended).toBe(7);
    expect(await open).toBe("ended");
  });

  it("keeps no answers to others by saying for ever that it copies", async () => {
    const { server, hostile, trial } = await attacked();
    await hostile.ask("copy");
    for (let call = 0; call < 100; call++)
      expect((await trial.download({ bytes: mebi })).byteLength).toBe(mebi);
    await until(async () => (await server.ask<{ offeredBytes: number }>("stats")).offeredBytes === 0);
    expect(await hostile.ask("stats")).toMatchObject({ sessions: 1 });
  });
});
