import { expect, it } from "vitest";
import { resultsOf } from "../../bench/suite/results.ts";

const figure = (name: string, value: number) => ({
  ...{ name, rounds: [value], workload: "bulk-registration", subject: "Cinnabar", chart: "", load: 0 },
  ...({ unit: "µs", better: "less" } as const),
});
const measured = (device?: string) => ({
  settings: { command: "", quick: true, rounds: 1, roundMs: 1, ...(device === undefined ? {} : { device }) },
  ...{ startedAt: "", seconds: 1, load: { before: 0, after: 0 }, workloads: [], lacks: [], failures: [] },
  figures: [
    figure("verbs.registration.16MiB.register_us", 6),
    figure("verbs.registration.16MiB.moved.region_us", 12),
    figure("verbs.registration.16MiB.moved.call_us", 18),
  ],
});

it("results name the ratios over a device after it, and after verbs where it has no name", () => {
  const named = resultsOf(measured("rxe"));
  expect(named.ratios).toEqual({
    "rxe.bulk.16MiB.region_vs_call": 12 / 18,
    "rxe.bulk.16MiB.registration_vs_move": 0.5,
  });
  expect(named.ratioDetails.map(({ name }) => name).sort()).toEqual(Object.keys(named.ratios).sort());
  expect(Object.keys(resultsOf(measured()).ratios)).toContain("verbs.bulk.16MiB.region_vs_call");
});
