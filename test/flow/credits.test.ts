import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { exact } from "../matrix/exact-limits.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, until } from "../matrix/wait.ts";

const Work = service("work.v1", { hold: unary({ input: z.number(), output: z.number() }) });

describe.each(transports)("the credits of a server over $name", (provider) => {
  it("are shared among its peers, and given back when some go", async () => {
    const gate = deferred();
    const hold = async (input: number) => {
      await gate.promise;
      return input;
    };
    const { server, peer, url, api } = await pair(provider, [implement(Work, { hold })], {
      server: { limits: exact({ maxRequests: 64, maxRequestsInAll: 64 }) },
    });
    expect(peer.stats().window.credits).toBe(64);
    const other = await openEngine();
    const second = await other.connect(url);
    await until(() => peer.stats().window.credits === 32, "the first has half");
    await until(() => second.stats().window.credits === 32, "the second has half");
    const calls = Array.from({ length: 50 }, (_, i) => api(Work).hold(i));
    expect(peer.stats()).toMatchObject({ calls: { out: 32, waiting: 18 } });
    second.close();
    await until(() => peer.stats().calls.out === 50, "the first has all again");
    expect(server.stats().calls.in).toBeLessThanOrEqual(64);
    gate.resolve();
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 50 }, (_, i) => i));
  });

  it("are held to by the server when more peers come than there are shares", async () => {
    const gate = deferred();
    const hold = async (input: number) => {
      await gate.promise;
      return input;
    };
    const { server, url } = await pair(provider, [implement(Work, { hold })], {
      server: { limits: exact({ maxRequests: 20, maxRequestsInAll: 20 }) },
    });
    const results: Promise<unknown>[] = [];
    const client = await openEngine();
    for (let i = 0; i < 3; i++) {
      const work = (await client.connect(url)).client(Work);
      for (let j = 0; j < 16; j++)
        results.push(work.hold.result(j).then((result) => (result.ok ? "ok" : result.error)));
    }
    await until(() => server.stats().counters.requestsFailed === 28, "what is beyond has been refused");
    expect(server.stats().calls.in).toBe(20);
    gate.resolve();
    const ends = await Promise.all(results);
    expect(ends.filter((end) => end === "ok")).toHaveLength(20);
    const refused = ends.filter((end) => end !== "ok");
    expect(refused).toHaveLength(28);
    for (const error of refused)
      expect(error).toMatchObject({ code: "resource_exhausted", notExecuted: true, retryAfterMs: 20 });
  });
});
