import { describe, expect, it } from "vitest";
import { frameKind } from "../../wire/frame.ts";
import { Nonce } from "../../wire/message.ts";
import { FakePort } from "../connection/fake-port.test-support.ts";
import { FakeServices, messageOf, peerGreeting } from "../connection/fake-services.test-support.ts";
import { Session } from "../connection/session.ts";
import { MessageTurns } from "./inbox.ts";

function setUp({ slots = 8, maxPullBytes = 1e9, maxRequests = 100 } = {}) {
  const host = new FakeServices({ maxPullBytes });
  const port = new FakePort(slots, 16_384);
  const turns = new MessageTurns(maxRequests);
  /** Words of cancels, in the order in which sessions took them. */
  const taken: string[] = [];
  const open = (name: string) => {
    const part = () => ({
      frames: {
        [frameKind.cancel]: (at: number) =>
          void taken.push(`${name}${port.slabView.getUint32(at + 12, true)}`),
      },
      openWork: 0,
      end() {},
    });
    const identity = { address: 4, index: 2, nonce: new Nonce(0x2222n), peerName: name };
    const session = new Session(host.terms([part]), port, identity, {} as never);
    session.begin(peerGreeting);
    return session;
  };
  const arrive = (session: Session, frames: number, word = 0) => {
    const cancels = Array.from({ length: frames }, (_, i) => ({ kind: frameKind.cancel, word: word + i }));
    const bytes = messageOf(2, 0x2222n, cancels);
    const offset = port.receive(bytes);
    if (turns.admits(session.inbox, offset, bytes.byteLength)) session.receive(offset, bytes.byteLength);
  };
  return { host, port, turns, taken, open, arrive };
}

describe("sessions that take turns", () => {
  it("are heard in order, and a peer that sends too much after the others", () => {
    const { host, port, turns, taken, open, arrive } = setUp();
    const greedy = open("g");
    const honest = open("h");
    const free = port.freeSlots;
    for (let word = 0; word < 20; word++) arrive(greedy, 200, word * 200);
    arrive(honest, 1, 7);
    // Two messages fit a turn; the third would exceed it.
    expect([taken.length, taken.at(-1)]).toEqual([401, "h7"]);
    expect(host.budgets.pulls.bytes).toBe(18 * (24 + 200 * 16 + 256));
    while (turns.endTurn());
    expect(taken.filter((word) => word !== "h7")).toEqual(Array.from({ length: 4000 }, (_, i) => `g${i}`));
    expect([host.budgets.pulls.bytes, port.freeSlots]).toEqual([0, free]);
    // The next turn is a new one.
    arrive(greedy, 200, 4000);
    expect(taken.at(-1)).toBe("g4199");
  });

  it("are not deferred for one message that is long", () => {
    const { taken, open, arrive } = setUp();
    arrive(open("o"), 600);
    expect(taken).toHaveLength(600);
  });

  it("keep their order while some of it waits", () => {
    const { turns, taken, open, arrive } = setUp({ slots: 1 });
    const session = open("s");
    for (let i = 0; i < 5; i++) arrive(session, 200, i * 200);
    // No slot to read in: nothing is lost, nothing spins.
    const slot = session.port.takeSlot();
    expect(turns.endTurn()).toBe(false);
    arrive(session, 1, 1000);
    expect(taken).toHaveLength(400);
    session.port.returnSlot(slot);
    while (turns.endTurn());
    expect(taken).toEqual(Array.from({ length: 1001 }, (_, i) => `s${i}`));
  });

  it("lose what waits with their session, and are finished when the peer is gone", () => {
    const { host, turns, taken, open, arrive } = setUp();
    const [gone, ended] = [open("a"), open("b")];
    for (const session of [gone, ended]) for (let i = 0; i < 4; i++) arrive(session, 200);
    turns.finish(gone.inbox);
    turns.drop(ended.inbox);
    expect([taken.length, host.budgets.pulls.bytes]).toEqual([1200, 0]);
    expect(turns.endTurn()).toBe(false);
  });

  it("end when a peer has more on the way than an honest one can have, or than its share", () => {
    const many = setUp();
    const flooding = many.open("f");
    for (let i = 0; flooding.state === "open"; i++) {
      expect(i).toBeLessThan(400);
      many.arrive(flooding, 200);
    }
    many.turns.drop(flooding.inbox);
    expect(many.host.ended[0]?.reason).toMatchObject({ code: "resource_exhausted" });
    expect(many.host.budgets.pulls.bytes).toBe(0);

    const long = setUp({ maxPullBytes: 100_000 });
    const other = long.open("o");
    for (let i = 0; other.state === "open"; i++) {
      expect(i).toBeLessThan(30);
      long.arrive(other, 200);
    }
    expect(long.host.ended[0]?.reason?.message).toContain("o has ");
  });
});
