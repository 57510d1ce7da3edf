import { describe, expect, it } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { RequestCredits } from "../../base/flow/request-credits.ts";
import { frameKind } from "../../wire/frame.ts";
import { GrantedCredits } from "./granted-credits.ts";
import { id, open } from "./scripted-session.test-support.ts";

const graceMs = 1000;

function setUp({ total = 1000, most = 100 } = {}) {
  const engine = new RequestCredits(total, most);
  return { engine, granted: new GrantedCredits(engine, most, graceMs) };
}

describe("the credits of a peer", () => {
  it("are those of before until it has heard of fewer", () => {
    const { granted } = setUp();
    const first = granted.onTold(50, 0);
    const second = granted.onTold(20, 0);
    expect([granted.allows(99, 1), granted.allows(100, 1)]).toEqual([true, false]);
    granted.onEcho(77);
    granted.onEcho(first);
    expect([granted.allows(49, 1), granted.allows(50, 1)]).toEqual([true, false]);
    granted.onEcho(second);
    expect([granted.allows(20, 1), granted.allowed]).toEqual([false, 20]);
    // More counts at once.
    expect([granted.onTold(60, 0), granted.allows(59, 1)]).toEqual([0, true]);
  });

  it("are held to though it never says that it has heard", () => {
    const { granted } = setUp();
    for (let told = 99; told > 20; told--) expect(granted.onTold(told, 0)).toBeGreaterThan(0);
    expect(granted.allows(99, graceMs - 1)).toBe(true);
    expect([granted.allows(99, graceMs), granted.allowed]).toEqual([false, 21]);
  });

  it("are few for a newcomer while others hold more than their shares, and more when there is room", () => {
    const { engine, granted } = setUp({ total: 100, most: 64 });
    for (let i = 0; i < 80; i++) engine.enter();
    expect(granted.toTell(64)).toBe(16);
    granted.onTold(16, 0);
    expect([granted.toRaise(), granted.toTell(64)]).toEqual([0, 0]);
    for (let i = 0; i < 40; i++) engine.leave();
    expect(granted.toRaise()).toBe(32);
    granted.onTold(32, 0);
    for (let i = 0; i < 40; i++) engine.leave();
    expect([granted.toRaise(), granted.toRaise()]).toEqual([64, 0]);
  });
});

describe("a session whose peer has fewer credits than before", () => {
  const request = (slot: number) => ({ kind: frameKind.request, callId: id(1, slot), word: 5000, body: 1 });

  it("refuses what is beyond them once the peer has heard, and executes what came before", () => {
    const all = open({ maxRequests: 8 });
    all.host.clock.advance(1);
    all.exchange.grantCredits(2);
    all.session.flush();
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.credits, word: 2 },
      { kind: frameKind.ping, word: 1 },
    ]);
    for (let slot = 0; slot < 4; slot++) all.receive(request(slot));
    expect(all.method.calls).toHaveLength(4);
    all.receive({ kind: frameKind.pong, word: 1 }, request(4));
    expect(all.method.calls).toHaveLength(4);
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.error, callId: id(1, 4), word: 8 });
    expect([all.incoming.size, all.host.credits.open, all.session.state]).toEqual([4, 4, "open"]);
    for (const { call } of all.method.calls.splice(0, 3)) call.settle({ value: 1 });
    all.receive(request(5));
    expect(all.method.calls).toHaveLength(2);
    all.session.end(new RpcError({ code: "unavailable", message: "over" }));
    expect(all.host.credits.open).toBe(0);
  });
});
