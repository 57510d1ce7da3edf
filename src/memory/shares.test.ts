import { expect, it } from "vitest";
import { Region } from "../bulk/region.ts";
import { RegionCore } from "../bulk/region-core.ts";
import { Shares } from "./shares.ts";

it("knows by itself when a lease is over, whatever the borrower's clock says", async () => {
  const shares = new Shares(() => ["mem://owner"], 1n);
  const region = new Region(
    new RegionCore({ onRegionReleased() {}, sharing: shares }, [new Uint8Array(8)], "read"),
  );
  const { token } = shares.share(region, { leaseMs: 1 });
  const until = performance.now() + 1;
  while (performance.now() < until) await new Promise(setImmediate);
  expect(() => shares.find(token)).toThrow("lease is over");
  const { token: good } = shares.share(region, {});
  expect(shares.find(good).region).toBe(region);
  region.dispose();
  expect(() => shares.find(good)).toThrow("no such handle");
});
