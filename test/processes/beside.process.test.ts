import { once } from "node:events";
import { Agent, createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { anyFabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer } from "./support/peers.ts";

afterEach(endAllPeers);

/**
 * How long other work of the process may wait at most. The promise is 0.1 ms and a turn; a shared processor may be away
 * for much longer. Work that is starved waits until the calls end, and that is never here.
 */
const longestWaitMs = 2_000;

/** Does `step` so many times, one after the other. Returns how many milliseconds the longest took. */
async function repeat(times: number, step: () => Promise<unknown>): Promise<number> {
  let longestMs = 0;
  for (let i = 0; i < times; i++) {
    const fromMs = performance.now();
    await step();
    longestMs = Math.max(longestMs, performance.now() - fromMs);
  }
  return longestMs;
}

describe.each(anyFabrics)("other work of a process that calls without a pause, over %s", (fabric) => {
  it.each([1, 64])("has its turns with %i calls in flight", async (inFlight) => {
    const { url } = await startServer({ listen: freshUrl(fabric) });
    const engine = await openEngine();
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 50_000 });
    // A second engine of the same thread.
    const second = await openEngine();
    const other = (await second.connect(url)).client(Trial, { timeoutMs: 50_000 });
    const agent = new Agent({ keepAlive: true });
    const web = createServer((_request, response) => response.end("here")).listen(0, "127.0.0.1");
    await once(web, "listening");
    const port = (web.address() as AddressInfo).port;
    const fetched = async () => {
      const request = get({ host: "127.0.0.1", port, agent });
      const [response] = await once(request, "response");
      response.resume();
      await once(response, "end");
    };

    let calls = 0;
    let goesOn = true;
    const callers = Array.from({ length: inFlight }, async () => {
      while (goesOn) {
        await trial.echo({ token: "again" });
        calls++;
      }
    });
    const waits = {
      timer: await repeat(50, () => new Promise((resolve) => setTimeout(resolve, 1))),
      immediate: await repeat(200, () => new Promise((resolve) => setImmediate(resolve))),
      tick: await repeat(200, () => new Promise<void>((resolve) => process.nextTick(resolve))),
      socket: await repeat(50, fetched),
      engine: await repeat(50, () => other.echo({ token: "other" })),
    };
    const during = calls;
    goesOn = false;
    await Promise.all(callers);
    agent.destroy();
    web.close();
    await once(web, "close");
    for (const [what, longestMs] of Object.entries(waits))
      expect(longestMs, `the longest wait of a ${what}`).toBeLessThan(longestWaitMs);
    expect(during).toBeGreaterThan(0);
  });
});
