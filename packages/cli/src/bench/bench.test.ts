import { Histogram } from "cinnabar/standard";
import { build } from "hdr-histogram-js";
import { describe, expect, it } from "vitest";
import { bytes, milliseconds } from "../quantities.ts";
import { page, percentileText, picture } from "./curve.ts";
import { distribution, seededRandom } from "./distribution.ts";
import { faultOfRun, type Load, type LoadClock, runLoad, Tally } from "./load.ts";
import { Injector } from "./server.ts";

const read = (text: string) => bytes("--size", text);
const delays = (text: string) => distribution("--delay", text, (each) => milliseconds("--delay", each));

describe("a distribution", () => {
  it("draws by weights and within ranges, the same again for the same seed", () => {
    const draw = distribution("--size", "1KiB:3,4..8:1", read);
    const values = (seed: number) => {
      const random = seededRandom(seed);
      return Array.from({ length: 4000 }, () => draw(random));
    };
    const drawn = values(5);
    expect(values(5)).toEqual(drawn);
    expect(values(6)).not.toEqual(drawn);
    const long = drawn.filter((value) => value === 1024).length;
    // 3000 are expected, with a deviation of 27.
    expect(long).toBeGreaterThan(2800);
    expect(long).toBeLessThan(3200);
    expect(drawn.every((value) => value === 1024 || (value >= 4 && value < 8))).toBe(true);
  });

  it.each(["", "8..4", "1KiB:0", "1KiB:x", "large"])("refuses %j", (text) => {
    expect(() => distribution("--size", text, read)).toThrow(/^--size/);
  });
});

/** Time that moves only when all that runs waits for it. */
class SimulatedClock implements LoadClock {
  readonly #turnMs: number;
  readonly #waiting: { readonly atMs: number; readonly resolve: () => void }[] = [];
  #nowMs = 0;

  /** `turnMs`: how long a turn of the event loop takes. */
  constructor(turnMs: number) {
    this.#turnMs = turnMs;
  }

  readonly nowMs = () => this.#nowMs;

  readonly sleep = (ms: number) =>
    new Promise<void>((resolve) => {
      const atMs = this.#nowMs + ms;
      const place = this.#waiting.findLastIndex((other) => other.atMs <= atMs) + 1;
      this.#waiting.splice(place, 0, { atMs, resolve });
    });

  readonly turn = () => this.sleep(this.#turnMs);

  async run<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    void work.finally(() => {
      isOver = true;
    });
    while (!isOver) {
      await new Promise(setImmediate);
      const next = this.#waiting.shift();
      if (next === undefined) continue;
      this.#nowMs = next.atMs;
      next.resolve();
    }
    return work;
  }
}

/** A run against servers in simulated time, which delay and fail calls as `cinnabar bench serve` does. */
async function simulated(
  load: Partial<Load> & { readonly turnMs?: number },
  delay: string,
  failShare: number,
  servers = 1,
) {
  const { turnMs = 0.2, ...given } = load;
  const clock = new SimulatedClock(turnMs);
  const random = seededRandom(11);
  const injectors = Array.from(
    { length: servers },
    () => new Injector({ delayMs: delays(delay), failShare, random }, clock.sleep, clock.nowMs),
  );
  const targets = injectors.map((injector, index) => ({
    url: `mem://${index}`,
    async call() {
      await injector.inject();
      return 8;
    },
  }));
  const run = runLoad({
    ...{ targets, durationMs: 10_000, warmupMs: 500, concurrency: 1000, rate: 1000, arrivals: "poisson" },
    ...{ random: seededRandom(12), timeoutMs: 10_000, signal: new AbortController().signal, clock },
    onProgress: () => {},
    ...given,
  });
  return { tally: await clock.run(run), injectors };
}

/** Whether a figure is another, give or take 5 %. */
function expectAbout(figure: number, expected: number): void {
  expect(figure).toBeGreaterThan(expected * 0.95);
  expect(figure).toBeLessThan(expected * 1.05);
}

