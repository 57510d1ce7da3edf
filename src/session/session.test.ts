import { describe, expect, it, vi } from "vitest";
import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { decodeAt } from "../wire/codec.ts";
import { frameFlag, frameKind, pulledBody, writeOverflow } from "../wire/frame.ts";
import {
  FakeCall,
  FakeHost,
  FakeMethod,
  type FrameSpec,
  messageOf,
  packedGreeting,
  peerGreeting,
} from "./fake-host.test-support.ts";
import { FakePort, type SentFrame } from "./fake-port.test-support.ts";
import type { SessionLimits } from "./limits.ts";
import { Session } from "./session.ts";

const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;
const decoded = (frame: SentFrame | undefined): unknown =>
  frame === undefined || frame.body.byteLength === 0
    ? undefined
    : decodeAt(frame.body, 0, frame.body.byteLength);
const gone = new RpcError({ code: "unavailable", message: "closed by us", origin: "local" });

function setUp(limits: Partial<SessionLimits> = {}) {
  const host = new FakeHost(limits);
  const method = new FakeMethod();
  host.methods = [method];
  const port = new FakePort(8);
  const session = new Session(host, port, 4, 2, 0x2222, "the peer");
  const receive = (...frames: FrameSpec[]) => {
    const bytes = messageOf(2, 0x2222, frames);
    session.receive(port.receive(bytes), bytes.byteLength);
    session.flush();
  };
  const kinds = () => port.frames.map((frame) => frame.kind);
  return { host, method, port, session, receive, kinds };
}

/** A session that said hello and has not been answered. */
function opening(limits?: Partial<SessionLimits>) {
  const all = setUp(limits);
  const opened = all.session.connect(packedGreeting()).then(
    () => undefined,
    (error: RpcError) => error,
  );
  return { ...all, opened };
}

/** A session that accepted a hello. */
function open(limits?: Partial<SessionLimits>, change: Partial<typeof peerGreeting> = {}) {
  const all = setUp(limits);
  all.session.accept({ ...peerGreeting, ...change }, packedGreeting());
  all.port.sent.length = 0;
  return all;
}

function expectFault({ host, session }: ReturnType<typeof setUp>, text: string): void {
  expect(session.state).toBe("ended");
  expect(host.counters.malformed).toBe(1);
  expect(host.ended).toHaveLength(1);
  expect(host.ended[0]?.reason?.message).toContain(`the peer broke the protocol: ${text}`);
}

function overflowBody(bytes: number, key = 7n): Uint8Array {
  const body = new Uint8Array(24);
  writeOverflow(new DataView(body.buffer), 0, { key, address: 0n, bytes });
  return body;
}

/** Lets the promises of a pull run. */
const settled = () => new Promise(setImmediate);

