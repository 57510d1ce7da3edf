import { describe, expect, it } from "vitest";
import { frameKind, senderState } from "../../wire/frame.ts";
import { Arrivals } from "./arrivals.ts";
import { type FrameSpec, messageOf } from "./fake-services.test-support.ts";

const keepaliveFrame = { kind: frameKind.pong, method: senderState.busy };

function setUp() {
  const arrivals = new Arrivals();
  const view = (number: number, ...frames: FrameSpec[]) =>
    new DataView(messageOf(1, 1n, frames, number).buffer);
  return {
    take: (number: number, ...frames: FrameSpec[]) => {
      const message = view(number, ...frames);
      return arrivals.take(message, 0, message.byteLength);
    },
    missing: (number: number) => arrivals.missing(view(number), 0),
  };
}

describe("arrivals", () => {
  it("are taken in the order of their numbers", () => {
    const { take } = setUp();
    expect([1, 2, 3].map((number) => take(number))).toEqual([true, true, true]);
  });

  it("tell how many are missing, and take nothing of what came too early", () => {
    const { take, missing } = setUp();
    take(1);
    expect([take(4), missing(4), take(2)]).toEqual([false, 2, true]);
  });

  it.each([0, 1, 2, 0x8000_0003, 0xffff_ffff])("have a fault with number %i when 3 follows", (number) => {
    const { take, missing } = setUp();
    take(1);
    take(2);
    expect([take(number), missing(number)]).toEqual([false, 0]);
  });

  it("take a keepalive at any time, and nothing else without a number", () => {
    const { take } = setUp();
    expect([take(0, keepaliveFrame), take(1), take(0, keepaliveFrame), take(2)]).toEqual(Array(4).fill(true));
    expect([
      take(0),
      take(0, { kind: frameKind.pong }),
      take(0, keepaliveFrame, keepaliveFrame),
      take(0, { kind: frameKind.ping, method: senderState.busy }),
    ]).toEqual(Array(4).fill(false));
  });
});
