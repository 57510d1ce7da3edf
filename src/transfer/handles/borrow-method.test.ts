import { expect, it } from "vitest";
import { systemClock } from "../../base/time/clock.ts";
import { IncomingCall, type Outcome } from "../../call/incoming-call.ts";
import { Region } from "../../memory/region.ts";
import { RegionCore } from "../../memory/region-core.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { borrowMethod, type Shares } from "./shares.ts";

it("a peer that borrows again and again has 256 regions at most, and others are lent to", async () => {
  const region = new Region(new RegionCore({ onRegionReleased() {} }, [new Uint8Array(8)], "read"));
  const shares = { find: () => ({ region, endsMs: systemClock.now() + 60_000 }) } as unknown as Shares;
  const method = borrowMethod(shares, 7n);
  const ends: (() => void)[] = [];
  const peer = () =>
    ({
      refusalOf: () => undefined,
      request: () => new Promise((resolve) => ends.push(() => resolve(undefined))),
    }) as unknown as PeerLink;
  const borrow = (from: PeerLink, ticket: number) =>
    new Promise<string>((resolve) => {
      const answer = (_: IncomingCall, { error }: Outcome) => resolve(error?.code ?? "ok");
      method.serve(new IncomingCall({ takeOutcome: answer }, 1, 0), from, [
        new Uint8Array(16),
        7n,
        BigInt(ticket),
      ]);
    });
  const greedy = peer();
  for (let ticket = 0; ticket < 256; ticket++) expect(await borrow(greedy, ticket)).toBe("ok");
  expect(await borrow(greedy, 256)).toBe("resource_exhausted");
  expect(await borrow(peer(), 0)).toBe("ok");
  ends[0]?.();
  await new Promise(setImmediate);
  expect([await borrow(greedy, 257), await borrow(greedy, 258)]).toEqual(["ok", "resource_exhausted"]);
});
