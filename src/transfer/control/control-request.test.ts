import { describe, expect, it } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { decoded, expectFault, id, open } from "../../session/calls/scripted-session.test-support.ts";
import { FakeCall, FakeMethod } from "../../session/connection/fake-services.test-support.ts";
import { builtin, builtinSlots, firstBuiltin } from "../../wire/builtin.ts";
import { frameKind } from "../../wire/frame.ts";

const code = (promise: Promise<unknown>) =>
  promise.then(
    () => "answered",
    (error: RpcError) => error.code,
  );

/** The peer grants 8 requests, so the built-in methods' first slot is 8. */
const first = 8;

describe("a control request", () => {
  it("travels in a slot behind those of requests, and is answered", async () => {
    const all = open();
    const answered = all.exchange.request(builtin.explainDenial, [1]);
    all.session.flush();
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.request, method: 0xff00, callId: id(1, first), word: 10_000 },
    ]);
    expect(decoded(all.port.frames[0])).toEqual([1]);
    all.receive({ kind: frameKind.response, callId: id(1, first), body: "so" });
    expect(await answered).toBe("so");
    expect([all.outgoing.size, all.host.wheel.size]).toEqual([0, 0]);
    expect(all.host.counters.callsStarted).toBe(0);
  });

  it("finds a slot when users' calls have taken all of theirs, and however much waits to be sent", async () => {
    const all = open({ maxQueuedBytes: 0 });
    expect(() => all.outgoing.request(new FakeCall({ fails: true }), 0, 10_000, 1)).toThrow("maxQueuedBytes");
    const asked = all.exchange.request(builtin.explainDenial, [1]);
    all.session.flush();
    expect(all.port.frames).toHaveLength(1);
    all.receive({ kind: frameKind.error, callId: id(1, first), word: 5, body: { m: "no" } });
    expect(await code(asked)).toBe("not_found");
  });

  it("waits for a slot when all are taken, in order, unless it is given up", async () => {
    const all = open();
    const asked = Array.from({ length: builtinSlots }, () =>
      code(all.exchange.request(builtin.explainDenial, [0])),
    );
    const given = new AbortController();
    const dropped = code(all.exchange.request(builtin.explainDenial, ["dropped"], { signal: given.signal }));
    const late = code(all.exchange.request(builtin.explainDenial, ["late"]));
    all.session.flush();
    given.abort();
    expect(await dropped).toBe("cancelled");
    expect(all.outgoing.size).toBe(builtinSlots);
    all.receive({ kind: frameKind.response, callId: id(1, first) });
    expect(await asked[0]).toBe("answered");
    // The late request has the slot; the dropped one never had a slot.
    expect(all.outgoing.size).toBe(builtinSlots);
    all.receive({ kind: frameKind.response, callId: id(1, first + 1) });
    expect(all.outgoing.size).toBe(builtinSlots - 1);
    all.session.end(new RpcError({ code: "unavailable", message: "over", origin: "local" }), { quiet: true });
    expect(await late).toBe("unavailable");
    expect(new Set(await Promise.all(asked.slice(2)))).toEqual(new Set(["unavailable"]));
    expect(all.host.wheel.size).toBe(0);
  });

  it("ends at its deadline, and tells the peer", async () => {
    const all = open();
    const asked = code(all.exchange.request(builtin.explainDenial, [1], { timeoutMs: 50 }));
    all.host.clock.advance(60);
    all.session.flush();
    expect(await asked).toBe("deadline_exceeded");
    expect(all.port.frames.map(({ kind }) => kind)).toContain(frameKind.cancel);
  });
});

describe("a built-in method", () => {
  const request = (method: number, callId: number) => ({
    kind: frameKind.request,
    method,
    callId,
    word: 1000,
    body: 7,
  });

  it("is served in its own slots, and not counted among users' requests", () => {
    const all = open({ maxRequests: 8 });
    const method = new FakeMethod();
    all.host.builtins = [method];
    all.receive(request(firstBuiltin, id(1, 8)), request(firstBuiltin, id(1, 8 + builtinSlots - 1)));
    expect(method.calls.map(({ input }) => input)).toEqual([7, 7]);
    expect(all.incoming.size).toBe(2);
    for (const { call } of method.calls) call.settle({ value: 1 });
    expect(all.incoming.size).toBe(0);
    expect(all.host.counters).toMatchObject({ requestsStarted: 0, requestsSucceeded: 0 });
  });

  it("that nobody knows is unimplemented", () => {
    const all = open({ maxRequests: 8 });
    all.receive(request(0xffff, id(1, 8)));
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, word: 12 }]);
    expect(all.session.state).toBe("open");
  });

  it.each([
    [firstBuiltin, id(1, 8 + builtinSlots), "is beyond the 8 granted"],
    [firstBuiltin, id(1, 0), "is not in the slots of control methods"],
    [0, id(1, 8), "is beyond the 8 granted"],
  ])("in a slot that is not its own ends the session (%i in %i)", (method, callId, text) => {
    const all = open({ maxRequests: 8 });
    all.receive(request(method, callId));
    expectFault(all, "");
    expect(all.host.ended[0]?.reason?.message).toContain(text);
  });
});