describe("a run", () => {
  it.each([
    ["an open loop", { rate: 1000 }],
    ["a closed loop", { rate: undefined, concurrency: 40 }],
  ])("reads back within 5 %% what a server injects: %s", async (_, load) => {
    const { tally } = await simulated(load, "20ms:80,100ms:20", 0.2);
    expect(faultOfRun(tally, load.rate !== undefined)).toBeUndefined();
    expect(tally.started).toBeGreaterThan(8000);
    expect(tally.latencyMs.count + tally.failed).toBe(tally.started);
    expect(tally.failures).toEqual({ aborted: tally.failed });
    expectAbout(tally.failed / tally.started, 0.2);
    for (const latency of [tally.latencyMs, tally.serviceMs, tally.failedMs]) {
      expectAbout(latency.percentile(50), 20);
      expectAbout(latency.percentile(75), 20);
      expectAbout(latency.percentile(90), 100);
      expectAbout(latency.percentile(99.9), 100);
      expectAbout(latency.mean, 36);
    }
    expect(tally.bytes).toBe(8 * tally.latencyMs.count);
  });

  it("shares its calls among all servers alike", async () => {
    const { tally, injectors } = await simulated({ durationMs: 1000 }, "5ms", 0.1, 3);
    const calls = injectors.map((injector) => injector.calls);
    expect(Math.max(...calls) - Math.min(...calls)).toBeLessThanOrEqual(1);
    const counted = [...tally.servers.values()].map(({ latencyMs, failed }) => latencyMs.count + failed);
    expect(counted.reduce((sum, count) => sum + count, 0)).toBe(tally.started);
    expect(counted.every((count) => count > 0)).toBe(true);
  });

  it("counts from the intended start: calls that begin late in this process took longer", async () => {
    // A turn of 15 ms starts all calls that became due meanwhile.
    const { tally } = await simulated({ turnMs: 15, durationMs: 3000 }, "20ms", 0);
    expectAbout(tally.serviceMs.percentile(50), 20);
    expect(tally.latencyMs.percentile(50)).toBeGreaterThan(25);
    expect(faultOfRun(tally, true)).toMatch(/^this process started calls [\d.]+ ms late/);
  });

  it("skips and counts the calls for which too many are in flight, and says so", async () => {
    const { tally } = await simulated({ concurrency: 10, durationMs: 1000, arrivals: "constant" }, "20ms", 0);
    // 10 calls of 20 ms at once are 500 in a second.
    expectAbout(tally.started, 500);
    expect(tally.started + tally.skipped).toBeGreaterThan(900);
    expect(faultOfRun(tally, true)).toMatch(/^only [\d.]+ % of the rate was offered/);
  });

  const tallyOf = (started: number, skipped: number, lateMs: number, latencyMs: number) => {
    const tally = new Tally();
    tally.started = started;
    tally.skipped = skipped;
    for (let call = 0; call < started; call++) {
      tally.lateMs.record(lateMs);
      tally.latencyMs.record(latencyMs);
    }
    return tally;
  };

  it("is invalid where the generator was late, or did not offer the rate", () => {
    expect(faultOfRun(tallyOf(100, 0, 0.05, 1), true)).toBeUndefined();
    expect(faultOfRun(tallyOf(100, 0, 0.2, 1), true)).toContain("late");
    expect(faultOfRun(tallyOf(100, 2, 0, 1), true)).toContain("98.0 % of the rate");
    expect(faultOfRun(tallyOf(0, 0, 0, 1), true)).toContain("no call");
    // A closed loop has no schedule.
    expect(faultOfRun(tallyOf(100, 0, 0.2, 1), false)).toBeUndefined();
  });
});

/** Latencies as a server with a slow part has them, in whole microseconds. */
function latencies(count: number): number[] {
  const random = seededRandom(21);
  return Array.from({ length: count }, () => {
    const us = 80 + -Math.log(1 - random()) * 60;
    return Math.round(random() < 0.02 ? us * 90 : us);
  });
}

interface Row {
  readonly value: number;
  readonly share: number;
  readonly upTo: number;
  readonly inverse: number | undefined;
}

/** The rows of HdrHistogram's text form, as its plotters read them. */
function rowsIn(text: string): Row[] {
  return text
    .split("\n")
    .filter((line) => /^\s*\d/.test(line))
    .map((line) => line.trim().split(/\s+/).map(Number))
    .map(([value = Number.NaN, share = Number.NaN, upTo = Number.NaN, inverse]) => ({
      ...{ value, share, upTo, inverse },
    }));
}

