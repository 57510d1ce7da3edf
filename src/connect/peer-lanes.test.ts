import { describe, expect, it, vi } from "vitest";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import type { BackendSet } from "./backend-set.ts";
import { PeerLanes } from "./peer-lanes.ts";

const lane = (incarnation: bigint): LaneAddress => ({ url: "mem://lane", incarnation });

function lanesAt(...lanes: LaneAddress[]) {
  const backends = { onGone: vi.fn(), tryNow: async () => {}, close() {} };
  const context = {
    url: "mem://dispatcher",
    clock: new FakeClock(),
    backends: () => backends as unknown as BackendSet,
    keepDispatcher: () => () => {},
  };
  return { gone: backends.onGone, lanes: new PeerLanes(context, lanes) };
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
