import { RpcError } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

describe.each(fabrics)("a balanced peer of three servers over %s, one of which is killed", (fabric) => {
  it("goes on with the others, and with a new life of the third when that is there", async () => {
    const servers = await Promise.all(
      [0, 1, 2].map(() => startServer({ listen: freshUrl(fabric), heartbeatMs: 2_000 })),
    );
    const urls = servers.map(({ url }) => url);
    const engine = await openEngine({ heartbeatMs: 2_000, connectTimeoutMs: 10_000 });
    const balanced = await engine.connect(urls, { reconnect: { whileLost: "wait", maxDelayMs: 200 } });
    await until(() => balanced.backends.every(({ state }) => state === "connected"));
    const trial = balanced.client(Trial, { timeoutMs: 50_000 });
    const wrong: unknown[] = [];
    const answeredBy = new Map<string, number>();
    let done = false;
    const asker = async (name: string) => {
      for (let i = 0; !done; i++) {
        const token = `${name}-${i}`;
        try {
          const answer = await trial.echo({ token });
          if (answer.token !== token) wrong.push({ token, answer });
          answeredBy.set(answer.life, (answeredBy.get(answer.life) ?? 0) + 1);
        } catch (error) {
          // In flight to the one that died; what had not left went elsewhere.
          const excused =
            error instanceof RpcError && error.code === "unavailable" && error.callId !== undefined;
          if (!excused) wrong.push(error);
        }
      }
    };
    const askers = ["a", "b", "c", "d"].map(asker);
    await until(() => servers.every(({ life }) => (answeredBy.get(life) ?? 0) > 10));
    const [first, second, third] = servers as [(typeof servers)[0], (typeof servers)[0], (typeof servers)[0]];
    await second.server.destroy();
    await until(
      () => balanced.backends[1]?.state !== "connected" && balanced.backends[1]?.state !== "suspect",
    );
    answeredBy.clear();
    await until(() => [first, third].every(({ life }) => (answeredBy.get(life) ?? 0) > 10));
    expect(answeredBy.has(second.life)).toBe(false);
    const next = new Child("server", { listen: second.url });
    const { life } = await next.report("listening");
    await until(() => (answeredBy.get(life) ?? 0) > 10);
    done = true;
    await Promise.all(askers);
    expect(wrong).toEqual([]);
    balanced.close();
    expect(engine.stats()).toMatchObject({ sessions: 0, calls: { out: 0 }, deadlines: 0 });
  }, 120_000);
});
