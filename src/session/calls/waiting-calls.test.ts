import { describe, expect, it, vi } from "vitest";
import type { Priority } from "../../base/flow/priority.ts";
import { frameFlag, frameKind, senderState } from "../../wire/frame.ts";
import { FakeCall, peerGreeting } from "../connection/fake-services.test-support.ts";
import { decoded, expectFault, gone, open } from "./scripted-session.test-support.ts";

const slots = peerGreeting.requests;
const laterMs = 10_000;

/** A session with a full window. Its sent messages are forgotten. */
function full(limits?: Parameters<typeof open>[0]) {
  const all = open(limits);
  const inFlight = Array.from({ length: slots }, () => new FakeCall());
  for (const call of inFlight) all.outgoing.request(call, 0, laterMs, undefined);
  all.session.flush();
  all.port.sent.length = 0;
  const wait = (priority: Priority, input: unknown = undefined) => {
    const call = new FakeCall({ priority });
    all.outgoing.request(call, 1, laterMs, input);
    return call;
  };
  /** The peer answers so many, and what is sent then is returned. */
  const answer = (count: number) => {
    all.port.sent.length = 0;
    const open = [...all.outgoing].slice(0, count);
    all.receive(...open.map(({ id }) => ({ kind: frameKind.response, callId: id })));
    return all.port.frames;
  };
  return { ...all, inFlight, wait, answer };
}

describe("calls that find the window full", () => {
  it("wait, with nothing sent and no number, and leave one by one as others end", () => {
    const all = full();
    const [first, second] = [all.wait("normal", "one"), all.wait("normal", "two")];
    all.session.flush();
    expect([all.port.frames.length, first.id, first.phase, first.unsentPhase]).toEqual([
      0,
      0,
      "waiting",
      "waiting",
    ]);
    expect([all.outgoing.waiting.size, all.outgoing.size]).toEqual([2, slots]);
    expect(all.answer(1).map(decoded)).toEqual(["one"]);
    expect([first.phase, second.phase]).toEqual(["sent", "waiting"]);
    expect(all.answer(1).map(decoded)).toEqual(["two"]);
    expect([all.outgoing.waiting.size, all.outgoing.waiting.bytes]).toEqual([0, 0]);
    expect(all.host.counters).toMatchObject({ callsWaited: 2, callsNotAdmitted: 0 });
  });

  it("state the time they have left when they leave, and remember when that was", () => {
    const all = full();
    const call = all.wait("normal");
    call.startedMs = all.host.clock.now();
    all.host.clock.advance(3000);
    expect(all.answer(1)).toMatchObject([{ word: laterMs - 1000 - 3000 }]);
    expect(call.sentUs).toBe(3_000_000);
  });

  it("go by priority, which travels with them", () => {
    const all = full();
    for (const priority of ["normal", "control", "normal"] as const) all.wait(priority, priority);
    const sent = all.answer(3);
    expect(sent.map(decoded)).toEqual(["control", "normal", "normal"]);
    expect(sent.map(({ flags }) => flags)).toEqual([frameFlag.control, 0, 0]);
  });

  it("keep others behind them that come when there is a place again", () => {
    const all = full({ maxQueuedBytes: 1 });
    all.wait("normal", "first");
    const [call] = all.inFlight as [FakeCall];
    // A place, but the outbox is full: none can leave.
    const blocked = vi.spyOn(all.port, "takeSlot").mockReturnValue(-1);
    all.session.ping();
    all.receive({ kind: frameKind.response, callId: call.id });
    const second = all.wait("normal", "second");
    expect([all.outgoing.waiting.size, second.id]).toEqual([2, 0]);
    blocked.mockRestore();
    all.session.flush();
    all.session.flush();
    expect(all.port.frames.map(decoded)).toEqual([undefined, "first"]);
  });

  it("leave when the outbox has room again, and no call ends", () => {
    const all = open({ maxQueuedBytes: 1 });
    const blocked = vi.spyOn(all.port, "takeSlot").mockReturnValue(-1);
    all.session.ping();
    const call = new FakeCall();
    all.outgoing.request(call, 0, laterMs, undefined);
    expect([all.outgoing.waiting.size, all.session.hasOpenWork]).toEqual([1, true]);
    blocked.mockRestore();
    all.session.flush();
    all.session.flush();
    expect([call.phase, all.outgoing.waiting.size]).toEqual(["sent", 0]);
    expect(all.port.frames.map(({ kind }) => kind)).toEqual([frameKind.ping, frameKind.request]);
  });

  it("give their room back at once when they are given up, and are never sent", () => {
    const all = full();
    const [given, kept] = [all.wait("normal", "given"), all.wait("normal", "kept")];
    given.giveUp();
    all.outgoing.cancel(given);
    expect([all.outgoing.waiting.size, all.outgoing.waiting.bytes]).toEqual([1, 20]);
    expect(all.answer(2).map(decoded)).toEqual(["kept"]);
    expect([given.id, kept.phase]).toEqual([0, "sent"]);
  });

  it("fail when their input cannot be encoded, and let the next go", () => {
    const all = full();
    const [bad, good] = [all.wait("normal", 2n ** 9000n), all.wait("normal", "good")];
    const sent = all.answer(1);
    expect(bad.failures[0]?.code).toBe("invalid_argument");
    expect(sent.map(decoded)).toEqual(["good"]);
    expect([bad.id, good.phase, all.outgoing.size]).toEqual([0, "sent", slots]);
  });

  it("may be given up by their own input, before they wait and while they leave", () => {
    const all = full();
    const endedBy = (on: number) => {
      let looks = 0;
      const call = new FakeCall();
      const input = {
        get a(): number {
          if (++looks === on) {
            call.giveUp();
            all.outgoing.cancel(call);
          }
          return 1;
        },
      };
      all.outgoing.request(call, 1, laterMs, input);
      return call;
    };
    endedBy(1);
    expect(all.outgoing.waiting.size).toBe(0);
    const late = endedBy(2);
    expect(all.outgoing.waiting.size).toBe(1);
    all.answer(1);
    all.session.flush();
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.cancel, callId: late.id });
  });

  it("are bounded in number: a control call takes the place of another, which hears of it", () => {
    const all = open({}, {}, { maxWaiting: 2 });
    for (let i = 0; i < slots; i++) all.outgoing.request(new FakeCall(), 0, laterMs, undefined);
    const calls = [new FakeCall(), new FakeCall()] as const;
    for (const call of calls) all.outgoing.request(call, 0, laterMs, undefined);
    expect(() => all.outgoing.request(new FakeCall(), 0, laterMs, undefined)).toThrow(
      "its window of 8 (of 8 granted) is full, and 2 calls with 32 bytes wait, maxWaiting is 2",
    );
    all.outgoing.request(new FakeCall({ priority: "control" }), 0, laterMs, undefined);
    expect(calls[1].failures[0]).toMatchObject({ code: "resource_exhausted", notExecuted: true });
    expect(calls[1].failures[0]?.message).toContain("a control call displaced this one");
    expect([calls[0].failures.length, all.outgoing.waiting.size]).toEqual([0, 2]);
    expect(all.host.counters).toMatchObject({ callsWaited: 3, callsNotAdmitted: 2 });
  });

  it("are bounded in bytes", () => {
    const all = open({}, {}, { maxWaitingBytes: 1024 });
    for (let i = 0; i < slots; i++) all.outgoing.request(new FakeCall(), 0, laterMs, undefined);
    all.outgoing.request(new FakeCall(), 0, laterMs, new Uint8Array(900));
    expect(() => all.outgoing.request(new FakeCall(), 0, laterMs, new Uint8Array(900))).toThrow(
      "1 calls with 916 bytes wait, maxWaiting is 131072, maxWaitingBytes 1024",
    );
    all.outgoing.request(new FakeCall(), 0, laterMs, 1);
    expect([all.outgoing.waiting.size, all.outgoing.waiting.bytes]).toEqual([2, 932]);
  });

  it("have not been executed when the session ends, and say so", () => {
    const all = full();
    const call = all.wait("normal", "never sent");
    all.session.end(gone);
    expect(call.failures).toMatchObject([{ code: "unavailable", notExecuted: true, cause: gone }]);
    expect(all.inFlight[0]?.failures).toEqual([gone]);
    expect([all.outgoing.waiting.size, all.outgoing.waiting.bytes]).toEqual([0, 0]);
  });

  it("are not sent to a peer that drains", () => {
    const all = full();
    const call = all.wait("normal");
    all.receive({ kind: frameKind.ping, method: senderState.draining });
    expect(call.failures).toMatchObject([{ code: "unavailable", notExecuted: true }]);
    expect(all.outgoing.waiting.size).toBe(0);
  });

  it("are bounded by the connect option too", () => {
    const all = open({}, {}, { maxInFlight: 2 });
    const calls = [new FakeCall(), new FakeCall(), new FakeCall()];
    for (const call of calls) all.outgoing.request(call, 0, laterMs, "x");
    expect(calls.map(({ phase }) => phase)).toEqual(["sent", "sent", "waiting"]);
    expect(all.outgoing.window.stats()).toEqual({ limit: 2, credits: slots });
  });
});

