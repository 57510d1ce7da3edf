import { RpcError } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, outcome, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

describe.each(fabrics)("a server that stops for a while, over %s", (fabric) => {
  it("is suspected while it is silent, trusted when it goes on, and its calls are answered", async () => {
    // Long enough that a machine under load gets to wake the server before the bound.
    const { server, url } = await startServer({ listen: freshUrl(fabric), heartbeatMs: 4_000 });
    const engine = await openEngine({ heartbeatMs: 4_000 });
    const peer = await engine.connect(url);
    const events: string[] = [];
    peer.on("back", ({ after, restarted }) => events.push(`back after ${after} ${restarted}`));
    peer.on("lost", () => events.push("lost"));
    const suspected = new Promise<number>((resolve) => peer.on("suspect", ({ phi }) => resolve(phi)));
    const asked = peer.client(Trial, { timeoutMs: 50_000 }).wait({ key: "k" });
    await server.report("waiting");
    await server.stop();
    expect(await suspected).toBeGreaterThanOrEqual(8);
    expect(peer.state).toBe("suspect");
    server.kill("SIGCONT");
    await until(() => peer.state === "connected");
    expect(events).toEqual(["back after suspect false"]);
    await server.ask("release", { key: "k", value: "answer" });
    expect(await asked).toBe("answer");
  });
});

describe.each(fabrics)("calls that wait for a server that is killed and started again, over %s", (fabric) => {
  it("are answered by the life they reached and no other, and none fails for want of a server", async () => {
    const options = { heartbeatMs: 300 };
    let { server, url, life } = await startServer({ listen: freshUrl(fabric), ...options });
    const engine = await openEngine({ ...options, connectTimeoutMs: 10_000 });
    const peer = await engine.connect(url, { reconnect: { whileLost: "wait", maxDelayMs: 100 } });
    const trial = peer.client(Trial, { timeoutMs: 55_000 });
    const lives = [life];
    const wrong: unknown[] = [];
    /** Judged at the end: an answer may come before the report of the server that gave it. */
    const answers: { readonly life: string; readonly earliest: number }[] = [];
    let answered = 0;
    let done = false;
    const asker = async (name: string) => {
      for (let i = 0; !done; i++) {
        const token = `${name}-${i}`;
        const earliest = lives.length - 1;
        try {
          const answer = await trial.echo({ token });
          if (answer.token !== token) wrong.push({ token, answer });
          answers.push({ life: answer.life, earliest });
          if (answer.life === life) answered++;
        } catch (error) {
          // In flight when the server died. A call that had not left waits.
          if (!(error instanceof RpcError) || error.code !== "unavailable" || error.callId === undefined)
            wrong.push(error);
        }
      }
    };
    const askers = ["a", "b", "c"].map(asker);
    for (let restart = 0; restart < 4; restart++) {
      await until(() => answered > 20);
      await server.destroy();
      answered = 0;
      const next = new Child("server", { listen: url, ...options });
      life = (await next.report("listening")).life;
      lives.push(life);
      server = next;
    }
    await until(() => answered > 20);
    done = true;
    await Promise.all(askers);
    expect(wrong).toEqual([]);
    expect(answers.filter(({ life, earliest }) => lives.indexOf(life) < earliest)).toEqual([]);
    expect(await outcome(trial.nothing())).toBe("answered");
    expect(engine.stats()).toMatchObject({ sessions: 1, calls: { out: 0 }, counters: { malformed: 0 } });
  }, 120_000);
});
