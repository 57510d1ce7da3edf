import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabricsAndNet, freshUrl, tcpFabric, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer } from "./support/peers.ts";

afterEach(endAllPeers);

const windowMs = 1000;
const many = Array.from({ length: underSanitizers ? 20 : isLong ? 1000 : 100 });
const mostShare = 0.01;
/**
 * While a call is outstanding, the guard looks sixty times a second and the heartbeat pings. On slow virtual machines a
 * wake-up takes up to 0.3 ms of processor time, which made 1.8 %. A process that polls takes half a processor or more.
 */
const mostShareOfCalls = 0.05;

/**
 * Processor time over wall time of a process at rest: the best of three windows, because the machine may be shared, and
 * what others do to the caches and the clock shows in everybody's processor time. An engine that spins or polls is far
 * above in each.
 */
async function idleShare(most: number, ...children: Child[]): Promise<number[]> {
  let best = children.map(() => 1);
  for (let window = 0; window < 3 && best.some((share) => share >= most); window++) {
    const shares = await Promise.all(children.map((child) => child.ask<number>("idleShare", windowMs)));
    best = best.map((share, i) => Math.min(share, shares[i] as number));
  }
  return best;
}

const resources = async (child: Child) =>
  (await child.ask<string[]>("resources")).filter((name) => name !== "PipeWrap");

describe.each(["shm", tcpFabric] as const)("many engines in one process over %s", (fabric) => {
  it("answer calls of all at once, and use hardly any processor time at rest", async () => {
    const process = new Child("many-engines", { urls: many.map(() => freshUrl(fabric)) });
    await process.report("connected");
    for (let round = 0; round < 5; round++) expect(await process.ask("round")).toBe(many.length);
    const [share] = await idleShare(mostShareOfCalls, process);
    if (!underSanitizers) expect(share).toBeLessThan(mostShareOfCalls);
  });
});

describe.each(fabricsAndNet)("an idle engine over %s", (fabric) => {
  it("uses no processor time and no timers, on either side of an open session", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric) });
    const clients = [1, 2, 3].map(() => new Child("client", { url, holds: false }));
    for (const client of clients) {
      await client.report("connected");
      for (let i = 0; i < 100; i++) await client.ask("echo", { token: `${i}` });
    }
    const [client] = clients as [Child];
    const shares = await idleShare(mostShare, server, client);
    for (const process of [server, client]) {
      expect(await resources(process)).not.toContain("Timeout");
      expect(await resources(process)).not.toContain("Immediate");
    }
    if (!underSanitizers) for (const share of shares) expect(share).toBeLessThan(mostShare);

    // And sleeps so that a call wakes it: the server its port, the client its answer.
    const begun = performance.now();
    expect(await client.ask("echo", { token: "wake" })).toMatchObject({ token: "wake" });
    expect(performance.now() - begun).toBeLessThan(20_000);
  });

  it("uses hardly any while a call is outstanding to a handler that sleeps", async () => {
    const { server, url } = await startServer({ listen: freshUrl(fabric) });
    const client = new Child("client", { url, holds: false });
    await client.report("connected");
    await client.ask("wait", "long");
    await server.report("waiting");
    const shares = await idleShare(mostShareOfCalls, server, client);
    // The call's deadline and the heartbeat, on both sides.
    for (const process of [server, client]) {
      expect((await resources(process)).filter((name) => name === "Timeout").length).toBeLessThanOrEqual(2);
    }
    if (!underSanitizers) for (const share of shares) expect(share).toBeLessThan(mostShareOfCalls);
    await server.ask("release", { key: "long", value: "awake" });
    expect(await client.report("waited")).toMatchObject({ value: "awake" });
  });

  it("wakes for the first call of many, each after a rest", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric) });
    // A busy machine may keep the server from its turn for longer than the usual bound.
    const engine = await openEngine({ heartbeatMs: 10_000 });
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
    // The rest is longer than what either side polls on for; a ring that is lost shows as the deadline.
    for (let i = 0; i < 200; i++) {
      await trial.nothing();
      await new Promise((resolve) => setTimeout(resolve, 3));
    }
  });
});
