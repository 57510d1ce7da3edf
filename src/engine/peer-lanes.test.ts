import { describe, expect, it, vi } from "vitest";
import type { LaneAddress } from "../wire/handshake.ts";
import type { Peer } from "./peer.ts";
import type { PeerGroup } from "./peer-group.ts";
import { PeerLanes } from "./peer-lanes.ts";

const lane = (incarnation: bigint): LaneAddress => ({ url: "mem://lane", incarnation });

function lanesAt(...lanes: LaneAddress[]) {
  const group = { onLaneGone: vi.fn(), tryNow: async () => {}, close() {} };
  const front = { url: "mem://front" } as Peer;
  const opener = { group: () => group as unknown as PeerGroup };
  return { gone: group.onLaneGone, lanes: new PeerLanes(front, lanes, opener) };
}

describe("lanes that are not named any more", () => {
  it("have ended for certain, says who named them", () => {
    const { gone, lanes } = lanesAt(lane(1n));
    lanes.onLanes([lane(0n)], true);
    expect(gone.mock.calls).toEqual([["mem://lane", 1n, true]]);
  });

  it("may live, for all that another engine at the address knows of them", () => {
    const { gone, lanes } = lanesAt(lane(1n));
    lanes.onLanes([lane(2n)], false);
    expect(gone.mock.calls).toEqual([["mem://lane", 1n, false]]);
  });
});
