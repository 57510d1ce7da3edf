import { describe, expect, it } from "vitest";
import type { FiRma, RmaMeasured } from "../../bench/floor/fi-rma.ts";
import type { Figure } from "../../bench/suite/figure.ts";
import { providers } from "../../src/fabric/libfabric/libfabric.ts";
import { isLong } from "../matrix/long.ts";
import { underSanitizers } from "../processes/support/fabrics.ts";

/** As they are built: they start programs that lie beside the build. */
const built = (path: string) => import(new URL(`../../build/bench/${path}.js`, import.meta.url).href);

const { libfabric, providers: all } = providers();
const tcp = all.find(({ scheme, available }) => scheme === "tcp" && available);

// It compiles a program, which takes seconds, and libfabric is not built for sanitizers.
describe.skipIf(underSanitizers || tcp === undefined)("the floor under bulk transfers", () => {
  it("reads and writes over a bare provider, and an end before its time is an error", async () => {
    const { FiRma } = await built("floor/fi-rma");
    const floor: FiRma = await FiRma.start(tcp?.provider ?? "", libfabric.path);
    try {
      for (const op of ["read", "write"] as const) {
        const measured: RmaMeasured = await floor.move(op, 65_536, 4, 1);
        expect(measured.transfers).toBeGreaterThanOrEqual(4);
        expect(measured.elapsedMs).toBeGreaterThan(0);
        expect(measured.cpuMs).toBeGreaterThan(0);
      }
      await expect(floor.move("read", 0, 1, 1)).rejects.toThrow("has ended too early");
    } finally {
      await floor.end();
    }
  });

  it.runIf(isLong)("gives the ratio that the quick form promises", async () => {
    const { bulkFloor } = await built("workloads/bulk-floor");
    const { ratiosOf } = await built("suite/ratios");
    const figures: Figure[] = await bulkFloor.run({
      quick: true,
      rounds: 1,
      roundMs: 40,
      tell: () => {},
      lack: (subject: string, why: string) => {
        throw new Error(`${subject}: ${why}`);
      },
    });
    expect(ratiosOf(figures).map(({ name }: { name: string }) => name)).toContain(
      "tcp.bulk.1MiB.gbps_vs_floor",
    );
  });
});