describe("a session that opens", () => {
  it("says hello and is open once it is welcomed", async () => {
    const all = opening();
    expect(all.kinds()).toEqual([frameKind.hello]);
    expect(all.port.sent[0]).toMatchObject({ session: 0, nonce: 0 });
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(await all.opened).toBeUndefined();
    expect([all.session.state, all.session.methods.of("s", "b"), all.host.counters.sessionsOpened]).toEqual([
      "open",
      1,
      1,
    ]);
    all.session.ping();
    all.session.flush();
    expect(all.port.sent.at(-1)).toMatchObject({ session: peerGreeting.session, nonce: peerGreeting.nonce });
  });

  it("says what it serves after the welcome, if anything", async () => {
    const all = opening();
    all.host.services = [["mine", ["x"]]];
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(decoded(all.port.frames.find(({ kind }) => kind === frameKind.services))).toEqual([
      ["mine", ["x"]],
    ]);
  });

  it("fails with the peer's reason when it is refused", async () => {
    const all = opening();
    all.receive({ kind: frameKind.refuse, word: 8, body: { m: "maxSessions 1 is reached" } });
    const error = (await all.opened) as RpcError;
    expect([error.code, error.origin]).toEqual(["resource_exhausted", "remote"]);
    expect(error.message).toContain("the peer refused the session: maxSessions 1 is reached");
    expect([all.session.state, all.host.counters.malformed, all.port.forgotten]).toEqual(["ended", 0, [4]]);
  });

  it.each([
    ...[frameKind.hello, frameKind.request, frameKind.response, frameKind.error, frameKind.cancel],
    ...[frameKind.ping, frameKind.pong, frameKind.pulled, frameKind.services],
  ])("ends for frame kind %i before the welcome", async (kind) => {
    const all = opening();
    all.receive({ kind, callId: id(1, 0) });
    expectFault(all, `frame kind ${kind} came before the welcome`);
    expect((await all.opened)?.message).toContain("broke the protocol");
  });

  it.each([
    ["no map", 7, "greeting is not a map"],
    ["an empty body", undefined, "greeting is not a map"],
    ["another version", packedGreeting({ versions: [2, 2] }), "peer speaks protocol 2 to 2"],
    ["bytes that are no value", Uint8Array.of(0xc1), "body cannot be decoded: byte 0xc1 begins no value"],
  ])("ends for a welcome of %s", async (_, body, text) => {
    const all = opening();
    all.receive({ kind: frameKind.welcome, body });
    expectFault(all, text);
    expect(await all.opened).toBeInstanceOf(RpcError);
  });

  it("pulls a long welcome and says so", async () => {
    const all = opening();
    const bytes = messageBody(packedGreeting());
    all.receive({ kind: frameKind.welcome, flags: frameFlag.overflow, body: overflowBody(bytes.byteLength) });
    all.port.pulls[0]?.into.set(bytes);
    all.port.pulls[0]?.settle(0);
    expect(await all.opened).toBeUndefined();
    all.session.flush();
    expect(all.port.frames.at(-1)).toMatchObject({
      kind: frameKind.pulled,
      callId: 0,
      word: pulledBody.response,
    });
    expect(all.port.regions.size).toBe(0);
  });

  it("fails, blaming nobody, when a long welcome cannot be pulled", async () => {
    const all = opening({ maxPullBytes: 1024 });
    all.host.pullBudget.take(1000);
    all.receive({ kind: frameKind.welcome, flags: frameFlag.overflow, body: overflowBody(5000) });
    const error = (await all.opened) as RpcError;
    expect([error.code, all.host.counters.malformed]).toEqual(["resource_exhausted", 0]);
  });

  it("takes one welcome only, even when the first is still being pulled", async () => {
    const all = opening();
    const bytes = messageBody(packedGreeting());
    all.receive({ kind: frameKind.welcome, flags: frameFlag.overflow, body: overflowBody(bytes.byteLength) });
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(await all.opened).toBeUndefined();
    const call = new FakeCall();
    all.session.request(call, 0, 1000, undefined);
    all.port.pulls[0]?.into.set(bytes);
    all.port.pulls[0]?.settle(0);
    await settled();
    expectFault(all, "a second welcome came");
    expect([call.failures.length, all.host.counters.sessionsOpened]).toEqual([1, 1]);
  });
});

function messageBody(value: unknown): Uint8Array {
  const bytes = messageOf(0, 0, [{ kind: 1, body: value }]);
  return bytes.slice(32, 32 + new DataView(bytes.buffer).getUint32(24, true));
}

