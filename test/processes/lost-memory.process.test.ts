import { RpcError } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { type Fabric, fabrics, freshUrl, isDevice, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

const heartbeatMs = 1000;
/**
 * A killed peer is noticed within the heartbeat and a quarter, and its memory is back at once. A stopped one may hold
 * what it was writing for as long again as a transfer may stand still (3 s). Three times as long for busy machines.
 */
const backMs = 12_000;
const kills = isLong ? (underSanitizers ? 10 : 50) : 3;
const stops = isLong && !underSanitizers ? 6 : 3;
/** Over shm a wait for memory that a stopped process copies takes its whole bound. */
const stoppable: readonly Fabric[] = isLong ? fabrics : fabrics.filter((fabric) => fabric !== "shm");
const canary = 0x5a;
const regionBytes = 3 * mebi;

/** Keys that end with their call, and keys that the end of the session has to withdraw, by turns. */
const keysOf = (round: number) => (round % 2 === 0 ? "call" : "region");

const codeOf = (error: unknown): string => (error instanceof RpcError ? error.code : String(error));

/** An honest peer beside those that are lost: called without a pause until `stop`, which gives how it fared. */
async function honest() {
  const { url } = await startServer({ listen: freshUrl("tcp") });
  return (engine: Awaited<ReturnType<typeof openEngine>>) => {
    let stopped = false;
    const run = (async () => {
      const trial = (await engine.connect(url)).client(Trial);
      let [calls, slowestMs] = [0, 0];
      for (; !stopped; calls++) {
        const sentMs = performance.now();
        await trial.echo({ token: "on" });
        slowestMs = Math.max(slowestMs, performance.now() - sentMs);
      }
      return { calls, slowestMs };
    })();
    // The test may have failed already.
    run.catch(() => {});
    return () => {
      stopped = true;
      return run;
    };
  };
}

describe.each(fabrics.filter((fabric) => !isDevice(fabric)))("memory lent over %s", (fabric) => {
  it("comes back within seconds from each server that is killed while it writes and reads it", async () => {
    const engine = await openEngine({ heartbeatMs });
    const stop = (await honest())(engine);
    for (let round = 0; round < kills; round++) {
      const { server, url } = await startServer({ listen: freshUrl(fabric) });
      const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
      const keys = keysOf(round);
      const written = engine.expose(new Uint8Array(regionBytes), { access: "write", keys });
      const read = engine.expose(new Uint8Array(regionBytes), { access: "read", keys });
      const ends = [trial.fill({ into: written }), trial.drain({ from: read })].map((call) =>
        call.catch(codeOf),
      );
      await Promise.all([server.report("filling"), server.report("draining")]);
      await server.destroy();
      const killedMs = performance.now();
      expect(await Promise.all(ends)).toEqual(["unavailable", "unavailable"]);
      expect(await written.revoke()).toEqual({ quarantinedBytes: 0 });
      await read[Symbol.asyncDispose]();
      expect(performance.now() - killedMs).toBeLessThan(backMs);
      expect([written.grants, read.grants]).toEqual([0, 0]);
      expect(engine.stats()).toMatchObject({ quarantinedBytes: 0, regions: 0 });
    }
    const { calls, slowestMs } = await stop();
    expect(calls).toBeGreaterThan(kills);
    expect(slowestMs).toBeLessThan(backMs);
  });

  it.runIf(stoppable.includes(fabric))("comes back, and is not written when the server goes on", async () => {
    const engine = await openEngine({ heartbeatMs });
    const stop = (await honest())(engine);
    const { server, url, life } = await startServer({ listen: freshUrl(fabric) });
    for (let round = 0; round < stops; round++) {
      const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
      const memory = new Uint8Array(regionBytes);
      const region = engine.expose(memory, { access: "write", keys: keysOf(round) });
      const end = trial.fill({ into: region }).catch(codeOf);
      await server.report("filling");
      await server.stop();
      const stoppedMs = performance.now();
      expect(await end).toBe("unavailable");
      const { quarantinedBytes } = await region.revoke();
      expect(performance.now() - stoppedMs).toBeLessThan(backMs);
      // Over shm nobody but the stopped process can end the copy that it was in the middle of.
      if (fabric !== "shm") expect([quarantinedBytes, region.grants]).toEqual([0, 0]);
      if (quarantinedBytes === 0) memory.fill(canary);
      server.kill("SIGCONT");
      // It has gone on, and would have written: what it is asked now comes behind that.
      await until(() =>
        trial.echo({ token: "b" }).then(
          (answer) => answer.life === life,
          () => false,
        ),
      );
      await until(() => region.grants === 0);
      if (quarantinedBytes === 0) expect(memory.every((byte) => byte === canary)).toBe(true);
    }
    expect(engine.stats()).toMatchObject({ quarantinedBytes: 0, regions: 0 });
    const { calls } = await stop();
    expect(calls).toBeGreaterThan(stops);
  });
});
