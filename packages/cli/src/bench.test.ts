import { describe, expect, it } from "vitest";
import { distribution, seededRandom } from "./bench/distribution.ts";
import { faultOfRun, Tally } from "./bench/load.ts";
import { cinnabar, start } from "./cli.test-support.ts";
import { bytes } from "./quantities.ts";

const read = (text: string) => bytes("--size", text);

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

describe("a run", () => {
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

describe("cinnabar bench", () => {
  it("reads back the delays and failures that a server injects", async () => {
    const injected = ["--delay", "20ms:80,200ms:20", "--fail", "0.3", "--seed", "3"];
    const server = start(["bench", "serve", "--listen", "net://127.0.0.1:0", ...injected]);
    const [line = ""] = await server.lines(1);
    const url = line.replace("listening at ", "");
    const terms = ["--duration", "3s", "--warmup", "1ms", "--timeout", "1m", "--json"];
    const closed = await cinnabar(["bench", url, "--concurrency", "16", "--size", "64..4096", ...terms]);
    expect(closed).toMatchObject({ status: 0, stderr: "" });
    const report = JSON.parse(closed.stdout);
    expect(report.succeeded + report.failed).toBe(report.started);
    expect(report.failures).toEqual({ aborted: report.failed });
    // At a load of 16 calls of 56 ms at the mean there are some hundred calls: a share of 0.3 deviates by 0.03 or so.
    expect(report.failed / report.started).toBeGreaterThan(0.15);
    expect(report.failed / report.started).toBeLessThan(0.45);
    // No call can be faster than its delay. A busy machine may be slower by any time. A timer may fire a millisecond early.
    expect(report.latencyMs.p50).toBeGreaterThan(18);
    expect(report.latencyMs.p90).toBeGreaterThan(190);
    expect(report.bytesPerSecond).toBeGreaterThan(0);

    const open = await cinnabar(["bench", url, "--rate", "100", "--concurrency", "2", ...terms]);
    // Two calls at once carry 36 a second: the rest is skipped, counted, and makes the run invalid.
    expect(open.status).toBe(1);
    expect(open.stderr).toMatch(
      /^cinnabar bench: the run is invalid: only [\d.]+ % of the rate was offered: [^\n]*\n$/,
    );
    const { skipped, started, invalid } = JSON.parse(open.stdout);
    expect(skipped).toBeGreaterThan(started);
    expect(invalid).toContain("% of the rate");
    server.child.kill("SIGTERM");
    expect(await server.ended).toMatchObject({ status: 143, stderr: "" });
  });
});
