import { afterEach, describe, expect, it } from "vitest";
import type { ClusterSettings } from "./programs/cluster.ts";
import { Trial } from "./programs/trial.ts";
import { Child } from "./support/child.ts";
import { freePort } from "./support/etcd-server.ts";
import { freshName } from "./support/fabrics.ts";
import { endAllPeers, openEngine, until } from "./support/peers.ts";

afterEach(endAllPeers);

const startCluster = (settings: ClusterSettings) => new Child("cluster", settings);

const freshUrls = {
  shm: async () => `shm://${freshName()}`,
  tcp: async () => `tcp://127.0.0.1:${await freePort()}`,
} as const;

describe.each(["shm", "tcp"] as const)("workers of node:cluster over %s", (fabric) => {
  it("cannot share one address: the first has it, and the second is told what to do", async () => {
    const url = await freshUrls[fabric]();
    const primary = startCluster({ urls: [url, url], restart: false });
    const [listening, refused] = await Promise.all([primary.report("listening"), primary.report("refused")]);
    expect(listening.urls).toEqual([url]);
    expect(refused).toMatchObject({
      code: "already_exists",
      message: expect.stringMatching(/in use.*Cluster workers and threads cannot share/),
    });
    // The first one serves all calls, as if the second had never tried.
    const engine = await openEngine();
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 30_000 });
    expect(await trial.echo({ token: "a" })).toEqual({ token: "a", life: listening.life });
  });

  it("serve one client together, each at an address of its own, and are replaced when they die", async () => {
    const urls = [await freshUrls[fabric](), await freshUrls[fabric]()];
    const primary = startCluster({ urls, restart: true });
    const first = await primary.report("listening", (report) => report.urls[0] === urls[0]);
    const second = await primary.report("listening", (report) => report.urls[0] === urls[1]);
    const engine = await openEngine({ heartbeatMs: 2_000 });
    const workers = await engine.connect(urls, {
      policy: "roundRobin",
      reconnect: { whileLost: "wait", maxDelayMs: 200 },
    });
    const trial = workers.client(Trial, { timeoutMs: 60_000, retry: { attempts: 10 } });
    const answers = async (life: string) => (await trial.echo({ token: "a" })).life === life;
    await until(() => answers(first.life));
    await until(() => answers(second.life));

    process.kill(second.pid, "SIGKILL");
    expect(await primary.report("ended")).toMatchObject({ pid: second.pid, ending: "SIGKILL" });
    await until(() => answers(first.life));
    const next = await primary.report("listening");
    expect(next).toMatchObject({ urls: [urls[1]] });
    expect(next.life).not.toBe(second.life);
    await until(() => answers(next.life));

    // A call that a worker has begun is finished before the worker ends.
    const last = trial.pause({ ms: 500 });
    await until(() => answers(first.life));
    await until(() => answers(next.life));
    await primary.ask("stop");
    await last;
    const endings = [await primary.report("ended"), await primary.report("ended")];
    expect(endings.map(({ pid }) => pid).sort()).toEqual([first.pid, next.pid].sort());
    expect(endings.map(({ ending }) => ending)).toEqual([0, 0]);
  });
});

it("workers of node:cluster share one address of net, and each client has a worker", async () => {
  const url = `net://127.0.0.1:${await freePort()}`;
  const primary = startCluster({ urls: [url, url], restart: false });
  const listening = [await primary.report("listening"), await primary.report("listening")];
  expect(listening.map(({ urls }) => urls)).toEqual([[url], [url]]);
  const engine = await openEngine();
  const lives = new Set<string>();
  for (let i = 0; i < 2; i++) {
    const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 30_000 });
    lives.add((await trial.echo({ token: "a" })).life);
  }
  expect([...lives].sort()).toEqual(listening.map(({ life }) => life).sort());
});
