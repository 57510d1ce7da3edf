import { afterAll, beforeAll, expect, it } from "vitest";
import {
  bundleEcho,
  type CallFunction,
  count,
  countByRoom,
  functionsOfCall,
  removeBundle,
} from "./support/call-functions.ts";

/**
 * How many functions of the library one unary call runs, on each side. A processor that others use runs a call with cold
 * caches, and each function is code and data to fetch. So a change that adds more than two fails, and one that takes some
 * away writes the new number here. The design page of the hot path has the numbers by room.
 */
const most: Readonly<Record<string, { readonly client: number; readonly server: number }>> = {
  tcp: { client: 98, server: 88 },
  shm: { client: 98, server: 88 },
  net: { client: 116, server: 105 },
};
const slack = 2;
/** A busy processor makes calls wait, and what waits runs more functions. So the smallest count of some runs is judged. */
const mostRuns = 4;

const urls = {
  tcp: "tcp://127.0.0.1:0",
  shm: `shm://call-functions-${process.pid}`,
  net: "net://127.0.0.1:0",
};

let bundle: Awaited<ReturnType<typeof bundleEcho>>;
beforeAll(async () => {
  bundle = await bundleEcho();
});
afterAll(() => removeBundle(bundle.folder));

it.each(Object.entries(urls))(
  "a unary call over %s runs no more functions than before",
  async (fabric, url) => {
    const bounds = most[fabric] ?? { client: 0, server: 0 };
    const fewest: { client?: readonly CallFunction[]; server?: readonly CallFunction[] } = {};
    const isWithin = (side: "client" | "server"): boolean =>
      fewest[side] !== undefined && count(fewest[side]) <= bounds[side] + slack;
    for (let run = 0; run < mostRuns && !(isWithin("client") && isWithin("server")); run++) {
      const sides = await functionsOfCall(bundle.file, url);
      for (const side of ["client", "server"] as const) {
        const former = fewest[side];
        if (former === undefined || count(sides[side]) < count(former)) fewest[side] = sides[side];
      }
    }
    for (const side of ["client", "server"] as const) {
      const functions = fewest[side] ?? [];
      const report = `the ${side} over ${fabric}:\n${listed(functions)}`;
      expect(count(functions), report).toBeGreaterThan(40);
      expect(count(functions), report).toBeLessThanOrEqual(bounds[side] + slack);
    }
  },
);

function listed(functions: readonly CallFunction[]): string {
  const rows = functions
    .filter(({ perCall }) => perCall >= 0.1)
    .map(({ name, file, perCall }) => `${perCall.toFixed(2)} ${name} ${file}`);
  const entered = functions.reduce((sum, { perCall }) => sum + perCall, 0);
  return [
    ...rows,
    JSON.stringify(countByRoom(functions)),
    `${count(functions).toFixed(1)} functions, entered ${entered.toFixed(0)} times`,
  ].join("\n");
}
