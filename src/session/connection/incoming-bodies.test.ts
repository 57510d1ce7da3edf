import { describe, expect, it } from "vitest";
import { frameFlag, frameKind, rendezvousOwner } from "../../wire/frame.ts";
import {
  expectFault,
  id,
  messageBody,
  open,
  rendezvousBody,
  settled,
} from "../calls/scripted-session.test-support.ts";
import type { FrameSpec } from "./fake-services.test-support.ts";

describe("rendezvous bodies", () => {
  const long = "x".repeat(10_000);
  const bytes = messageBody(long);
  const rendezvous: FrameSpec = {
    kind: frameKind.request,
    callId: id(1, 0),
    word: 1000,
    flags: frameFlag.rendezvous,
    body: rendezvousBody(bytes.byteLength, 42n),
  };

  /** A chunk of 1,000 bytes arrives every so many milliseconds. */
  const pullSlowly = (all: ReturnType<typeof open>, everyMs: number) => {
    all.port.maxTransferBytes = 1000;
    all.receive(rendezvous);
    for (let at = 0; at < bytes.byteLength; at += 1000) {
      const pull = all.port.pulls[at / 1000];
      all.host.clock.advance(everyMs);
      pull?.into.set(bytes.subarray(at, at + 1000));
      pull?.settle(0);
    }
  };

  it("are pulled, confirmed, and served", async () => {
    const all = open();
    all.receive(rendezvous);
    expect([all.method.calls.length, all.host.budgets.pulls.bytes, all.port.pulls[0]?.key]).toEqual([
      0,
      bytes.byteLength,
      42n,
    ]);
    all.port.pulls[0]?.into.set(bytes);
    all.port.pulls[0]?.settle(0);
    await settled();
    all.session.flush();
    expect(all.method.calls[0]?.input).toBe(long);
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.pulled, callId: id(1, 0), word: rendezvousOwner.request },
    ]);
    // Its memory counts as long as the call may use it.
    expect([all.host.budgets.pulls.bytes, all.port.regions.size, all.host.counters.bodiesPulled]).toEqual([
      bytes.byteLength,
      0,
      1,
    ]);
    expect(all.host.budgets.decoded.bytes).toBeGreaterThan(long.length);
    const greetingBytes = all.host.budgets.decoded.bytes;
    all.method.calls[0]?.call.settle({ value: undefined });
    expect(all.host.budgets.pulls.bytes).toBe(0);
    expect(all.host.budgets.decoded.bytes).toBeLessThan(greetingBytes - long.length);
  });

  it("are read without a word while they take less than a quarter of what the peer waits", async () => {
    const all = open({}, { bodyStallMs: 400 });
    pullSlowly(all, 9);
    await settled();
    all.session.flush();
    expect(all.kinds()).toEqual([frameKind.pulled]);
  });

  it("that take longer tell the peer what is read, once in a quarter of what it waits", async () => {
    const all = open({}, { bodyStallMs: 400 });
    pullSlowly(all, 50);
    await settled();
    all.session.flush();
    const pulling = { kind: frameKind.pulling, callId: 0, word: 2000 };
    expect(all.port.frames).toMatchObject([
      ...Array.from({ length: 5 }, () => pulling),
      { kind: frameKind.pulled },
    ]);
    // What is read of the next one counts anew.
    all.receive({ ...rendezvous, callId: id(1, 1) });
    all.host.clock.advance(150);
    all.port.pulls[11]?.settle(0);
    all.session.flush();
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.pulling, word: 1000 });
  });

  it("that come at once are served in several turns of the loop, where each takes long", async () => {
    const all = open();
    const serve = all.method.serve.bind(all.method);
    all.method.serve = (...args) => {
      const endMs = performance.now() + 6;
      while (performance.now() < endMs);
      serve(...args);
    };
    for (let index = 0; index < 3; index++) all.receive({ ...rendezvous, callId: id(1, index) });
    for (const pull of all.port.pulls) {
      pull.into.set(bytes);
      pull.settle(0);
    }
    const served: number[] = [];
    for (let turn = 0; turn < 3; turn++) {
      await settled();
      // Those that wait for their turn count in the budget, as those that are served do.
      expect(all.host.budgets.pulls.bytes).toBe(3 * bytes.byteLength);
      served.push(all.method.calls.length);
    }
    expect(served).toEqual([1, 2, 3]);
  });

  it("fail their call alone when pulling fails", async () => {
    const all = open();
    all.receive(rendezvous);
    all.port.pulls[0]?.settle(5);
    await settled();
    all.session.flush();
    expect(all.kinds()).toEqual([frameKind.pulled, frameKind.error]);
    expect([all.session.state, all.host.budgets.pulls.bytes, all.port.regions.size]).toEqual(["open", 0, 0]);
  });

  it("fail their call alone when there is no memory for them, and give the budget back", async () => {
    const all = open();
    all.port.refuseMemory = new RangeError("Array buffer allocation failed");
    all.receive(rendezvous);
    await settled();
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pulled }, { kind: frameKind.error, word: 8 }]);
    expect([all.session.state, all.host.budgets.pulls.bytes]).toEqual(["open", 0]);
  });

  it("fail their call alone when the budget is spent", () => {
    const all = open({ maxPullBytes: 10_000 });
    all.host.budgets.pulls.take(10);
    all.receive(rendezvous);
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pulled }, { kind: frameKind.error, word: 8 }]);
    expect([all.host.budgets.pulls.bytes, all.session.state]).toEqual([10, "open"]);
  });

  it("hold the terminal frame back while they are pulled, though the call is cancelled", async () => {
    const all = open();
    all.receive(rendezvous);
    all.receive({ kind: frameKind.cancel, callId: id(1, 0) });
    expect(all.port.frames).toEqual([]);
    all.port.pulls[0]?.settle(0);
    await settled();
    all.session.flush();
    expect(all.kinds()).toEqual([frameKind.pulled, frameKind.error]);
    expect(all.method.calls).toHaveLength(0);
  });

  it("give memory and budget back when the session ends meanwhile", async () => {
    const all = open();
    all.receive(rendezvous);
    all.session.onPeerGone();
    all.port.pulls[0]?.settle(103);
    await settled();
    expect([all.host.budgets.pulls.bytes, all.port.regions.size, all.method.calls.length]).toEqual([0, 0, 0]);
  });

  it("end the session when they cannot be decoded", async () => {
    const all = open();
    all.receive(rendezvous);
    all.port.pulls[0]?.into.fill(0xc1);
    all.port.pulls[0]?.settle(0);
    await settled();
    expectFault(all, "body cannot be decoded: byte 0xc1 begins no value");
  });

  it("of answers are kept until the peer has pulled them, and their slot with them", () => {
    const all = open();
    const request = (callId: number): FrameSpec => ({ kind: frameKind.request, callId, word: 1000 });
    all.receive(request(id(1, 0)));
    all.method.calls[0]?.call.settle({ value: long });
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.response, flags: frameFlag.rendezvous }]);
    expect([...all.port.regions.values()].map((region) => region.byteLength)).toEqual([bytes.byteLength]);
    all.receive({ kind: frameKind.pulled, callId: id(1, 0), word: rendezvousOwner.response });
    expect(all.port.regions.size).toBe(0);
    all.receive(request(id(2, 0)));
    all.method.calls[1]?.call.settle({ value: long });
    all.receive(request(id(3, 0)));
    expectFault(all, `call id ${id(3, 0)}: the last answer in its slot was not pulled`);
  });

  it("end the session when a peer has pulled what no frame can carry", () => {
    const all = open();
    all.receive({ kind: frameKind.pulled, callId: id(1, 0), word: 4 });
    expectFault(all, "pulled has the unknown word 4 for call 1048576");
  });

  it("may be called pulled that are not there, to no effect", () => {
    const all = open();
    for (const word of [0, 1])
      all.receive({ kind: frameKind.pulled, callId: id(5, 6), word }, { kind: frameKind.pulled, word });
    expect([all.session.state, all.port.frames.length]).toEqual(["open", 0]);
  });
});
