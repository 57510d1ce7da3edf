import { describe, expect, it } from "vitest";
import { cinnabar, start } from "./support/command-line.ts";

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
