import { describe, expect, it, vi } from "vitest";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import { frameFlag, frameKind, rendezvousOwner } from "../../wire/frame.ts";
import { FakeCall, peerGreeting } from "../connection/fake-services.test-support.ts";
import {
  decoded,
  expectFault,
  gone,
  id,
  messageBody,
  open,
  rendezvousBody,
  settled,
} from "./scripted-session.test-support.ts";

/** A deadline that is far away on the host's clock. */
const laterMs = 10_000;

describe("calls that are made", () => {
  function made(input?: unknown, limits?: Partial<EngineLimits>) {
    const all = open(limits);
    const call = new FakeCall();
    all.outgoing.request(call, 1, all.host.clock.now() + 500, input);
    return { ...all, call };
  }

  it("leave at once when alone, with their time left, and take their answer", () => {
    const all = made({ a: 1 });
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.request, method: 1, callId: id(1, 0), word: 500, flags: 0 },
    ]);
    expect(decoded(all.port.frames[0])).toEqual({ a: 1 });
    expect([all.call.phase, all.outgoing.size]).toEqual(["sent", 1]);
    all.receive({ kind: frameKind.response, callId: all.call.id, body: "yes" });
    expect([all.call.values, all.outgoing.size]).toEqual([["yes"], 0]);
  });

  it("are answered when their message came, for which the clock is read once", () => {
    const all = made();
    const other = new FakeCall();
    all.outgoing.request(other, 1, laterMs, undefined);
    all.host.clock.advance(3);
    const now = vi.spyOn(all.host.clock, "now");
    all.receive(
      { kind: frameKind.response, callId: all.call.id, body: 1 },
      { kind: frameKind.response, callId: other.id, body: 2 },
    );
    expect(now).toHaveBeenCalledTimes(1);
    expect([all.call.answeredMs, other.answeredMs]).toEqual([all.host.clock.now(), all.host.clock.now()]);
  });

  it("take an error with its code, reason and data", () => {
    const all = made();
    all.receive({ kind: frameKind.error, callId: all.call.id, word: 5, body: { m: "gone", r: "R", d: 1 } });
    expect(all.call.failures[0]).toMatchObject({ code: "not_found", reason: "R", data: 1, origin: "remote" });
  });

  it("state at least a millisecond and at most what 32 bits hold", () => {
    const all = open();
    for (const leftMs of [-5, 0, 0.2, 1e12])
      all.outgoing.request(new FakeCall(), 0, all.host.clock.now() + leftMs, undefined);
    all.session.flush();
    expect(all.port.frames.map(({ word }) => word)).toEqual([1, 1, 1, 0xffff_ffff]);
  });

  it("make their session watched, also while they wait for a place, and leave it alone where it is", () => {
    for (const requests of [peerGreeting.requests, 0]) {
      const all = open(undefined, { requests });
      all.session.isWatched = false;
      for (let count = 0; count < 3; count++) all.outgoing.request(new FakeCall(), 1, laterMs, undefined);
      expect(all.outgoing.waiting.size).toBe(requests === 0 ? 3 : 0);
      expect(all.host.watched).toEqual([all.session]);
    }
  });

  it("count an answer to a number that is no more, and go on", () => {
    const all = made();
    const answer = { kind: frameKind.response, callId: all.call.id, body: 1 };
    all.receive(answer, answer, { ...answer, callId: id(9, 3) }, { ...answer, kind: frameKind.error });
    expect(all.call.values).toEqual([1]);
    expect([all.host.counters.lateAnswers, all.session.state]).toEqual([3, "open"]);
  });

  it("do not decode an answer that nobody waits for, and free their number", () => {
    const all = made();
    all.call.giveUp();
    all.outgoing.cancel(all.call);
    all.session.flush();
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.cancel, callId: all.call.id });
    expect(all.outgoing.size).toBe(1);
    all.receive({ kind: frameKind.response, callId: all.call.id, body: Uint8Array.of(0xc1) });
    expect([all.outgoing.size, all.session.state, all.call.values]).toEqual([0, "open", []]);
  });

  it("tell the peer that its copy is free when nobody waits for a long answer", () => {
    const all = made();
    all.call.giveUp();
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(5000),
    });
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.pulled, word: rendezvousOwner.response });
    expect(all.port.pulls).toHaveLength(0);
  });

  it("say that nobody waits for a long answer before its slot carries another request", () => {
    const all = made();
    const next = new FakeCall();
    // As a call that is tried again when the memory of its last attempt has come back.
    all.call.addGrant({ bytes: 1, memory: [], release: () => all.outgoing.request(next, 1, 500, undefined) });
    all.call.giveUp();
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(5000),
    });
    expect(all.port.frames.slice(1)).toMatchObject([
      { kind: frameKind.pulled, callId: id(1, 0), word: rendezvousOwner.response },
      { kind: frameKind.request, callId: id(2, 0) },
    ]);
  });

  it.each([
    [266, "unavailable", "has withdrawn a body before it was pulled"],
    [5, "unavailable", "pulling a body from the peer failed"],
    [12, "resource_exhausted", "pulling a body from the peer failed"],
  ])("fail when their long answer cannot be pulled: error %i", async (status, code, text) => {
    const all = made();
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(5000),
    });
    all.port.pulls[0]?.settle(status);
    await settled();
    expect(all.call.failures).toMatchObject([{ code, retryable: true, origin: "fabric" }]);
    expect(all.call.failures[0]?.message).toContain(text);
  });

  it("end the session for a second answer while the first is being pulled", () => {
    const all = made();
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(5000),
    });
    expect(all.call.phase).toBe("pulling");
    all.receive({ kind: frameKind.response, callId: all.call.id, body: 1 });
    expectFault(all, `a second answer arrived for call ${all.call.id}`);
    expect(all.call.failures).toHaveLength(1);
  });

  it("end the session for an answer that cannot be decoded, and fail once", () => {
    const all = made();
    all.receive({ kind: frameKind.response, callId: all.call.id, body: Uint8Array.of(0xc1) });
    expectFault(all, "body cannot be decoded");
    expect(all.call.failures).toHaveLength(1);
  });

  it("end the session for an answer with a region", () => {
    const all = made();
    const region = Uint8Array.from([0xd8, 0x7d, 1, 1, ...new Uint8Array(14)]);
    all.receive({ kind: frameKind.response, callId: all.call.id, body: region });
    expectFault(all, "body cannot be decoded");
  });

  it("keep within what the peer grants, and name the limit", () => {
    const all = open();
    for (let i = 0; i < peerGreeting.requests; i++)
      all.outgoing.request(new FakeCall(), 0, laterMs, undefined);
    expect(() => all.outgoing.request(new FakeCall({ fails: true }), 0, laterMs, undefined)).toThrow(
      '[resource_exhausted] 8 calls are in flight to the peer, its window of 8 (of 8 granted) is full, and whenFull is "fail"',
    );
    expect(all.outgoing.size).toBe(8);
  });

  it("are refused when too much waits already", () => {
    const all = open({ maxQueuedBytes: 4000 }, { requests: 1000 });
    let refused: unknown;
    for (let i = 0; i < 500 && refused === undefined; i++) {
      try {
        all.outgoing.request(new FakeCall({ fails: true }), 0, laterMs, "x".repeat(3000));
      } catch (error) {
        refused = error;
      }
    }
    expect((refused as RpcError).message).toContain("wait to be sent to the peer, maxQueuedBytes is reached");
  });

  it("leave nothing behind when their input cannot be encoded", () => {
    const all = open();
    const release = vi.fn();
    const call = new FakeCall();
    call.addGrant({ bytes: 1, memory: [], release });
    expect(() => all.outgoing.request(call, 0, laterMs, 2n ** 9000n)).toThrow("[invalid_argument]");
    expect([all.outgoing.size, release.mock.calls.length, call.id]).toEqual([0, 1, 0]);
  });

  it("fail when the session has ended", () => {
    const all = open();
    all.session.end(gone);
    expect(() => all.outgoing.request(new FakeCall(), 0, laterMs, undefined)).toThrow(
      "the session with the peer has ended",
    );
  });

  it("keep a long input for the peer until it has pulled it or has answered", () => {
    for (const end of ["pulled", "answered"]) {
      const all = made("x".repeat(10_000));
      expect(all.port.frames[0]?.flags).toBe(frameFlag.rendezvous);
      expect(all.port.regions.size).toBe(1);
      if (end === "pulled")
        all.receive({ kind: frameKind.pulled, callId: all.call.id, word: rendezvousOwner.request });
      else all.receive({ kind: frameKind.response, callId: all.call.id });
      expect(all.port.regions.size).toBe(0);
    }
  });
});

