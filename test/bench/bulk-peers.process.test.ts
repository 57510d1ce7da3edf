import { expect, it } from "vitest";
import type { Figure } from "../../bench/suite/figure.ts";
import { isLong } from "../matrix/long.ts";
import { underSanitizers } from "../processes/support/fabrics.ts";

/** As they are built: they start programs that lie beside the build. */
const built = (path: string) => import(new URL(`../../build/bench/${path}.js`, import.meta.url).href);

// Thirteen processes, which take seconds to start.
it.runIf(isLong && !underSanitizers)(
  "bulk-peers measures each situation over tcp beside node:net",
  async () => {
    const { bulkPeers } = await built("workloads/bulk-peers");
    const { ratiosOf } = await built("suite/ratios");
    const figures: Figure[] = await bulkPeers.run({
      quick: false,
      rounds: 1,
      roundMs: 40,
      contenders: ["tcp", "net-tcp"],
      tell: () => {},
      lack: (subject: string, why: string) => expect.fail(`${subject}: ${why}`),
    });
    for (const { rounds } of figures) expect(rounds[0]).toBeGreaterThan(0);
    const shares = figures.filter(({ unit }) => unit === "%").map(({ rounds }) => rounds[0]);
    expect(shares).toHaveLength(3);
    for (const share of shares) expect(share).toBeLessThanOrEqual(100);
    const names = ratiosOf(figures).map(({ name }: { name: string }) => name);
    for (const peers of ["one", "four", "busy"])
      for (const op of ["get", "put"])
        for (const measure of ["gbps", "cpu"])
          expect(names).toContain(`tcp.bulk_peers.${peers}.${op}_${measure}_vs_net`);
  },
);
