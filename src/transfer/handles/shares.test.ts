import { expect, it } from "vitest";
import { Region } from "../../memory/region.ts";
import { RegionCore } from "../../memory/region-core.ts";
import { tokenOf } from "../../memory/region-handle.ts";
import { Shares } from "./shares.ts";

it("knows by itself when a lease is over, whatever the borrower's clock says", async () => {
  const shares = new Shares(() => ["mem://owner"], 1n);
  const region = new Region(new RegionCore({ onRegionReleased() {} }, [new Uint8Array(8)], "read"), shares);
  const token = tokenOf(shares.share(region, { leaseMs: 1 }));
  const until = performance.now() + 1;
  while (performance.now() < until) await new Promise(setImmediate);
  expect(() => shares.find(token)).toThrow("the lease of the handle has ended");
  const good = tokenOf(shares.share(region, {}));
  expect(shares.find(good).region).toBe(region);
  region.dispose();
  expect(() => shares.find(good)).toThrow("the handle is unknown");
});