describe("an open session", () => {
  it.each([frameKind.hello, frameKind.welcome])("ends for frame kind %i", (kind) => {
    const all = open();
    all.receive({ kind, body: packedGreeting() });
    expectFault(all, kind === frameKind.hello ? "frame kind 1 came in a session" : "a second welcome came");
  });

  it("tells the peer why it ended, once, and takes nothing that follows in the message", () => {
    const all = open();
    all.receive(
      { kind: frameKind.hello },
      { kind: frameKind.request, callId: id(1, 0), word: 1000 },
      { kind: frameKind.ping },
    );
    expectFault(all, "frame kind 1 came in a session");
    expect(all.kinds()).toEqual([frameKind.goodbye]);
    expect(all.port.frames[0]?.word).toBe(13);
    expect((decoded(all.port.frames[0]) as { m: string }).m).toContain("frame kind 1 came in a session");
    expect(all.method.calls).toHaveLength(0);
  });

  it("ends for bytes behind its last frame and for a frame that is not there", () => {
    for (const [frames, text] of [
      [0, "message does not end with its last frame"],
      [2, "frame header is cut off"],
    ] as const) {
      const all = open();
      const bytes = messageOf(2, 0x2222, [{ kind: frameKind.pong }]);
      new DataView(bytes.buffer).setUint16(2, frames, true);
      all.session.receive(all.port.receive(bytes), bytes.byteLength);
      expectFault(all, text);
    }
  });

  it("ends for a last frame without its padding", () => {
    const all = open();
    const bytes = messageOf(2, 0x2222, [
      { kind: frameKind.request, callId: id(1, 0), word: 9, body: Uint8Array.of(0xc0) },
    ]);
    all.session.receive(all.port.receive(bytes), bytes.byteLength - 7);
    expectFault(all, "message does not end with its last frame");
  });

  it("answers a ping with its number", () => {
    const all = open();
    all.receive({ kind: frameKind.ping, word: 0xfeed });
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pong, word: 0xfeed }]);
  });

  it("takes the table of the side that connected, once", () => {
    const all = open();
    all.receive({ kind: frameKind.services, body: [["theirs", ["x", "y"]]] });
    expect(all.session.methods.of("theirs", "y")).toBe(1);
    all.receive({ kind: frameKind.services, body: [] });
    expectFault(all, "a service table came that was not awaited");
  });

  it("takes no table from the side that was connected to", async () => {
    const all = opening();
    all.receive({ kind: frameKind.welcome, body: packedGreeting() }, { kind: frameKind.services, body: [] });
    expectFault(all, "a service table came that was not awaited");
  });

  it("ends for a malformed table", () => {
    const all = open();
    all.receive({ kind: frameKind.services, body: { a: 1 } });
    expectFault(all, "greeting has no service table");
  });

  it("ends when the peer says goodbye, without a word", () => {
    const all = open();
    const call = new FakeCall();
    all.session.request(call, 0, 1000, undefined);
    all.port.sent.length = 0;
    all.receive({ kind: frameKind.goodbye, word: 14, body: { m: "closing" } });
    expect([all.session.state, all.host.counters.malformed, all.kinds()]).toEqual(["ended", 0, []]);
    expect(call.failures[0]?.message).toBe("[unavailable] the peer closed the session: closing");
  });

  it("ends once for a goodbye that cannot be decoded", () => {
    const all = open();
    all.receive({ kind: frameKind.goodbye, word: 14, body: Uint8Array.of(0xc1) });
    expectFault(all, "body cannot be decoded");
  });

  it("ends when a peer's limit is too small for what it must be told, and throws nothing", () => {
    const all = setUp();
    const services: [string, string[]][] = [["s", Array.from({ length: 1000 }, (_, i) => `method${i}`)]];
    all.session.accept({ ...peerGreeting, bodyBytes: 0 }, packedGreeting({ services }));
    expect([all.session.state, all.host.ended[0]?.reason?.code]).toEqual(["ended", "resource_exhausted"]);
    expect(all.kinds()).toEqual([frameKind.goodbye]);
  });

  it("ends for a peer that is gone, failing its calls at once", () => {
    const all = open();
    const call = new FakeCall();
    all.session.request(call, 0, 1000, undefined);
    all.session.onPeerGone();
    expect(call.failures[0]?.message).toContain("the process of the peer is gone");
    expect(all.port.forgotten).toEqual([4]);
  });

  it("ends when sending fails", () => {
    const all = open();
    all.session.ping();
    all.session.flush();
    all.port.complete(1, 107);
    expect(all.host.ended[0]?.reason).toMatchObject({
      code: "unavailable",
      fabric: { op: "fi_send", code: 107 },
    });
  });

  it("forgets the peer's address when its last words have left, or after a second", () => {
    const left = open();
    left.session.end(gone);
    expect(left.port.forgotten).toEqual([]);
    left.port.complete();
    expect([left.port.forgotten, left.host.clock.timers]).toEqual([[4], 0]);

    const stuck = open();
    stuck.session.end(gone);
    stuck.host.clock.advance(1000);
    expect(stuck.port.forgotten).toEqual([4]);
    stuck.port.complete();
    expect(stuck.port.forgotten).toEqual([4]);
  });
});

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
    expect([all.session.callsIn, all.host.wheel.size, all.host.watched.length]).toEqual([1, 1, 1]);
    only(all.method).settle({ value: "done" });
    only(all.method).settle({ value: "again" });
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.response, callId: id(1, 0), word: 0 }]);
    expect(decoded(all.port.frames[0])).toBe("done");
    expect([all.session.callsIn, all.host.wheel.size, all.host.counters.requestsSucceeded]).toEqual([
      0, 0, 1,
    ]);
  });

  it("may have no input, and no output", () => {
    const all = open();
    all.receive(request(id(1, 0), { body: undefined }));
    expect(all.method.calls[0]?.input).toBeUndefined();
    only(all.method).settle({ value: undefined });
    all.session.flush();
    expect(all.port.frames[0]?.body.byteLength).toBe(0);
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

  it("end the session when their slot is in use, in any generation", () => {
    for (const again of [id(1, 0), id(2, 0)]) {
      const all = open();
      all.receive(request(id(1, 0)), request(again));
      expectFault(all, `call id ${again} is in use`);
      expect(only(all.method).signal.aborted).toBe(true);
      expect([all.session.callsIn, all.host.wheel.size]).toEqual([0, 0]);
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
    expect([all.method.calls.length, all.session.callsIn, all.host.wheel.size]).toEqual([0, 0, 0]);
  });

  it("end the session with a region that is malformed", () => {
    const all = open();
    const descriptor = Uint8Array.from([0xc7, 0x20, 0x7d, ...new Uint8Array(32)]);
    all.receive(request(id(1, 0), { body: descriptor }));
    expectFault(all, "body cannot be decoded: region descriptor has access 0");
  });

  it.each([
    ["of the wrong length", new Uint8Array(23), "overflow descriptor has 23 bytes"],
    ["of an empty body", overflowBody(0), "overflowed body is empty"],
    ["beyond the limit", overflowBody(2000), "overflowed body of 2000 bytes exceeds maxBodyBytes 1024"],
  ])("end the session with an overflow %s", (_, body, text) => {
    const all = open({ maxBodyBytes: 1024 });
    all.receive(request(id(1, 0), { flags: frameFlag.overflow, body }));
    expectFault(all, text);
    expect([all.port.pulls.length, all.host.pullBudget.bytes]).toEqual([0, 0]);
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
    expect([all.port.frames.length, all.session.callsIn]).toEqual([0, 1]);
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
    expect([all.port.frames.length, all.session.callsIn, all.host.wheel.size]).toEqual([0, 0, 0]);
  });
});

describe("bodies that overflow", () => {
  const long = "x".repeat(10_000);
  const bytes = messageBody(long);
  const overflowed: FrameSpec = {
    kind: frameKind.request,
    callId: id(1, 0),
    word: 1000,
    flags: frameFlag.overflow,
    body: overflowBody(bytes.byteLength, 42n),
  };

  it("are pulled, confirmed, and served", async () => {
    const all = open();
    all.receive(overflowed);
    expect([all.method.calls.length, all.host.pullBudget.bytes, all.port.pulls[0]?.key]).toEqual([
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
      { kind: frameKind.pulled, callId: id(1, 0), word: pulledBody.request },
    ]);
    expect([all.host.pullBudget.bytes, all.port.regions.size, all.host.counters.bodiesPulled]).toEqual([
      0, 0, 1,
    ]);
  });

  it("fail their call alone when pulling fails", async () => {
    const all = open();
    all.receive(overflowed);
    all.port.pulls[0]?.settle(5);
    await settled();
    all.session.flush();
    expect(all.kinds()).toEqual([frameKind.pulled, frameKind.error]);
    expect([all.session.state, all.host.pullBudget.bytes, all.port.regions.size]).toEqual(["open", 0, 0]);
  });

  it("fail their call alone when there is no memory for them, and give the budget back", async () => {
    const all = open();
    all.port.refuseMemory = new RangeError("Array buffer allocation failed");
    all.receive(overflowed);
    await settled();
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pulled }, { kind: frameKind.error, word: 8 }]);
    expect([all.session.state, all.host.pullBudget.bytes]).toEqual(["open", 0]);
  });

  it("fail their call alone when the budget is spent", () => {
    const all = open({ maxPullBytes: 10_000 });
    all.host.pullBudget.take(10);
    all.receive(overflowed);
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pulled }, { kind: frameKind.error, word: 8 }]);
    expect([all.host.pullBudget.bytes, all.session.state]).toEqual([10, "open"]);
  });

  it("hold the terminal frame back while they are pulled, though the call is cancelled", async () => {
    const all = open();
    all.receive(overflowed);
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
    all.receive(overflowed);
    all.session.onPeerGone();
    all.port.pulls[0]?.settle(103);
    await settled();
    expect([all.host.pullBudget.bytes, all.port.regions.size, all.method.calls.length]).toEqual([0, 0, 0]);
  });

  it("end the session when they cannot be decoded", async () => {
    const all = open();
    all.receive(overflowed);
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
    expect(all.port.frames).toMatchObject([{ kind: frameKind.response, flags: frameFlag.overflow }]);
    expect([...all.port.regions.values()].map((region) => region.byteLength)).toEqual([bytes.byteLength]);
    all.receive({ kind: frameKind.pulled, callId: id(1, 0), word: pulledBody.response });
    expect(all.port.regions.size).toBe(0);
    all.receive(request(id(2, 0)));
    all.method.calls[1]?.call.settle({ value: long });
    all.receive(request(id(3, 0)));
    expectFault(all, `call id ${id(3, 0)}: the last answer in its slot was not pulled`);
  });

  it("end the session when a peer has pulled what no frame can carry", () => {
    const all = open();
    all.receive({ kind: frameKind.pulled, callId: id(1, 0), word: 2 });
    expectFault(all, "body number 2 of call 1048576 cannot have been pulled");
  });

  it("may be called pulled that are not there, to no effect", () => {
    const all = open();
    for (const word of [0, 1])
      all.receive({ kind: frameKind.pulled, callId: id(5, 6), word }, { kind: frameKind.pulled, word });
    expect([all.session.state, all.port.frames.length]).toEqual(["open", 0]);
  });
});

