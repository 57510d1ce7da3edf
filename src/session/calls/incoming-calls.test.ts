import { describe, expect, it, vi } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { CallMetrics } from "../../base/observe/call-metrics.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { builtinSlots } from "../../wire/builtin.ts";
import { writeCallIdentity } from "../../wire/call-identity.ts";
import { frameFlag, frameKind } from "../../wire/frame.ts";

import { FakeCall, type FakeMethod, type FrameSpec } from "../connection/fake-services.test-support.ts";
import {
  decoded,
  expectFault,
  gone,
  id,
  open,
  rendezvousBody,
  settled,
} from "./scripted-session.test-support.ts";

describe("requests that arrive", () => {
  const request = (callId: number, more: Partial<FrameSpec> = {}): FrameSpec => ({
    kind: frameKind.request,
    callId,
    word: 1000,
    body: { a: 1 },
    ...more,
  });
  const only = (method: FakeMethod): IncomingCall => method.calls[0]?.call as IncomingCall;

  it("are served with their input and answered once", () => {
    const all = open();
    all.receive(request(id(1, 0)));
    expect(all.method.calls[0]?.input).toEqual({ a: 1 });
    expect([all.incoming.size, all.host.wheel.size, all.session.isWatched]).toEqual([1, 1, true]);
    only(all.method).settle({ value: "done" });
    only(all.method).settle({ value: "again" });
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.response, callId: id(1, 0), word: 0 }]);
    expect(decoded(all.port.frames[0])).toBe("done");
    expect([all.incoming.size, all.host.wheel.size, all.host.counters.requestsSucceeded]).toEqual([0, 0, 1]);
  });

  it("begin when the one before them was answered, for which the clock is read once", () => {
    const all = open();
    const { clock, metrics } = all.host;
    Object.assign(metrics, { timed: true });
    Object.assign(all.method, { metrics: new CallMetrics().of("fake/method", "in") });
    all.method.serve = (call, _session, input) => {
      all.method.calls.push({ call, input });
      clock.advance(5);
      // The third is answered later: how long its handler took is not known when the fourth begins.
      if (all.method.calls.length !== 3) call.settle({ value: 1 });
    };
    const beganMs = clock.now();
    const now = vi.spyOn(clock, "now");
    all.receive(...[0, 1, 2, 3].map((slot) => request(id(1, slot))));
    expect(all.method.calls.map(({ call }) => call.startedMs - beganMs)).toEqual([0, 5, 10, 15]);
    // At the start of the first and the fourth, and at three ends; by the wheel for the third.
    expect(now).toHaveBeenCalledTimes(2 + 3 + 1);
    clock.advance(5);
    all.receive(request(id(1, 4)));
    expect((all.method.calls[4]?.call.startedMs ?? 0) - beganMs).toBe(25);
  });

  it("make their session watched, and leave it alone where it is", () => {
    const all = open();
    all.session.isWatched = false;
    all.receive(request(id(1, 0)), request(id(1, 1)));
    expect(all.host.watched).toEqual([all.session]);
  });

  it("are watched for their deadline only if they are not answered at once", () => {
    const all = open();
    const arm = vi.spyOn(all.host.wheel, "arm");
    const { method } = all;
    const serve = method.serve.bind(method);
    method.serve = (call, session, input) => {
      serve(call, session, input);
      expect(call.deadlineMs).toBe(all.host.clock.now() + 1000);
      if (call.id === id(1, 0)) call.settle({ value: "at once" });
    };
    all.receive(request(id(1, 0)), request(id(1, 1)));
    expect(arm.mock.calls.map(([call]) => (call as IncomingCall).id)).toEqual([id(1, 1)]);
    all.host.clock.advance(1100);
    all.session.flush();
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.response, callId: id(1, 0) },
      { kind: frameKind.error, callId: id(1, 1), word: 4 },
    ]);
    expect(all.host.wheel.size).toBe(0);
  });

  it("may have no input, and no output", () => {
    const all = open();
    all.receive(request(id(1, 0), { body: undefined }));
    expect(all.method.calls[0]?.input).toBeUndefined();
    only(all.method).settle({ value: undefined });
    all.session.flush();
    expect(all.port.frames[0]?.body.byteLength).toBe(0);
  });

  it("back from the handler of an open call need no credit, one at a time", () => {
    const all = open({ maxRequests: 1, maxRequestsInAll: 1 });
    const place = 1 + builtinSlots;
    all.outgoing.request(new FakeCall(), 0, 10_000, 1);
    all.receive(request(id(1, 0)), request(id(1, place)), request(id(1, place + place)));
    expect(all.host.ended[0]?.reason?.message).toContain(
      `call id ${id(1, 2 * place)} is beyond the 1 granted`,
    );
    expect(all.method.calls.map(({ call }) => call.id)).toEqual([id(1, 0), id(1, place)]);
  });

  it("back from the handler of a call back have the place that follows from its place", () => {
    const all = open({ maxRequests: 1 });
    const place = 1 + builtinSlots;
    all.outgoing.request(new FakeCall(), 0, 10_000, 1);
    all.receive(request(id(1, place)));
    expect(all.incoming.usersSize).toBe(1);
    all.method.calls[0]?.call.settle({ value: 1 });
    expect([all.incoming.usersSize, all.incoming.size]).toEqual([0, 0]);
    // In the same place once more, and not twice by the same number.
    all.receive(request(id(2, place)));
    expect(all.method.calls).toHaveLength(2);
    all.method.calls[1]?.call.settle({ value: 1 });
    all.receive(request(id(2, place)));
    expect(all.host.ended[0]?.reason?.message).toContain(`call id ${id(2, place)} was used before`);
  });

  it("end the session in the place of a call that is not open", () => {
    const all = open({ maxRequests: 1 });
    const place = 1 + builtinSlots;
    all.outgoing.request(new FakeCall(), 0, 10_000, 1);
    all.receive({ kind: frameKind.response, callId: id(1, 0) });
    all.receive(request(id(1, place)));
    expect(all.host.ended[0]?.reason?.message).toContain("is beyond the 1 granted");
    expect(all.method.calls).toHaveLength(0);
  });

  it("to a method that does not exist fail alone", () => {
    const all = open();
    all.receive(request(id(1, 0), { method: 99 }));
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, word: 12 }]);
    expect(all.session.state).toBe("open");
  });

  it.each([
    [id(1, 8), "call id 1048584 is beyond the 8 granted"],
    [id(0xfff, 0xfffff), "is beyond the 8 granted"],
    [0, "call id 0 has generation 0"],
    [3, "call id 3 has generation 0"],
  ])("end the session with the number %i", (callId, text) => {
    const all = open({ maxRequests: 8 });
    all.receive(request(callId));
    expectFault(all, "");
    expect(all.host.ended[0]?.reason?.message).toContain(text);
  });

  it("end the session when they come a second time, though the first has been answered", () => {
    const all = open();
    all.receive(request(id(1, 0)));
    only(all.method).settle({ value: 1 });
    all.receive(request(id(1, 0)));
    expectFault(all, `call id ${id(1, 0)} was used before`);
    expect(all.method.calls).toHaveLength(1);
  });

  it("end the session when their slot is in use, in any generation", () => {
    for (const again of [id(1, 0), id(2, 0)]) {
      const all = open();
      all.receive(request(id(1, 0)), request(again));
      expectFault(all, `call id ${again} is in use`);
      expect(only(all.method).signal.aborted).toBe(true);
      expect([all.incoming.size, all.host.wheel.size]).toEqual([0, 0]);
    }
  });

  it("may use a slot again once it is answered", () => {
    const all = open();
    all.receive(request(id(1, 0)));
    only(all.method).settle({ value: 1 });
    all.receive(request(id(2, 0)));
    expect(all.method.calls).toHaveLength(2);
  });

  it("end the session with a body that cannot be decoded, once, and are never served", () => {
    const all = open();
    all.receive(request(id(1, 0), { body: Uint8Array.of(0x91) }), request(id(1, 1)));
    expectFault(all, "body cannot be decoded: collection of 1 values has 0 bytes");
    expect([all.method.calls.length, all.incoming.size, all.host.wheel.size]).toEqual([0, 0, 0]);
  });

  it("end the session with a region that is malformed", () => {
    const all = open();
    const descriptor = Uint8Array.from([0xd8, 0x7d, 1, ...new Uint8Array(15)]);
    all.receive(request(id(1, 0), { body: descriptor, flags: frameFlag.grants }));
    expectFault(all, "body cannot be decoded: region descriptor has access 0");
  });

  it.each([
    ["of the wrong length", new Uint8Array(23), "rendezvous descriptor has 23 bytes"],
    ["of an empty body", rendezvousBody(0), "rendezvous body is empty"],
    ["beyond the limit", rendezvousBody(2000), "rendezvous body of 2000 bytes exceeds maxBodyBytes 1024"],
  ])("end the session with a rendezvous body %s", (_, body, text) => {
    const all = open({ maxBodyBytes: 1024 });
    all.receive(request(id(1, 0), { flags: frameFlag.rendezvous, body }));
    expectFault(all, text);
    expect([all.port.pulls.length, all.host.budgets.pulls.bytes]).toEqual([0, 0]);
  });

  it("end the session with a body beyond the limit in a message", () => {
    const all = open({ maxBodyBytes: 1024 });
    all.receive(request(id(1, 0), { body: "x".repeat(1021) }));
    expect(all.method.calls).toHaveLength(1);
    all.receive(request(id(1, 1), { body: "x".repeat(1022) }));
    expectFault(all, "body of 1025 bytes exceeds maxBodyBytes 1024");
    expect(all.method.calls).toHaveLength(1);
  });

  it("get their error without a text where the peer takes no body so long", () => {
    const all = open({}, { bodyBytes: 0 });
    all.receive(request(id(1, 0)), request(id(1, 1)), request(id(1, 2), { method: 99 }));
    for (const { call } of all.method.calls) call.settle({ value: "beyond" });
    all.session.flush();
    expect(
      all.port.frames.map(({ kind, callId, word, body }) => [kind, callId, word, body.byteLength]),
    ).toEqual([
      [frameKind.error, id(1, 2), 12, 0],
      [frameKind.error, id(1, 0), 8, 0],
      [frameKind.error, id(1, 1), 8, 0],
    ]);
    expect([all.session.state, all.incoming.size, all.host.wheel.size]).toEqual(["open", 0, 0]);
  });

  it("are cancelled by number, and cancelling another number changes nothing", () => {
    const all = open();
    all.receive(request(id(1, 0)));
    all.receive(
      { kind: frameKind.cancel, callId: id(2, 0) },
      { kind: frameKind.cancel, callId: id(1, 5) },
      { kind: frameKind.cancel },
    );
    expect([only(all.method).open, all.session.state, all.port.frames.length]).toEqual([true, "open", 0]);
    const { signal } = only(all.method);
    all.receive({ kind: frameKind.cancel, callId: id(1, 0) });
    expect((signal.reason as RpcError).code).toBe("cancelled");
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, callId: id(1, 0), word: 1 }]);
    expect(only(all.method).settle({ value: 1 })).toBe(false);
  });

  it("end with deadline_exceeded when the caller's time is up", () => {
    const all = open();
    all.receive(request(id(1, 0), { word: 20 }));
    all.host.clock.advance(19);
    expect(only(all.method).open).toBe(true);
    all.host.clock.advance(6);
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, word: 4 }]);
  });

  it("hold their terminal frame back while a transfer of theirs is under way", () => {
    const all = open();
    all.receive(request(id(1, 0)));
    only(all.method).beginTransfer();
    all.receive({ kind: frameKind.cancel, callId: id(1, 0) });
    expect([all.port.frames.length, all.incoming.size]).toEqual([0, 1]);
    only(all.method).endTransfer();
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, word: 1 }]);
  });

  it("answer with an error what cannot be encoded", () => {
    const all = open();
    all.receive(request(id(1, 0)), request(id(1, 1)));
    all.method.calls[0]?.call.settle({ value: 2n ** 9000n });
    const error = new RpcError({ code: "not_found", message: "no", reason: "R", data: 2n ** 9000n });
    all.method.calls[1]?.call.settle({ error });
    all.session.flush();
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.error, word: 13 },
      { kind: frameKind.error, word: 5 },
    ]);
    expect(all.host.counters).toMatchObject({ requestsFailed: 2, requestsSucceeded: 0 });
  });

  it("fire their signals and are not answered when the session ends", () => {
    const all = open();
    all.receive(request(id(1, 0)), request(id(1, 1)));
    const signals = all.method.calls.map(({ call }) => call.signal);
    all.session.onPeerGone();
    expect(signals.map((signal) => (signal.reason as RpcError).code)).toEqual(["unavailable", "unavailable"]);
    all.method.calls[0]?.call.settle({ value: 1 });
    all.session.flush();
    expect([all.port.frames.length, all.incoming.size, all.host.wheel.size]).toEqual([0, 0, 0]);
  });
});

