import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { contenders } from "../../bench/contenders/index.ts";
import { quickRatios } from "../../bench/suite/ratios.ts";
import type { Results } from "../../bench/suite/results.ts";
import type { Workload } from "../../bench/suite/workload.ts";
import { isLong } from "../matrix/long.ts";
import { underSanitizers } from "../processes/support/fabrics.ts";

/** Processes load only files, so the suite runs as it is built: `npm run setup` builds it. */
const program = fileURLToPath(new URL("../../build/bench/main.js", import.meta.url));

/** From there too: one of them finds the addon by the place of its file. */
const { workloads }: { readonly workloads: readonly Workload[] } = await import(
  new URL("../../build/bench/workloads/index.js", import.meta.url).href
);

/** What `npm run bench` writes after one short round. It exits with 1 where a workload fails or a quick ratio lacks. */
async function oneRound(...args: readonly string[]): Promise<Results> {
  const folder = await mkdtemp(join(tmpdir(), "cinnabar-bench-test-"));
  try {
    const file = join(folder, "results.json");
    await promisify(execFile)(
      process.execPath,
      [program, ...args, "--rounds", "1", "--round-ms", "5", "--json", file],
      { env: { ...process.env, NODE_OPTIONS: "", VITEST: "" }, maxBuffer: 16 << 20 },
    ).catch((error: Error & { readonly stdout: string }) => {
      const failed = error.stdout.split("\n").filter((line) => /FAILED|cannot be measured/.test(line));
      throw new Error([error.message, ...failed].join("\n"));
    });
    return JSON.parse(await readFile(file, "utf8")) as Results;
  } finally {
    await rm(folder, { recursive: true });
  }
}

function expectMeasured({ failures, figures }: Results, names: readonly string[]): void {
  expect(failures).toEqual([]);
  for (const name of names) {
    const own = figures.filter(({ workload }) => workload === name);
    expect(own.length, name).toBeGreaterThan(0);
    for (const { name: figure, median } of own) expect(Number.isFinite(median), figure).toBe(true);
  }
}

/** Needs an RDMA device; a newer Node; a package that the workspace does not depend on. */
const mayLack = ["Cinnabar verbs", "Cinnabar tcp, zstd", "Fastify"];
/** What is in no package of Debian, and what needs the guest. Without it, its workload brings nothing. */
const nothingWithout = ["fi_rma_bw", "the disks of Linux"];

// Each contender compares what comes back with what it sent, of every payload, before it is measured. What is measured
// under sanitizers means nothing, and takes far longer.
describe.skipIf(underSanitizers)("the suite of benchmarks, in one short round", () => {
  it("runs what is quick, and brings every ratio that it promises", async () => {
    const results = await oneRound("--quick");
    expectMeasured(
      results,
      workloads.filter(({ selection }) => selection === "quick").map(({ name }) => name),
    );
    expect(results.lacks).toEqual([]);
    expect(Object.keys(results.ratios)).toEqual(expect.arrayContaining(quickRatios.map(({ name }) => name)));
    for (const { key } of contenders().filter(({ isInQuick }) => isInQuick))
      expect(results.figures.find(({ name }) => name === `${key}.small.64.ops`)?.median, key).toBeGreaterThan(
        0,
      );
    // Some fifty processes start, on a machine that may be busy with other tests.
  }, 400_000);

  // The whole of each, at its full sizes.
  it.runIf(isLong).each(workloads.map(({ name }) => name))(
    "runs %s",
    async (name) => {
      const results = await oneRound(name);
      const lacking = results.lacks.map(({ subject }) => subject);
      const isAny = (starts: readonly string[]) => (subject: string) =>
        starts.some((start) => subject.startsWith(start));
      expect(lacking.filter((subject) => !isAny([...mayLack, ...nothingWithout])(subject))).toEqual([]);
      expectMeasured(results, lacking.some(isAny(nothingWithout)) ? [] : [name]);
    },
    400_000,
  );
});
