import { describe, expect, it } from "vitest";
import { everySchedule, type Played, type Scenario } from "./every-order.test-support.ts";

/** Eight members in a binary tree: 0 has 1 and 5 below it, 1 has 2 and 4, 2 has 3, and 5 has 6 and 7. */
const ranks = 8;
const chain = [1, 2, 3];

/** Compares what a caller may conclude from a result with what has run. */
function check({ log, result, runs }: Played): void {
  const lies = [...result.failed].flatMap(([rank, { executed }]) => {
    const times = runs[rank] as number;
    return (executed === "no" && times > 0) || (executed === "yes" && times === 0)
      ? [`rank ${rank} is said to have run: "${executed}"; it ran ${times} times`]
      : [];
  });
  for (const rank of result.ok)
    if (runs[rank] !== 1) lies.push(`rank ${rank} is ok and ran ${runs[rank]} times`);
  const twice = runs.findIndex((times) => times > 1);
  if (twice >= 0) lies.push(`rank ${twice} ran ${runs[twice]} times`);
  if (lies.length > 0) expect.fail([...lies, ...log].join("\n"));
  expect([...result.ok, ...result.failed.keys()].sort()).toEqual([...Array(runs.length).keys()]);
}

async function checkAll(schedules: AsyncIterable<Played>) {
  const seen = { schedules: 0, no: 0, maybe: 0, repaired: 0 };
  for await (const played of schedules) {
    check(played);
    seen.schedules++;
    for (const { executed } of played.result.failed.values()) if (executed !== "yes") seen[executed]++;
    seen.repaired += played.result.repaired.length;
  }
  return seen;
}

describe("what a collective says of ranks that failed", () => {
  it.each<Scenario>([
    { ranks, onFailure: "failout", faulty: chain, mostFaults: 3 },
    { ranks, onFailure: "partial", faulty: chain, mostFaults: 3 },
  ])("is true in every order of events, with $mostFaults faults and $onFailure", async (scenario) => {
    const seen = await checkAll(everySchedule(scenario));
    expect(seen.no).toBeGreaterThan(0);
    expect(seen.maybe).toBeGreaterThan(0);
    expect(seen.repaired > 0).toBe(scenario.onFailure === "partial");
  });
});
