import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { deriveLimits } from "../../src/base/flow/engine-limits.ts";

const mebi = 1024 * 1024;
const units: Record<string, number> = { MiB: mebi, GiB: 1024 * mebi };

/** "12.8 MiB" in bytes, or "65,536". */
function amountOf(cell: string): number {
  const [number, unit] = cell.split(" ") as [string, string?];
  return Number(number.replaceAll(",", "")) * (unit === undefined ? 1 : (units[unit] as number));
}

it("the table of limits in the guide has what derives from 10 GiB and from 128 MiB", () => {
  const guide = readFileSync(new URL("../../docs/guide/limits.md", import.meta.url), "utf8");
  const rows = [...guide.matchAll(/^\| `(\w+)` \|.*\| ([\d.,]+(?: \w+)?) \| ([\d.,]+(?: \w+)?) \|$/gm)];
  const large = deriveLimits(10 * 1024 * mebi, 4 * 1024 * mebi);
  const small = deriveLimits(128 * mebi, 64 * mebi);
  expect(rows.map(([, name]) => name).sort()).toEqual(Object.keys(large).sort());
  for (const [, key, ofLarge = "", ofSmall = ""] of rows) {
    const name = key as keyof typeof large;
    expect([name, amountOf(ofLarge)]).toEqual([name, large[name]]);
    // The guide has one digit behind the point.
    expect([name, Math.abs(amountOf(ofSmall) - small[name]) < 0.05 * mebi]).toEqual([name, true]);
    if (!ofSmall.endsWith("MiB")) expect([name, amountOf(ofSmall)]).toEqual([name, small[name]]);
  }
});
