import { afterEach, describe, expect, it } from "vitest";
import { providers } from "../matrix/providers.ts";
import { Memory } from "../processes/programs/memory-service.ts";
import { Trial } from "../processes/programs/trial.ts";
import { Child } from "../processes/support/child.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer, until } from "../processes/support/peers.ts";

// The short form of test/processes/death and stall, which run on devices too, and take minutes there.

afterEach(endAllPeers);

const verbs = providers.filter(({ scheme }) => scheme === "verbs");
// A file without any test would count as broken.
if (verbs.length === 0) it.skip("verbs: no device is lent to the tests", () => {});

describe.each(verbs)("other processes, over $name", (provider) => {
  it("are killed with calls and transfers under way, and replaced at the same address", async () => {
    const heartbeatMs = 2_000;
    const first = await startServer({ listen: provider.freshUrl(), heartbeatMs });
    const engine = await openEngine({ heartbeatMs });
    const peer = await engine.connect(first.url, { timeoutMs: provider.connectTimeoutMs });
    const trial = peer.client(Trial, { timeoutMs: 100_000 });
    const from = engine.expose(new Uint8Array(mebi), { access: "read" });
    const calls = [outcome(trial.hold({ key: "k" })), outcome(trial.drain({ from }))];
    for (const phase of ["held", "draining"]) await first.server.report(phase);
    await first.server.destroy();
    expect(await Promise.all(calls)).toEqual(["unavailable", "unavailable"]);
    await until(() => {
      const [port] = engine.stats().ports;
      return port?.sends === 0 && port.transfers === 0 && port.addresses === 0;
    });

    const second = await startServer({ listen: first.url, heartbeatMs });
    expect(await trial.echo({ token: "again" })).toEqual({ token: "again", life: second.life });
    const into = engine.expose(new Uint8Array(mebi), { access: "write" });
    expect(await trial.put({ into, value: 7 })).toBe(mebi);
    expect(into.bytes.every((byte) => byte === 7)).toBe(true);
  });

  it("compute for two seconds, and have their memory read meanwhile", async () => {
    const heartbeatMs = 500;
    const server = new Child("memory", { listen: provider.freshUrl(), heartbeatMs });
    const [url] = (await server.report("listening")).urls;
    const engine = await openEngine({ heartbeatMs });
    const memory = (await engine.connect(url, { timeoutMs: provider.connectTimeoutMs })).client(Memory);
    await memory.share({ bytes: 8, value: 0 });
    await using read = await engine.borrow(await memory.share({ bytes: mebi, value: 0 }));
    const target = new Int32Array(mebi / 4);
    let over = false;
    const stalled = memory.stall({ ms: 2000 }).finally(() => {
      over = true;
    });
    // What it counts up while nothing else runs on its thread.
    const counts = new Set<number>();
    while (!over) {
      await read.get(target);
      counts.add(target[0] as number);
    }
    await stalled;
    // One could have been under way before, and one come after.
    expect(counts.size).toBeGreaterThan(4);
    expect(engine.stats().counters).toMatchObject({ sessionsLost: 0, callsFailed: 0 });
  });
});