describe("credits", () => {
  it("bound what is sent from then on, and let more go when they rise", () => {
    const all = open();
    all.receive({ kind: frameKind.credits, word: 2 });
    const calls = Array.from({ length: 6 }, () => new FakeCall());
    for (const call of calls) all.outgoing.request(call, 0, laterMs, "x");
    expect([all.outgoing.size, all.outgoing.waiting.size]).toEqual([2, 4]);
    all.receive({ kind: frameKind.credits, word: 5 });
    expect([all.outgoing.size, all.outgoing.waiting.size]).toEqual([5, 1]);
    // What is in flight stays; nothing more goes until there is less.
    all.receive({ kind: frameKind.credits, word: 1 });
    expect(all.outgoing.size).toBe(5);
    for (const { id } of calls.slice(0, 4)) all.receive({ kind: frameKind.response, callId: id });
    expect([all.outgoing.size, all.outgoing.waiting.size]).toEqual([1, 1]);
    all.receive({ kind: frameKind.response, callId: (calls[4] as FakeCall).id });
    expect([all.outgoing.size, all.outgoing.waiting.size]).toEqual([1, 0]);
    expect(all.port.frames.some(({ flags }) => (flags & ~frameFlag.rendezvous) !== 0)).toBe(false);
  });

  it.each([0, slots + 1, 0xffff_ffff])("end the session when they are %i", (word) => {
    const all = open();
    all.receive({ kind: frameKind.credits, word });
    expectFault(all, `${word} credits are not between 1 and the ${slots} it takes at most`);
  });
});
