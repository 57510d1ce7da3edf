import { spawnSync } from "node:child_process";
import { afterAll, describe, expect, it, vi } from "vitest";
import { isLong } from "../matrix/long.ts";
import { type Outcome, Play } from "./support/play.ts";
import { StateWatch } from "./support/states.ts";

// The engines are the real ones, down to where the fabric begins.
vi.mock("../../src/fabric/open-port.ts", () => import("./support/ports.ts"));

/** The schedules of the long form, from seed 1 on. The short form plays a fifth of them. */
const all = 10_000;
const parts = 5;

/** `CINNABAR_AMOUNT` schedules are played from `CINNABAR_SEED` on. A seed alone is played once and printed. */
const { CINNABAR_SEED: first, CINNABAR_AMOUNT: amount } = process.env;
const only = amount === undefined ? first : undefined;
const count = only === undefined ? Number(amount ?? (isLong ? all : all / parts)) : 1;
const firstSeed = Number(first ?? (isLong ? 1 : 1 + (all / parts) * partOfCommit()));

/** Each commit plays one part, and plays the same one again. */
function partOfCommit(): number {
  const { stdout } = spawnSync("git", ["rev-parse", "HEAD"], { encoding: "utf8" });
  return Number.parseInt(stdout?.slice(0, 8) || "0", 16) % parts;
}

/** How a failing schedule went, to be read from the end. */
const mostLines = 400;

/** Holds the states that calls, sessions and peers go through against docs/design/states.md. */
const states = new StateWatch();
states.install();
afterAll(() => states.uninstall());

describe("engines, in whatever order things happen", () => {
  it(`keep what they promise in ${count} schedules from seed ${firstSeed} on`, {
    timeout: count * 60 + 60_000,
  }, async () => {
    const seen = { schedules: 0, calls: 0, succeeded: 0, executions: 0, turns: 0 };
    for (let seed = firstSeed; seed < firstSeed + count; seed++) {
      const outcome = await new Play(seed, states, only !== undefined).run();
      if (only !== undefined) console.log(outcome.log.join("\n"));
      if (outcome.violations.length > 0) expect.fail(await explain(seed, outcome));
      seen.schedules++;
      for (const what of ["calls", "succeeded", "executions", "turns"] as const) seen[what] += outcome[what];
    }
    console.log(
      Object.entries(seen)
        .map(([what, times]) => `${times} ${what}`)
        .join(", "),
    );
    // Much of it must have come to something, or nothing was tried.
    if (count < 1000) return;
    expect(seen.succeeded / seen.calls).toBeGreaterThan(0.15);
    if (count < all) return;
    expect(states.unseen, "rows of docs/design/states.md that never happen").toEqual([]);
  });

  it("go the same way again from the same seed", async () => {
    for (let seed = firstSeed; seed < firstSeed + 20; seed++) {
      const [once, again] = [
        await new Play(seed, states, true).run(),
        await new Play(seed, states, true).run(),
      ];
      expect(again.log, `seed ${seed}`).toEqual(once.log);
    }
  });
});

async function explain(seed: number, { violations }: Outcome): Promise<string> {
  const { log } = await new Play(seed, states, true).run();
  const replay = `CINNABAR_SEED=${seed} npx vitest run test/model`;
  return [...violations, `again by ${replay}`, ...log.slice(-mostLines)].join("\n");
}