describe("the curve of a histogram", () => {
  const values = latencies(50_000);
  const ours = new Histogram();
  const theirs = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: 1e7,
    numberOfSignificantValueDigits: 4,
  });
  for (const us of values) {
    ours.record(us / 1000);
    theirs.recordValue(us);
  }

  it("has the percentiles of HdrHistogram, within the error of a bucket", () => {
    for (const percent of [0.01, 1, 10, 50, 75, 90, 97, 98, 99, 99.9, 99.99, 100]) {
      const [own, other] = [ours.percentile(percent), theirs.getValueAtPercentile(percent) / 1000];
      // Half a bucket is 1.6 % of the value; the other histogram has four digits.
      expect(Math.abs(own / other - 1), `${percent} %: ${own}, ${other}`).toBeLessThan(0.017);
    }
    expect(ours.mean).toBeCloseTo(theirs.mean / 1000, 3);
  });

  it("is written as HdrHistogram writes it", () => {
    const text = percentileText(ours);
    const other = theirs.outputPercentileDistribution(5, 1000);
    const [own, expected] = [rowsIn(text), rowsIn(other)];
    expect(own.length).toBeGreaterThan(50);
    // The last rows are those of the longest few calls, which share a bucket here.
    for (const [index, row] of own.slice(0, -8).entries()) {
      const same = expected[index] as Row;
      expect(row.share).toBeCloseTo(same.share, 9);
      expect(row.inverse).toBeCloseTo(same.inverse as number, 1);
      expect(Math.abs(row.value / same.value - 1), JSON.stringify([row, same])).toBeLessThan(0.033);
      expect(row.upTo).toBeGreaterThanOrEqual(row.share * values.length);
    }
    expect(own.at(-1)).toEqual({ value: ours.max, share: 1, upTo: values.length, inverse: undefined });
    expect(expected.at(-1)).toMatchObject({ share: 1, upTo: values.length });
    const [heading] = text.split("\n");
    expect(other.split("\n")[0]?.trim()).toBe(heading?.trim());
    expect(text).toMatch(/^#\[Mean {4}= +[\d.]+, StdDeviation {3}= +[\d.]+\]$/m);
    const deviation = Number(/StdDeviation {3}= +([\d.]+)/.exec(text)?.[1]);
    expect(deviation).toBeCloseTo(theirs.stdDeviation / 1000, 1);
    expect(text).toMatch(/^#\[Max {5}= +[\d.]+, Total count {4}= +50000\]$/m);
  });

  it("of nothing has no rows, and that of one value has its own", () => {
    expect(rowsIn(percentileText(new Histogram()))).toEqual([]);
    const one = new Histogram();
    one.record(2);
    expect(rowsIn(percentileText(one))).toEqual([
      { value: 2, share: 0, upTo: 1, inverse: 1 },
      { value: 2, share: 1, upTo: 1, inverse: undefined },
    ]);
  });

  it("is drawn with both axes, and with each curve that has values", () => {
    const svg = picture('echo at "tcp://<a>"', [
      { name: "latency", histogram: ours },
      { name: "failures", histogram: new Histogram() },
    ]);
    expect(svg).toContain("<title>echo at &quot;tcp://&lt;a&gt;&quot;</title>");
    expect(svg).toContain(">latency (50000)</text>");
    expect(svg).not.toContain("failures");
    for (const label of ["0 %", "90 %", "99.99 %", "10 µs", "100 ms"]) expect(svg).toContain(`>${label}<`);
    const points = (/points="([^"]+)"/.exec(svg)?.[1] ?? "")
      .split(" ")
      .map((at) => at.split(",").map(Number));
    expect(points.length).toBeGreaterThan(50);
    // It goes to the right and up, within the frame.
    for (const [index, [x = Number.NaN, y = Number.NaN]] of points.entries()) {
      const [beforeX = 0, beforeY = Number.POSITIVE_INFINITY] = points[index - 1] ?? [];
      expect(x).toBeGreaterThanOrEqual(beforeX);
      expect(y).toBeLessThanOrEqual(beforeY);
      expect(x >= 0 && x <= 860 && y >= 0 && y <= 480).toBe(true);
    }
    const whole = page("a & b", svg, [
      ["MS", "P50"],
      ["latency", "<1"],
    ]);
    expect(whole).toContain("<title>a &amp; b</title>");
    expect(whole).toContain("<td>&lt;1</td>");
  });
});
