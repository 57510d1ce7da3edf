import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { compile, compilers, here } from "./compilers.ts";
import { writeLargeContract } from "./large-contract.ts";

/**
 * The most instantiations either compiler may need, about 1.3 times what they needed when this was set: 509 thousand
 * (TypeScript 6) and 500 thousand (TypeScript 7), of which zod's own schemas take 110 thousand. The number does not
 * depend on the machine. Raise it with a reason only: it is what a team's editor pays at each keystroke.
 */
const budget = 660_000;

/** The counts of the two hardly differ, and version 6 takes five times as long. */
const measured = compilers.filter(({ serial }) => isLong || serial.length > 0);

let folder = "";

beforeAll(() => {
  folder = mkdtempSync(join(here, ".tmp-"));
  writeLargeContract(folder, 50, 10);
});

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe.each(measured)(
  "$name on a contract of 500 methods, each implemented and called",
  ({ bin, serial }) => {
    it("stays within the budget of instantiations", { timeout: 300_000 }, async () => {
      const { status, output } = await compile(
        bin,
        "-p",
        join(folder, "tsconfig.json"),
        "--extendedDiagnostics",
        ...serial,
      );
      expect(output).not.toContain("error TS");
      expect(status).toBe(0);
      const instantiations = Number(/^Instantiations:\s+(\d+)/m.exec(output)?.[1]);
      expect(instantiations).toBeGreaterThan(0);
      expect(instantiations).toBeLessThan(budget);
    });
  },
);
