import { readdirSync } from "node:fs";
import { Engine } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { Child, sharedFiles } from "./support/child.ts";
import { fabricsAndNet, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer } from "./support/peers.ts";

afterEach(endAllPeers);

const descriptors = () => readdirSync("/proc/self/fd").length;

describe.each(fabricsAndNet)("close over %s", (fabric) => {
  it("may be called by a handler, in the middle of many calls", async () => {
    const server = new Child("closer", { listen: freshUrl(fabric) });
    const url = (await server.report("listening")).urls[0];
    const engine = await openEngine();
    const trial = (await engine.connect(url)).client(Trial);
    const calls = Array.from({ length: 1000 }, (_, i) =>
      outcome(i === 500 ? trial.nothing() : trial.echo({ token: `${i}` })),
    );
    const codes = new Set(await Promise.all(calls));
    expect(["answered", "unavailable"]).toEqual(expect.arrayContaining([...codes]));
    expect(codes).toContain("unavailable");
    expect(await server.report("closed")).toMatchObject({
      ports: 0,
      calls: { in: 0 },
      sessions: 0,
      deadlines: 0,
    });
    expect(await server.ended).toBe(0);
    expect(server.stderr).toBe("");
    expect(sharedFiles(server.pid, new URL(url).host)).toEqual([]);
  });

  it("leaves nothing of an engine whose connect, calls and transfers are under way", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric) });
    // What the process opens once, for all engines.
    const first = await Engine.open();
    await (await first.connect(url)).client(Trial).nothing();
    await first.close();
    const before = descriptors();
    // Names of ports that were opened to connect from begin with the process id.
    const names = [`p${process.pid}`];
    for (let round = 0; round < 10; round++) {
      const engine = await Engine.open({ listen: freshUrl(fabric) });
      names.push(...engine.urls.map((own) => new URL(own).hostname));
      const outcomes: Promise<string>[] = [];
      if (round % 2 === 0) {
        const trial = (await engine.connect(url)).client(Trial);
        outcomes.push(outcome(trial.hold({ key: "x" })), outcome(trial.download({ bytes: 8 * mebi })));
        outcomes.push(outcome(trial.upload(new Uint8Array(8 * mebi))));
        outcomes.push(
          outcome(trial.fill({ into: engine.expose(new Uint8Array(mebi), { access: "write" }) })),
        );
      }
      outcomes.push(outcome(engine.connect(url)), outcome(engine.connect(url)));
      const closed = engine.close();
      for (const code of await Promise.all(outcomes)) expect(code).toBe("unavailable");
      await closed;
      expect(engine.stats()).toMatchObject({
        sessions: 0,
        calls: { out: 0 },
        deadlines: 0,
        regions: 0,
        pullingBytes: 0,
        ports: [],
      });
    }
    // Name look-ups and sockets of the runtime's own end a little later.
    await expect.poll(descriptors, { timeout: 20_000, interval: 10 }).toBeLessThanOrEqual(before);
    expect(sharedFiles(...names)).toEqual([]);
  });
});
