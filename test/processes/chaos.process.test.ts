import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { EngineStats } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { seeded } from "../matrix/random.ts";
import type { ChaosReport } from "./programs/chaos-client.ts";
import type { Footprint } from "./programs/commands.ts";
import { Child, sharedFiles } from "./support/child.ts";
import { fabricsAndNet, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers } from "./support/peers.ts";

afterEach(endAllPeers);

/** How long it goes on over each fabric, unless `CINNABAR_AMOUNT` says otherwise. */
const seconds = Number(process.env.CINNABAR_AMOUNT ?? (underSanitizers ? 10 : isLong ? 30 : 6));
/** Which servers are struck, how and when. What comes of it is up to the machine. */
const seed = Number(process.env.CINNABAR_SEED ?? Date.now() % 2 ** 31);
const heartbeatMs = 400;
const servers = 4;
const clients = 4;
/** A server and those that take its place, one after the other. */
class Place {
  server!: Child;
  url: string;
  readonly #journals: string;
  #lives = 0;

  constructor(url: string, journals: string) {
    this.url = url;
    this.#journals = journals;
  }

  async start(): Promise<void> {
    const journal = join(this.#journals, `executed-${process.pid}-${++Place.journals}`);
    this.server = new Child("chaos-server", { listen: this.url, heartbeatMs, journal });
    const { urls } = await this.server.report("listening");
    this.url = urls[0];
    this.#lives++;
  }

  static journals = 0;

  get lives(): number {
    return this.#lives;
  }
}

/** Every line of the files whose names begin so, with how often it stands there. */
function linesOf(folder: string, prefix: string): Map<string, number> {
  const lines = new Map<string, number>();
  for (const name of readdirSync(folder).filter((file) => file.startsWith(prefix))) {
    for (const line of readFileSync(join(folder, name), "utf8").split("\n"))
      if (line !== "") lines.set(line, (lines.get(line) ?? 0) + 1);
  }
  return lines;
}

describe.each(fabricsAndNet)(
  "four servers that are killed, stopped and restarted, and four clients, over %s",
  (fabric) => {
    const timeout = seconds * 1000 + (underSanitizers ? 240_000 : 120_000);
    it(`lose no call, answer none wrongly and leave nothing (CINNABAR_SEED=${seed})`, {
      timeout,
    }, async () => {
      const random = seeded(seed);
      const between = (low: number, high: number): number => low + Math.floor(random() * (high - low));
      const journals = mkdtempSync(join(tmpdir(), "cinnabar-chaos-"));
      const places = Array.from({ length: servers }, () => new Place(freshUrl(fabric), journals));
      await Promise.all(places.map((place) => place.start()));
      const urls = places.map(({ url }) => url);
      const callers = Array.from({ length: clients }, (_, index) => {
        const settings = { name: `c${index}`, urls, journal: join(journals, `refused-${index}`) };
        return new Child("chaos-client", settings, { nodeOptions: ["--expose-gc"] });
      });
      await Promise.all(callers.map((caller) => caller.report("working")));
      const footprints = await Promise.all(callers.map((caller) => caller.ask<Footprint>("footprint")));

      const struck = { killed: 0, stopped: 0, killedWhileStopped: 0, restarted: 0 };
      const untilMs = performance.now() + seconds * 1000;
      /** One place after another is struck, each by a hand of its own. */
      const strike = async (place: Place): Promise<void> => {
        while (performance.now() < untilMs) {
          await delay(between(200, 2500));
          const stops = random() < 0.5;
          if (stops) {
            await place.server.stop();
            struck.stopped++;
            // Shorter and longer than the heartbeat waits.
            await delay(between(50, 1200));
            if (random() < 0.6) {
              place.server.kill("SIGCONT");
              continue;
            }
            struck.killedWhileStopped++;
          }
          struck.killed++;
          await place.server.destroy();
          await delay(between(0, 800));
          await place.start();
          struck.restarted++;
        }
      };
      await Promise.all(places.map(strike));

      const reports = await Promise.all(callers.map((caller) => caller.ask<ChaosReport>("stop")));
      const failed: Record<string, number> = {};
      for (const report of reports)
        for (const [code, times] of Object.entries(report.failed)) failed[code] = (failed[code] ?? 0) + times;
      const sum = (of: (report: ChaosReport) => number) =>
        reports.reduce((total, report) => total + of(report), 0);
      const failures = Object.values(failed).reduce((total, times) => total + times, 0);
      const longestMs = Math.max(...reports.map((report) => report.longestMs));
      const figures = {
        seconds,
        calls: sum(({ started }) => started),
        succeeded: sum(({ succeeded }) => succeeded),
        failed,
        ...struck,
        mebibytes: Math.round(sum(({ bytes }) => bytes) / 2 ** 20),
        longestCallMs: Math.round(longestMs),
      };
      console.log(`chaos over ${fabric}: ${JSON.stringify(figures)}`);

      expect(reports.flatMap(({ wrong }) => wrong)).toEqual([]);
      expect(failures + figures.succeeded).toBe(figures.calls);
      expect(figures.succeeded).toBeGreaterThan(0);
      // A call ends by its deadline; what comes on top is how long a process waits for its turn on a machine that is
      // busy.
      expect(Math.max(...reports.map(({ mostLateMs }) => mostLateMs))).toBeLessThan(10_000);

      const executed = linesOf(journals, "executed-");
      expect([...executed].filter(([, times]) => times > 1)).toEqual([]);
      // Callers that were told that nothing had been executed were told the truth.
      expect([...linesOf(journals, "refused-").keys()].filter((token) => executed.has(token))).toEqual([]);
      rmSync(journals, { recursive: true });

      // Everybody lives: clients come to rest, then leave, and nothing is left on either side.
      const statsOf = (child: Child) => child.ask<EngineStats>("stats");
      const atRest = { calls: { out: 0, in: 0 }, queuedBytes: 0, pullingBytes: 0, deadlines: 0 };
      const patience = { timeout: 30_000, interval: 50 };
      for (const caller of callers) {
        await expect.poll(() => statsOf(caller), patience).toMatchObject(atRest);
        const { counters } = await statsOf(caller);
        expect(counters.callsSucceeded + counters.callsFailed).toBe(counters.callsStarted);
        expect(counters.malformed).toBe(0);
        await caller.ask("leave");
      }
      for (const [index, caller] of callers.entries()) {
        const gone = {
          ...atRest,
          sessions: 0,
          ports: [{ sends: 0, transfers: 0, freeSlots: 64, addresses: 0 }],
        };
        await expect.poll(() => statsOf(caller), patience).toMatchObject(gone);
        await expect.poll(() => statsOf(caller), patience).toMatchObject({ quarantinedBytes: 0, regions: 0 });
        const { descriptors } = await caller.ask<Footprint>("footprint");
        expect(descriptors).toBeLessThanOrEqual((footprints[index] as Footprint).descriptors);
        await caller.ask("close");
        expect(await statsOf(caller)).toMatchObject({
          quarantinedBytes: 0,
          regions: 0,
          offeredBytes: 0,
          ports: [],
        });
      }
      for (const caller of callers) await caller.destroy();
      let sessionsLost = 0;
      for (const { server } of places) {
        // Over tcp a server that stood still does not hear that its clients have given a session up, and knows it for
        // idle until it needs the room.
        const gone = fabric === "shm" ? { ...atRest, sessions: 0 } : atRest;
        const idle = { ...gone, regions: 0, ports: [{ sends: 0, transfers: 0, freeSlots: 64 }] };
        await expect.poll(() => statsOf(server), patience).toMatchObject(idle);
        await expect
          .poll(() => statsOf(server), patience)
          .toMatchObject({ quarantinedBytes: 0, offeredBytes: 0 });
        const { counters } = await statsOf(server);
        expect(counters.requestsSucceeded + counters.requestsFailed).toBe(counters.requestsStarted);
        sessionsLost += counters.sessionsLost;
        expect(counters.malformed).toBe(0);
        await server.ask("close");
        expect(await statsOf(server)).toMatchObject({ quarantinedBytes: 0, offeredBytes: 0, ports: [] });
      }
      console.log(`the servers over ${fabric} that lived to the end had lost ${sessionsLost} sessions`);
      await endAllPeers();
      if (fabric === "shm") expect(sharedFiles(...urls.map((url) => new URL(url).host))).toEqual([]);
    });
  },
);
