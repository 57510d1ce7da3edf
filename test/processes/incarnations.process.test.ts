import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import { RpcError } from "cinnabar";
import { afterEach, describe, expect, it, onTestFailed } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { type Fabric, fabrics, freshName, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

const restarts = isLong ? 10 : 4;
/**
 * shm is told of a death by the kernel. Elsewhere the bound must be waited for at each restart, so it is short, and a
 * busy machine may make either side take the other for dead.
 */
const heartbeatOf = (fabric: Fabric, shortMs = 400) => (fabric === "shm" ? 10_000 : shortMs);

describe.each(fabrics)("a server that is killed and started again and again, over %s", (fabric) => {
  it("answers each call in the life it was called in, through one peer", async () => {
    const options = { heartbeatMs: heartbeatOf(fabric) };
    let { server, url, life } = await startServer({ listen: freshUrl(fabric), ...options });
    const engine = await openEngine({ ...options, connectTimeoutMs: 10_000 });
    const peer = await engine.connect(url);
    const trial = peer.client(Trial, { timeoutMs: 5_000 });
    const lives = new Set([life]);
    const wrong: unknown[] = [];
    let calls = 0;
    let answersOfLife = 0;
    let done = false;
    let step = "the first answers";
    // What it waited for, should it not end.
    onTestFailed(() => {
      const met = peer.incarnation?.toString(16);
      const found = { step, life, met, lives, calls, answersOfLife, wrong, stats: engine.stats() };
      console.error(inspect(found, { depth: 4 }), server.stderr);
    });

    /**
     * Asks with tokens that nobody else has, as fast as it goes, and notes everything but an answer of its own or
     * `unavailable`.
     */
    const asker = async (name: string): Promise<void> => {
      while (!done) {
        const token = `${name}-${++calls}`;
        const earliest = life;
        try {
          const answer = await trial.echo({ token });
          if (answer.token !== token) wrong.push({ token, answer });
          // The server that listened when the call was made, or one started since: never one before.
          const order = [...lives];
          if (order.indexOf(answer.life) < order.indexOf(earliest)) wrong.push({ token, answer, earliest });
          if (answer.life === life) answersOfLife++;
        } catch (error) {
          if (!(error instanceof RpcError) || error.code !== "unavailable") wrong.push(error);
          // A peer that is down answers at once, and the server that starts needs the processor.
          await delay(1);
        }
      }
    };
    const askers = ["a", "b", "c", "d"].map(asker);
    for (let restart = 0; restart < restarts; restart++) {
      await until(() => answersOfLife > 20);
      step = `the end of life ${lives.size}`;
      await server.destroy();
      answersOfLife = 0;
      const next = new Child("server", { listen: url, ...options });
      step = "the next server";
      const report = await next.report("listening");
      server = next;
      life = report.life;
      lives.add(life);
      step = `answers of life ${lives.size}`;
      await until(() => answersOfLife > 0 && peer.incarnation?.toString(16) === life);
    }
    done = true;
    step = "the askers";
    await Promise.all(askers);
    step = "the end";
    expect(wrong).toEqual([]);
    expect(lives.size).toBe(restarts + 1);
    await until(async () => (await outcome(trial.echo({ token: "last" }))) === "answered");
    const { counters, ...stats } = engine.stats();
    expect(stats).toMatchObject({ sessions: 1, calls: { out: 0 }, deadlines: 0 });
    expect(counters.malformed).toBe(0);
    expect(counters.sessionsOpened).toBe(counters.sessionsLost + counters.sessionsClosed + 1);
    if (fabric === "shm") expect(counters.sessionsOpened).toBe(restarts + 1);
    else expect(counters.sessionsOpened).toBeGreaterThan(restarts);
    // The provider lets go of what it held when it notices too.
    await until(() => engine.stats().ports[0]?.addresses === 1 && engine.stats().ports[0]?.sends === 0);
    expect(engine.stats().ports[0]).toMatchObject({ transfers: 0, freeSlots: 64 });
  }, 180_000);

  it("gives nothing of a call's first server to its second", async () => {
    const first = await startServer({ listen: freshUrl(fabric) });
    const engine = await openEngine({ heartbeatMs: heartbeatOf(fabric, 2_000) });
    const peer = await engine.connect(first.url);
    const trial = peer.client(Trial, { timeoutMs: 20_000 });
    const doomed = outcome(trial.wait({ key: "question" }));
    await first.server.report("waiting");
    await first.server.destroy();
    const second = await startServer({ listen: first.url });
    expect(await doomed).toBe("unavailable");
    // The same number of the same table in the next session, and the same key at the next server.
    const asked = trial.wait({ key: "question" });
    await second.server.report("waiting");
    expect(second.server.unread("waiting")).toEqual([]);
    await second.server.ask("release", { key: "question", value: "of the second" });
    expect(await asked).toBe("of the second");
    expect(engine.stats().counters).toMatchObject({ strays: 0, lateAnswers: 0, malformed: 0 });
  });
});

describe("a client that listens at a name of its own and is started again there", () => {
  it("is a new peer to its server, and hears nothing of its former calls", async () => {
    const { server, url } = await startServer({ listen: freshUrl("shm"), heartbeatMs: heartbeatOf("shm") });
    const listen = `shm://${freshName()}`;
    for (let life = 0; life < 5; life++) {
      const client = new Child("client", {
        url,
        engine: { listen, heartbeatMs: heartbeatOf("shm") },
        name: `life ${life}`,
      });
      await client.report("connected");
      await server.report("held", ({ key }) => key === `life ${life}-0`);
      await client.ask("wait", `question ${life}`);
      await server.report("waiting", ({ key }) => key === `question ${life}`);
      if (life > 0) {
        // The handler of the former life's call ends now: its answer belongs to nobody.
        await server.ask("release", { key: `question ${life - 1}`, value: "too late" });
        expect(await client.ask("echo", { token: "t" })).toMatchObject({ token: "t" });
        expect(client.unread("waited")).toEqual([]);
      }
      await client.destroy();
      expect(await server.report("aborted", ({ key }) => key === `life ${life}-0`)).toMatchObject({
        code: "unavailable",
      });
    }
    await server.ask("release", { key: "question 4", value: "too late" });
    // In each life one handler answered, and the other failed, because its signal ended it.
    expect(await server.ask("stats")).toMatchObject({
      sessions: 0,
      calls: { in: 0 },
      counters: { lateResults: 10, malformed: 0 },
    });
  });
});