describe("requests that say who they are", () => {
  const identity = { caller: 5n, sequence: 2, settled: 1, incarnation: 0n };
  const request = (body: Uint8Array, flags: number = frameFlag.identity) => ({
    kind: frameKind.request,
    callId: id(1, 0),
    word: 500,
    flags,
    body,
  });

  it("are served with their input and their identity", () => {
    const all = open();
    all.receive(request(Uint8Array.from([...writeCallIdentity(identity), 0xa1, 0x78])));
    expect(all.method.calls[0]?.input).toBe("x");
    expect(all.method.calls[0]?.call.identity).toEqual(identity);
  });

  it("may have no input", () => {
    const all = open();
    all.receive(request(writeCallIdentity(identity)));
    expect(all.method.calls).toMatchObject([{ input: undefined, call: { identity } }]);
  });

  it("stand for themselves when they carry regions", () => {
    const all = open();
    all.receive(request(writeCallIdentity(identity), frameFlag.identity | frameFlag.grants));
    expect(all.method.calls[0]?.call.identity).toBeUndefined();
  });

  it("end the session when the identity is cut off", () => {
    const all = open();
    all.receive(request(new Uint8Array(31)));
    expectFault(all, "call identity has 31 bytes, not 32");
  });

  it("are told that no handler was begun for them, if none was", () => {
    const all = open();
    all.receive({ kind: frameKind.request, callId: id(1, 0), method: 7, word: 500 });
    all.receive({ kind: frameKind.request, callId: id(1, 1), word: 500 });
    const begun = all.method.calls[0]?.call as IncomingCall;
    begun.handler = "here";
    begun.settle({ error: gone });
    all.session.flush();
    expect(all.port.frames.map((frame) => (decoded(frame) as { n?: true }).n)).toEqual([true, undefined]);
  });

  it("are not told so when an earlier attempt may have been begun, however early they end", async () => {
    const all = open();
    const again = { ...identity, incarnation: 9n };
    const body = Uint8Array.from([...writeCallIdentity(again), ...rendezvousBody(64)]);
    // Its body is still being pulled when it is given up; no method has the other's number.
    all.receive({ ...request(body), flags: frameFlag.identity | frameFlag.rendezvous });
    all.receive({ ...request(writeCallIdentity(again)), callId: id(1, 1), method: 7 });
    all.receive({ kind: frameKind.cancel, callId: id(1, 0) });
    all.port.pulls[0]?.settle(0);
    await settled();
    all.session.flush();
    const errors = all.port.frames.filter(({ kind }) => kind === frameKind.error);
    expect(errors.map((frame) => [frame.word, (decoded(frame) as { n?: true }).n])).toEqual([
      [12, undefined],
      [1, undefined],
    ]);
  });
});
