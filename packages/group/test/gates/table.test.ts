import { expect, it } from "vitest";
import { tableRow, verdict } from "./table.ts";

it("a row says what the limit is, and whether it is missed", () => {
  const figure = { run: "N 16", name: "all know", value: 12.3456 };
  expect(tableRow("L1", figure)).toBe("| L1 | N 16 | all know | 12.3 | – |");
  expect(tableRow("L1", { ...figure, max: 13 })).toBe("| L1 | N 16 | all know | 12.3 | at most 13 |");
  expect(tableRow("L1", { ...figure, min: 1, max: 12 })).toBe(
    "| L1 | N 16 | all know | 12.3 | at least 1, at most 12 **missed** |",
  );
  expect([0, 1, 2].map(verdict)).toEqual([
    "all hold",
    "one figure misses its limit",
    "2 figures miss their limit",
  ]);
});
