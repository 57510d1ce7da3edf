import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { contenders } from "../../bench/contenders/index.ts";
import type { Results } from "../../bench/suite/results.ts";
import { isLong } from "../matrix/long.ts";

const program = fileURLToPath(new URL("../../build/bench/main.js", import.meta.url));

/** Each is two processes: the short form has those that a quick benchmark needs. Secured ones have a workload apart. */
const tried = contenders().filter(({ isInQuick, isSecured }) => isInQuick || (isLong && !isSecured));

describe("the contenders", () => {
  // Each compares what comes back with what it sent, of every payload, before it is measured.
  it("all echo rightly, in processes of their own", async () => {
    const folder = await mkdtemp(join(tmpdir(), "cinnabar-bench-test-"));
    try {
      const file = join(folder, "results.json");
      const some = isLong ? [] : ["--contenders", tried.map(({ key }) => key).join(",")];
      const args = [program, "small", "--rounds", "1", "--round-ms", "1", "--json", file, ...some];
      await promisify(execFile)(process.execPath, args, {
        env: { ...process.env, NODE_OPTIONS: "", VITEST: "" },
      });
      const results = JSON.parse(await readFile(file, "utf8")) as Results;
      expect(results.failures).toEqual([]);
      if (isLong) expect(results.lacks.map(({ subject }) => subject)).toEqual(["Cinnabar verbs"]);
      for (const { key } of tried) {
        for (const measure of ["1.p50_us", "64.ops"]) {
          const figure = results.figures.find(({ name }) => name === `${key}.small.${measure}`);
          expect(figure?.median, `${key} ${measure}`).toBeGreaterThan(0);
        }
      }
    } finally {
      await rm(folder, { recursive: true });
    }
    // More than twenty processes start, on a machine that may be busy with other tests.
  }, 180_000);
});