describe("what a call has granted", () => {
  function lending() {
    const all = open();
    const call = new FakeCall();
    const release = vi.fn();
    call.addGrant({ bytes: 64, memory: [new Uint8Array(64)], release });
    all.outgoing.request(call, 0, laterMs, "x".repeat(5000));
    return { ...all, call, release };
  }

  it("is released by the terminal frame, not by giving up", () => {
    const all = lending();
    all.call.giveUp();
    all.outgoing.cancel(all.call);
    expect(all.release).not.toHaveBeenCalled();
    all.receive({ kind: frameKind.error, callId: all.call.id, word: 1 });
    expect(all.release).toHaveBeenCalledOnce();
  });

  it("is released when the long answer is in place, not before", async () => {
    const all = lending();
    const bytes = messageBody("y".repeat(5000));
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(bytes.byteLength),
    });
    expect(all.release).not.toHaveBeenCalled();
    all.port.pulls[0]?.into.set(bytes);
    all.port.pulls[0]?.settle(0);
    await settled();
    expect(all.release).toHaveBeenCalledOnce();
    expect(all.call.values).toEqual(["y".repeat(5000)]);
  });

  it("is released at once when the peer's process is gone for certain", () => {
    const all = lending();
    all.session.onPeerGone();
    expect(all.release).toHaveBeenCalledOnce();
    expect([all.host.quarantine.bytes, all.port.regions.size]).toEqual([0, 0]);
  });

  it("is held back when the peer may still touch it, until its process is gone", () => {
    const all = lending();
    all.port.reportsDeath = true;
    all.session.fault("something");
    expect(all.release).not.toHaveBeenCalled();
    expect(all.host.quarantine.bytes).toBeGreaterThan(5064);
    expect([all.port.regions.size, all.port.forgotten]).toEqual([1, []]);
    all.session.onPeerGone();
    expect(all.release).toHaveBeenCalledOnce();
    expect([all.host.quarantine.bytes, all.port.regions.size, all.port.forgotten]).toEqual([0, 0, [4]]);
  });

  it("is held back until the ports are closed where no death is told", () => {
    const all = lending();
    all.session.end(gone);
    expect(all.host.quarantine.bytes).toBeGreaterThan(0);
    all.host.quarantine.releaseAll();
    expect(all.release).toHaveBeenCalledOnce();
    expect([all.host.quarantine.bytes, all.port.regions.size]).toEqual([0, 0]);
  });
});
