import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { cinnabar, inProcess, type Running, start } from "./support/command-line.ts";

const folder = mkdtempSync(join(tmpdir(), "cinnabar-bench-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Starts `cinnabar bench serve` with what it injects. */
async function serve(...more: string[]): Promise<Running & { readonly url: string }> {
  const server = start(["bench", "serve", "--listen", "net://127.0.0.1:0", "--json", ...more]);
  const [line = ""] = await server.lines(1);
  return { ...server, url: line.replace("listening at ", "") };
}

/** Ends a server, which says what it has injected. */
async function injectedBy(server: Running) {
  server.child.kill("SIGTERM");
  const { status, stdout, stderr } = await server.ended;
  expect({ status, stderr }).toEqual({ status: 143, stderr: "" });
  const [, told = ""] = stdout.split("\n");
  return JSON.parse(told) as {
    readonly calls: number;
    readonly failed: number;
    readonly delayedMs: { readonly p50: number; readonly p90: number; readonly mean: number };
  };
}

describe("cinnabar bench", () => {
  it("reads back within 5 % what a server says that it injects", async () => {
    const server = await serve("--delay", "600ms:80,1200ms:20", "--fail", "0.2", "--seed", "3");
    const terms = ["--rate", "60", "--duration", "6s", "--warmup", "1ms", "--timeout", "1m", "--json"];
    const { stdout } = await cinnabar(["bench", server.url, "--size", "64..4096", ...terms]);
    const report = JSON.parse(stdout);
    const injected = await injectedBy(server);
    expect(report.succeeded + report.failed).toBe(report.started);
    expect(report.failures).toEqual({ aborted: report.failed });
    // The warm-up is a call or none.
    expect(Math.abs(injected.calls - report.started)).toBeLessThanOrEqual(2);
    expect(Math.abs(injected.failed - report.failed)).toBeLessThanOrEqual(1);
    // How late the server's timers were is in both. 5 % are 30 ms: many times what a call takes on a busy machine.
    for (const percentile of ["p50", "p90"] as const) {
      expect(report.latencyMs[percentile]).toBeGreaterThan(injected.delayedMs[percentile] * 0.95);
      expect(report.serviceMs[percentile]).toBeLessThan(injected.delayedMs[percentile] * 1.05);
    }
    expect(report.bytesPerSecond).toBeGreaterThan(0);
    expect(report.serverCpuUsByCall).toBeGreaterThan(0);
  });

  it("skips and counts what two callers cannot carry, and says that the run is invalid", async () => {
    const server = await serve("--delay", "50ms");
    const terms = ["--duration", "1s", "--warmup", "1ms", "--timeout", "1m", "--json"];
    const open = await cinnabar(["bench", server.url, "--rate", "100", "--concurrency", "2", ...terms]);
    expect(open.status).toBe(1);
    expect(open.stderr).toMatch(
      /^cinnabar bench: the run is invalid: only [\d.]+ % of the rate was offered: [^\n]*\n$/,
    );
    const { skipped, started, invalid } = JSON.parse(open.stdout);
    expect(skipped).toBeGreaterThan(started);
    expect(invalid).toContain("% of the rate");
    await injectedBy(server);
  });
});

describe("cinnabar bench with several servers", () => {
  const servers: (Running & { readonly url: string })[] = [];
  const brief = ["--duration", "300ms", "--warmup", "1ms", "--timeout", "1m"];

  beforeAll(async () => {
    servers.push(await serve(), await serve());
  });

  afterAll(async () => {
    for (const server of servers) expect((await injectedBy(server)).calls).toBeGreaterThan(0);
  });

  const urls = () => servers.map(({ url }) => url);

  it.each([
    ["echo", [], 2],
    ["take", ["--inline", "input"], 1],
    ["give", ["--inline", "output"], 1],
    ["get", ["--bulk", "from"], 1],
    ["put", ["--bulk", "into"], 1],
  ])("moves bytes by %s, of each client with each server", async (method, way, directions) => {
    const many = ["--clients", "2", "--concurrency", "8", "--size", "100KiB:3,0:1"];
    const { status, stdout, stderr } = await inProcess([
      "bench",
      ...urls(),
      ...way,
      ...many,
      ...brief,
      "--json",
    ]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({
      method: `cinnabar-bench.v1/${method}`,
      clients: 2,
      failed: 0,
      urls: urls(),
    });
    expect(report.servers.map(({ url }: { url: string }) => url)).toEqual(urls());
    for (const { latencyMs } of report.servers) expect(latencyMs.count).toBeGreaterThan(0);
    // Three quarters of the calls have 100 KiB: of a few hundred calls it is more than a third for certain.
    const bytes = report.bytesPerSecond / report.callsPerSecond / directions;
    expect(bytes).toBeGreaterThan((100 * 1024) / 3);
    expect(bytes).toBeLessThanOrEqual(100 * 1024);
  });

  it("writes the histogram and the picture, whole or not at all", async () => {
    const [histogram, svg] = [join(folder, "a.hgrm"), join(folder, "a.svg")];
    const files = ["--histogram", histogram, "--picture", svg];
    expect((await inProcess(["bench", ...urls(), ...files, ...brief])).status).toBe(0);
    expect(readFileSync(histogram, "utf8")).toMatch(
      /^ +Value +Percentile TotalCount 1\/\(1-Percentile\)\n\n/,
    );
    expect(readFileSync(svg, "utf8")).toMatch(/^<svg .*<polyline .*<\/svg>\n$/s);
    // Said before the run.
    const nowhere = ["--duration", "1h", "--picture", join(folder, "none", "a.svg")];
    expect(await inProcess(["bench", ...urls(), ...nowhere])).toEqual({
      status: 1,
      stdout: "",
      stderr: expect.stringMatching(/^cinnabar bench: --picture: ENOENT[^\n]*\n$/),
    });
  });

  it.each([
    [[], "expected at least one URL, or serve"],
    [["serve", "net://a:1"], 'unexpected argument "net://a:1"'],
    [["net://a:1", "--inline", "up"], '--inline must be both, input or output, it is "up"'],
    [["net://a:1", "--bulk", "up"], '--bulk must be from or into, it is "up"'],
    [["net://a:1", "--bulk", "from", "--inline", "input"], "--inline and --bulk exclude each other"],
    [
      ["net://a:1", "--bulk", "from", "--method", "a/b"],
      "--inline and --bulk say how bytes go to `bench serve`",
    ],
    [["net://a:1", "--picture", "a.png"], '--picture must be a file with .svg or .html, it is "a.png"'],
    [["net://a:1", "--clients", "0"], "--clients must be a whole number from 1 to 1000"],
  ])("refuses %j", async (args, message) => {
    const { status, stdout, stderr } = await inProcess(["bench", ...args]);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain(message);
    expect(stderr.trimEnd()).not.toContain("\n");
  });
});
