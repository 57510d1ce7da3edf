import { describe, expect, it } from "vitest";
import { frameKind, senderState } from "../../wire/frame.ts";
import { type FrameSpec, messageOf } from "../connection/fake-services.test-support.ts";
import { Inbox, MessageTurns, type Receiver } from "./inbox.ts";

const keepaliveFrame = { kind: frameKind.pong, method: senderState.busy };

function setUp() {
  const port = { slab: new Uint8Array(0), slabView: new DataView(new ArrayBuffer(0)) };
  /** What became of the messages: taken, refused with as many lost before them, or a fault. */
  const outcomes: (string | number)[] = [];
  const inbox = new Inbox({
    port,
    account: { pulls: { take: () => true } },
    openWork: 0,
    receiveOutOfOrder: (_offset: number, _bytes: number, lost: number) => void outcomes.push(lost),
    fault: (text: string) => void outcomes.push(text),
  } as unknown as Receiver);
  const turns = new MessageTurns(1);
  const arriveBeside = (isAlone: boolean, number: number, ...frames: FrameSpec[]) => {
    const message = messageOf(1, 1n, frames, number);
    port.slab = message;
    port.slabView = new DataView(message.buffer);
    const clearBytes = inbox.open(0, message.byteLength, turns);
    const isTaken = (isAlone && inbox.deferred.length === 0) || turns.admits(inbox, 0, clearBytes);
    if (clearBytes > 0 && isTaken) outcomes.push("taken");
    return outcomes.splice(0);
  };
  const arrive = (number: number, ...frames: FrameSpec[]) => arriveBeside(true, number, ...frames);
  return { inbox, arrive, arriveBeside };
}

describe("an inbox", () => {
  it("takes messages in the order of their numbers", () => {
    const { arrive } = setUp();
    expect([1, 2, 3].flatMap((number) => arrive(number))).toEqual(["taken", "taken", "taken"]);
  });

  it("tells how many are missing, and goes on where it was", () => {
    const { arrive } = setUp();
    arrive(1);
    expect([...arrive(4), ...arrive(2)]).toEqual([2, "taken"]);
  });

  it.each([0, 1, 2, 0x8000_0003, 0xffff_ffff])("has a fault with number %i when 3 follows", (number) => {
    const { arrive } = setUp();
    arrive(1);
    arrive(2);
    expect(arrive(number)).toEqual([0]);
  });

  it("takes a keepalive at any time, and nothing else without a number", () => {
    const { arrive } = setUp();
    const taken = [arrive(0, keepaliveFrame), arrive(1), arrive(0, keepaliveFrame), arrive(2)];
    expect(taken.flat()).toEqual(Array(4).fill("taken"));
    const refused = [
      arrive(0),
      arrive(0, { kind: frameKind.pong }),
      arrive(0, keepaliveFrame, keepaliveFrame),
      arrive(0, { kind: frameKind.ping, method: senderState.busy }),
    ];
    expect(refused.flat()).toEqual(Array(4).fill(0));
  });

  it("defers messages beyond the turn of the session, unless it has no others beside it", () => {
    const { inbox, arriveBeside } = setUp();
    const cancels = Array.from({ length: 400 }, () => ({ kind: frameKind.cancel }));
    for (let number = 1; number <= 20; number++)
      expect(arriveBeside(true, number, ...cancels)).toEqual(["taken"]);
    expect(arriveBeside(false, 21, ...cancels)).toEqual(["taken"]);
    expect([arriveBeside(false, 22, ...cancels), inbox.deferred.length]).toEqual([[], 1]);
    // What came first is taken first.
    expect([arriveBeside(true, 23), inbox.deferred.length]).toEqual([[], 2]);
  });

  it("takes messages that are numbered anew when the peer begins again", () => {
    const { inbox, arrive } = setUp();
    arrive(1);
    inbox.restart();
    expect(arrive(1)).toEqual(["taken"]);
  });
});