describe("calls that are made", () => {
  function made(input?: unknown, limits?: Partial<SessionLimits>) {
    const all = open(limits);
    const call = new FakeCall();
    all.session.request(call, 1, 500, input);
    return { ...all, call };
  }

  it("leave at once when alone, with their time left, and take their answer", () => {
    const all = made({ a: 1 });
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.request, method: 1, callId: id(1, 0), word: 500, flags: 0 },
    ]);
    expect(decoded(all.port.frames[0])).toEqual({ a: 1 });
    expect([all.call.phase, all.session.callsOut]).toEqual(["sent", 1]);
    all.receive({ kind: frameKind.response, callId: all.call.id, body: "yes" });
    expect([all.call.values, all.session.callsOut]).toEqual([["yes"], 0]);
  });

  it("take an error with its code, reason and data", () => {
    const all = made();
    all.receive({ kind: frameKind.error, callId: all.call.id, word: 5, body: { m: "gone", r: "R", d: 1 } });
    expect(all.call.failures[0]).toMatchObject({ code: "not_found", reason: "R", data: 1, origin: "remote" });
  });

  it("state at least a millisecond and at most what 32 bits hold", () => {
    const all = open();
    for (const leftMs of [-5, 0, 0.2, 1e12]) all.session.request(new FakeCall(), 0, leftMs, undefined);
    all.session.flush();
    expect(all.port.frames.map(({ word }) => word)).toEqual([1, 1, 1, 0xffff_ffff]);
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
    all.session.cancel(all.call);
    all.session.flush();
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.cancel, callId: all.call.id });
    expect(all.session.callsOut).toBe(1);
    all.receive({ kind: frameKind.response, callId: all.call.id, body: Uint8Array.of(0xc1) });
    expect([all.session.callsOut, all.session.state, all.call.values]).toEqual([0, "open", []]);
  });

  it("tell the peer that its copy is free when nobody waits for a long answer", () => {
    const all = made();
    all.call.giveUp();
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.overflow,
      body: overflowBody(5000),
    });
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.pulled, word: pulledBody.response });
    expect(all.port.pulls).toHaveLength(0);
  });

  it("end the session for a second answer while the first is being pulled", () => {
    const all = made();
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.overflow,
      body: overflowBody(5000),
    });
    expect(all.call.phase).toBe("pulling");
    all.receive({ kind: frameKind.response, callId: all.call.id, body: 1 });
    expectFault(all, `a second answer came for call ${all.call.id}`);
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
    const region = Uint8Array.from([0xc7, 0x20, 0x7d, ...new Uint8Array(24), 1, ...new Uint8Array(7)]);
    all.receive({ kind: frameKind.response, callId: all.call.id, body: region });
    expectFault(all, "body cannot be decoded");
  });

  it("keep within what the peer grants, and name the limit", () => {
    const all = open();
    for (let i = 0; i < peerGreeting.requests; i++) all.session.request(new FakeCall(), 0, 100, undefined);
    expect(() => all.session.request(new FakeCall(), 0, 100, undefined)).toThrow(
      "[resource_exhausted] 8 calls are in flight",
    );
    expect(all.session.callsOut).toBe(8);
  });

  it("are refused when too much waits already", () => {
    const all = open({ maxQueuedBytes: 4000 }, { requests: 1000 });
    let refused: unknown;
    for (let i = 0; i < 500 && refused === undefined; i++) {
      try {
        all.session.request(new FakeCall(), 0, 100, "x".repeat(3000));
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
    call.lend({ bytes: 1, release });
    expect(() => all.session.request(call, 0, 100, 2n ** 9000n)).toThrow("[invalid_argument]");
    expect([all.session.callsOut, release.mock.calls.length, call.id]).toEqual([0, 1, 0]);
  });

  it("fail when the session has ended", () => {
    const all = open();
    all.session.end(gone);
    expect(() => all.session.request(new FakeCall(), 0, 100, undefined)).toThrow(
      "the session with the peer has ended",
    );
  });

  it("keep a long input for the peer until it has pulled it or has answered", () => {
    for (const end of ["pulled", "answered"]) {
      const all = made("x".repeat(10_000));
      expect(all.port.frames[0]?.flags).toBe(frameFlag.overflow);
      expect(all.port.regions.size).toBe(1);
      if (end === "pulled")
        all.receive({ kind: frameKind.pulled, callId: all.call.id, word: pulledBody.request });
      else all.receive({ kind: frameKind.response, callId: all.call.id });
      expect(all.port.regions.size).toBe(0);
    }
  });
});

describe("what a call has lent", () => {
  function lending() {
    const all = open();
    const call = new FakeCall();
    const release = vi.fn();
    call.lend({ bytes: 64, release });
    all.session.request(call, 0, 1000, "x".repeat(5000));
    return { ...all, call, release };
  }

  it("is released by the terminal frame, not by giving up", () => {
    const all = lending();
    all.call.giveUp();
    all.session.cancel(all.call);
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
      flags: frameFlag.overflow,
      body: overflowBody(bytes.byteLength),
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
