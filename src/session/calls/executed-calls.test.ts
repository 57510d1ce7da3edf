import { describe, expect, it, vi } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { frameKind } from "../../wire/frame.ts";
import { FakeCall, type FrameSpec } from "../connection/fake-services.test-support.ts";
import { expectFault, id, open } from "./scripted-session.test-support.ts";

const mostInFrame = 128;

/** Call ids as they travel. */
function bodyOf(callIds: readonly number[]): Uint8Array {
  return new Uint8Array(Uint32Array.from(callIds).buffer);
}

const request = (slot: number): FrameSpec => ({
  kind: frameKind.request,
  callId: id(1, slot),
  word: 1000,
  body: slot,
});
const executed = (...callIds: number[]): FrameSpec => ({
  kind: frameKind.executed,
  body: bodyOf(callIds),
});

describe("one-way calls that were executed", () => {
  function serving(isOneWay = true) {
    const all = open({ maxRequests: 1000 });
    Object.assign(all.method, { isOneWay });
    const flushSoon = vi.spyOn(all.host.progress, "flushSoon");
    /** The turn ends. */
    const flush = () => flushSoon.mock.calls.at(-1)?.[0]?.flush();
    const begin = (slots: number) => all.receive(...Array.from({ length: slots }, (_, i) => request(i)));
    const end = (slot: number) => all.method.calls[slot]?.call.settle({ value: undefined });
    return { ...all, begin, end, flush };
  }

  it("are reported in one frame at the end of a turn", () => {
    const all = serving();
    const { incoming, host } = all;
    all.begin(3);
    for (const { call } of all.method.calls) call.handler = "here";
    for (const slot of [1, 0, 2]) all.end(slot);
    expect(all.kinds()).toEqual([]);
    expect([incoming.size, host.wheel.size, host.counters.requestsSucceeded]).toEqual([0, 0, 3]);
    expect(all.flush()).toBe(true);
    expect(all.port.frames).toMatchObject([{ kind: frameKind.executed, callId: 0, word: 0 }]);
    expect(all.port.frames[0]?.body).toEqual(bodyOf([1, 0, 2].map((slot) => id(1, slot))));
    expect(all.flush()).toBe(false);
  });

  it("leave at once when there are many", () => {
    const all = serving();
    all.begin(mostInFrame + 1);
    for (let slot = 0; slot <= mostInFrame; slot++) all.end(slot);
    all.session.flush();
    expect(all.port.frames.map(({ body }) => body.byteLength)).toEqual([4 * mostInFrame]);
    all.flush();
    expect(all.port.frames.map(({ body }) => body.byteLength)).toEqual([4 * mostInFrame, 4]);
  });

  it("are answered one by one when they fail, and when they are not one-way", () => {
    const all = serving();
    all.begin(1);
    all.method.calls[0]?.call.settle({
      error: new RpcError({ code: "resource_exhausted", message: "no", origin: "remote" }),
    });
    all.session.flush();
    expect(all.kinds()).toEqual([frameKind.error]);
    const other = serving(false);
    other.begin(1);
    other.end(0);
    other.session.flush();
    expect(other.kinds()).toEqual([frameKind.response]);
  });

  it("are nobody's any more when the session has ended", () => {
    const all = serving();
    all.begin(1);
    all.end(0);
    all.session.end(new RpcError({ code: "unavailable", message: "over", origin: "local" }));
    const { length } = all.port.frames;
    expect(all.flush()).toBe(false);
    expect(all.port.frames.length).toBe(length);
  });
});

describe("one-way calls that the peer has executed", () => {
  class OneWay extends FakeCall {
    constructor() {
      super({ isOneWay: true });
    }

    override onLeft(): void {
      this.phase = "settled";
    }
  }

  function made(calls: readonly FakeCall[], requests = 8) {
    const all = open({}, { requests });
    for (const [index, call] of calls.entries())
      all.outgoing.request(call, 1, all.host.clock.now() + 500, index);
    return all;
  }

  it("free their numbers, which are there for those that wait", () => {
    const calls = Array.from({ length: 4 }, () => new OneWay());
    const all = made(calls, 2);
    expect([all.outgoing.size, all.outgoing.waiting.size]).toEqual([2, 2]);
    all.receive(executed(calls[0]?.id ?? 0, calls[1]?.id ?? 0));
    expect([all.outgoing.size, all.outgoing.waiting.size]).toEqual([2, 0]);
    // Numbers of calls that have ended say nothing about the present calls in those slots.
    all.receive(executed(id(1, 0), id(1, 1), id(1, 7)));
    expect(all.host.counters.lateAnswers).toBe(3);
    all.receive(executed(calls[2]?.id ?? 0, calls[3]?.id ?? 0));
    expect([all.outgoing.size, all.session.state]).toEqual([0, "open"]);
  });

  it("are a fault where a call waits for its answer", () => {
    const call = new FakeCall();
    const all = made([call]);
    all.receive(executed(call.id));
    expectFault(all, `call ${call.id} is not one-way and needs an answer`);
  });

  it.each([0, 2, 6])("are a fault in a body of %i bytes", (bytes) => {
    const all = made([new OneWay()]);
    all.receive({ kind: frameKind.executed, body: new Uint8Array(bytes) });
    expectFault(all, `executed calls take 4 bytes each, and ${bytes} came`);
  });
});
