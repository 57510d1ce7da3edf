import { type Client, type Engine, RpcError } from "cinnabar";
import { afterEach, describe, expect, it } from "vitest";
import { Trial } from "./programs/trial.ts";
import { anyFabrics, freshUrl } from "./support/fabrics.ts";
import { endAllPeers, openEngine, startServer, until } from "./support/peers.ts";

afterEach(endAllPeers);

const places = 8;
const handlerMs = 20;
const clients = 2;
const phaseMs = 1000;
const timeoutMs = 500;
/** At most. */
const rounds = 5;

interface Fared {
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
  readonly codes: Readonly<Record<string, number>>;
}

/** What becomes of calls, each from the moment it is made. */
class Tally {
  readonly #tookMs: number[] = [];
  readonly #codes: Record<string, number> = {};
  readonly #startedMs = performance.now();

  async count(trial: Client<typeof Trial>): Promise<void> {
    const madeMs = performance.now();
    try {
      await trial.pause({ ms: handlerMs });
      this.#tookMs.push(performance.now() - madeMs);
    } catch (error) {
      const code = error instanceof RpcError ? error.code : String(error);
      this.#codes[code] = (this.#codes[code] ?? 0) + 1;
    }
  }

  get result(): Fared {
    const sorted = this.#tookMs.sort((a, b) => a - b);
    const at = (share: number) => sorted[Math.floor(share * (sorted.length - 1))] ?? Number.NaN;
    const seconds = (performance.now() - this.#startedMs) / 1000;
    return { perSecond: sorted.length / seconds, p50: at(0.5), p99: at(0.99), codes: this.#codes };
  }
}

/** So many calls a second, whatever becomes of those before. */
async function openLoop(trials: readonly Client<typeof Trial>[], perSecond: number): Promise<Fared> {
  const tally = new Tally();
  const calls: Promise<void>[] = [];
  const startedMs = performance.now();
  for (let elapsedMs = 0; elapsedMs < phaseMs; elapsedMs = performance.now() - startedMs) {
    while (calls.length < (elapsedMs / 1000) * perSecond)
      calls.push(tally.count(trials[calls.length % trials.length] as Client<typeof Trial>));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await Promise.all(calls);
  return tally.result;
}

/** As many calls as can be served, by callers that wait for each before the next. */
async function closedLoop(trials: readonly Client<typeof Trial>[]): Promise<Fared> {
  const tally = new Tally();
  const untilMs = performance.now() + phaseMs;
  const caller = async (trial: Client<typeof Trial>) => {
    while (performance.now() < untilMs) await tally.count(trial);
  };
  await Promise.all(trials.flatMap((trial) => Array.from({ length: places }, () => caller(trial))));
  return tally.result;
}

interface Round {
  readonly unloaded: Fared;
  readonly peak: Fared;
  readonly twice: Fared;
  readonly fiveTimes: Fared;
}

/** What the test is about. NaN holds nothing. */
function holds({ unloaded, peak, twice, fiveTimes }: Round): boolean {
  const kept = Math.min(twice.perSecond, fiveTimes.perSecond) > 0.8 * peak.perSecond;
  return kept && twice.p99 < 3 * unloaded.p99;
}

function print(fabric: string, load: string, { perSecond, p50, p99, codes }: Fared): void {
  const figures = `${perSecond.toFixed(0)}/s, p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`;
  console.log(`${fabric} ${load}: ${figures} ${JSON.stringify(codes)}`);
}

/**
 * What the server does is the same over every fabric, so the short form has it over one. Figures are compared within
 * one round, a few seconds. Other processes' turns on the processors can only spoil a round, and never make up for a
 * server that collapses, which fails every round; so the first good one ends the test.
 */
describe.each(anyFabrics)("a server over %s that is asked for more than it can do", (fabric) => {
  it("goes on doing as much as it can, in the time it takes without", async () => {
    const { url } = await startServer({ listen: freshUrl(fabric), admission: { maxConcurrent: places } });
    const engines: Engine[] = [];
    for (let i = 0; i < clients; i++) engines.push(await openEngine({}));
    const peers = await Promise.all(engines.map((engine) => engine.connect(url)));
    const trials = peers.map((peer) => peer.client(Trial, { timeoutMs }));
    const capacity = (await closedLoop(trials)).perSecond;
    let round: Round;
    let left = rounds;
    do {
      round = {
        unloaded: await openLoop(trials, capacity / 3),
        peak: await closedLoop(trials),
        twice: await openLoop(trials, capacity * 2),
        fiveTimes: await openLoop(trials, capacity * 5),
      };
      for (const [load, fared] of Object.entries(round)) print(fabric, load, fared);
    } while (--left > 0 && !holds(round));
    expect(round.twice.p99).toBeLessThan(3 * round.unloaded.p99);
    expect(round.twice.perSecond).toBeGreaterThan(0.8 * round.peak.perSecond);
    expect(round.fiveTimes.perSecond).toBeGreaterThan(0.8 * round.peak.perSecond);
    // What was too much was told so, and nothing is left of it.
    const excused = ["resource_exhausted", "deadline_exceeded"];
    for (const code of Object.keys(round.fiveTimes.codes)) expect(excused).toContain(code);
    await until(() => engines.every((engine) => engine.stats().calls.out === 0));
    for (const engine of engines) expect(engine.stats()).toMatchObject({ calls: { out: 0, waiting: 0 } });
  }, 180_000);
});
