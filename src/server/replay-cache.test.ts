import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import type { EngineLimits } from "../base/flow/engine-limits.ts";
import type { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { IncomingCall, type Outcome, type OutcomeTaker } from "../call/incoming-call.ts";
import { type Identity, identityOfProcess, identityOfPsk } from "../security/identity.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { ReplayCache } from "./replay-cache.ts";

const cancelled = new RpcError({ code: "cancelled", message: "the caller gave up", origin: "remote" });

/** A cache, and sessions that only take answers. */
function setUp(limits: Partial<EngineLimits> = {}, bindsIdentity = false) {
  const host = new FakeServices(limits);
  const clock = host.clock as FakeClock;
  const cache = new ReplayCache(clock, host.limits, bindsIdentity);
  const answers: Outcome[] = [];
  const strangers: string[] = [];
  const newSession = (identity?: Identity) => {
    const session = {
      identity,
      onOtherIdentity: (why: string) => strangers.push(why),
      services: host,
      clock,
      state: "open",
      takeOutcome: (_: IncomingCall, outcome: Outcome) => answers.push(outcome),
      onOverdue: () => {},
    };
    return session as unknown as PeerLink & { state: string } & OutcomeTaker;
  };
  const ask = (
    sequence: number,
    more: {
      caller?: bigint;
      settled?: number;
      again?: boolean;
      incarnation?: bigint;
      timeMs?: number;
      by?: Identity | undefined;
    } = {},
  ) => {
    const session = newSession(more.by);
    const identity = {
      caller: more.caller ?? 1n,
      sequence,
      settled: more.settled ?? 0,
      incarnation: more.incarnation ?? (more.again ? host.incarnation : 0n),
    };
    const request = new IncomingCall(session, 0x100000, 0, identity);
    request.deadlineMs = clock.now() + (more.timeMs ?? 1000);
    const execution = cache.admit(request, identity, session);
    if (execution !== undefined) execution.handler = "here";
    return { session, request, execution, last: () => answers.at(-1) };
  };
  return { host, clock, cache, ask, answers, strangers };
}

describe("answers kept for an identity", () => {
  const ann = identityOfPsk("ann");
  const bob = identityOfPsk("bob");

  it("go to it from any session of it, and to nobody else", () => {
    const { ask, strangers, host } = setUp({}, true);
    ask(1, { by: ann }).execution?.settle({ value: "secret" });
    for (const by of [bob, undefined, identityOfProcess(0, 0, 1)]) {
      const stolen = ask(1, { by, again: true });
      expect(stolen.last()?.error).toMatchObject({ code: "permission_denied" });
      expect(stolen.execution).toBeUndefined();
    }
    expect(strangers).toHaveLength(3);
    expect(host.counters.replays).toBe(0);
    expect(ask(1, { by: identityOfPsk("ann"), again: true }).last()).toEqual({ value: "secret" });
  });

  it("cannot be joined or cancelled by another while they are being made", () => {
    const { ask } = setUp({}, true);
    const first = ask(1, { by: ann });
    const other = ask(1, { by: bob, again: true });
    other.request.onCancelled();
    expect(first.execution?.open).toBe(true);
    first.execution?.settle({ value: 1 });
    expect(first.last()).toEqual({ value: 1 });
  });

  it("are told from others only where identities are proven: one caller may come by shm and by tcp", () => {
    const { ask } = setUp();
    ask(1, { by: identityOfProcess(0, 0, 1) }).execution?.settle({ value: "kept" });
    expect(ask(1, { again: true }).last()).toEqual({ value: "kept" });
  });
});

describe("answers kept for replay", () => {
  it("execute a sequence once: others join while it runs, and get its answer later", () => {
    const { ask, answers, cache, host } = setUp();
    const first = ask(1);
    const second = ask(1, { again: true });
    expect([first.execution === undefined, second.execution]).toEqual([false, undefined]);
    first.execution?.settle({ value: { a: 1 } });
    expect(answers).toEqual([{ value: { a: 1 } }, { value: { a: 1 } }]);
    ask(1, { again: true });
    expect(answers[2]).toEqual({ value: { a: 1 } });
    expect([cache.size, host.counters.replays, host.wheel.size]).toEqual([1, 2, 0]);
  });

  it("are what the handler answered, whatever becomes of its objects", () => {
    const { ask } = setUp();
    const value = { list: [1] };
    ask(1).execution?.settle({ value });
    value.list.push(2);
    expect(ask(1).last()).toEqual({ value: { list: [1] } });
    ask(2).execution?.settle({ value: undefined });
    expect(ask(2).last()).toEqual({ value: undefined });
  });

  it("may be errors, declared ones with their data", () => {
    const { ask } = setUp();
    const error = new RpcError({
      code: "not_found",
      message: "gone",
      origin: "remote",
      reason: "Gone",
      data: [1],
    });
    ask(1).execution?.settle({ error });
    const replayed = ask(1, { again: true });
    expect(replayed.last()?.error).toMatchObject({
      code: "not_found",
      reason: "Gone",
      data: [1],
      message: "[not_found] gone",
    });
    expect(replayed.request.handler).toBe("elsewhere");
  });

  it("may be that there is no answer that could travel", () => {
    const { ask } = setUp();
    expect(ask(1).execution?.settle({ value: () => {} })).toBe(true);
    expect(ask(1, { again: true }).last()?.error).toMatchObject({ code: "internal" });
  });

  it("are dropped when their caller has settled them, and then refused", () => {
    const { ask, cache } = setUp();
    for (const sequence of [1, 2]) ask(sequence).execution?.settle({ value: sequence });
    ask(3, { settled: 2 });
    expect([cache.size, ask(2, { again: true }).last()]).toEqual([2, { value: 2 }]);
    const late = ask(1);
    expect(late.execution).toBeUndefined();
    expect(late.last()?.error).toMatchObject({ code: "aborted" });
    expect(late.last()?.error?.message).toContain("may have been executed");
  });

  it("are dropped by time, by a timer that is there only while there are any", () => {
    const { ask, cache, clock } = setUp({ maxReplayMs: 100 });
    ask(1).execution?.settle({ value: 1 });
    clock.advance(60);
    ask(2).execution?.settle({ value: 2 });
    clock.advance(40);
    expect([cache.size, ask(1, { again: true }).last()?.error?.code]).toEqual([1, "aborted"]);
    clock.advance(60);
    expect([cache.size, cache.bytes, clock.timers]).toEqual([0, 0, 0]);
  });

  it("are bounded in bytes and number, the oldest going first", () => {
    const { ask, cache } = setUp({ maxReplayBytes: 3000, maxReplayCalls: 4 });
    for (let sequence = 1; sequence <= 3; sequence++)
      ask(sequence).execution?.settle({ value: "x".repeat(1000) });
    expect([cache.size, cache.bytes <= 3000]).toEqual([2, true]);
    expect(ask(1, { again: true }).last()?.error?.code).toBe("aborted");
    for (let sequence = 4; sequence <= 7; sequence++) ask(sequence);
    expect(cache.size).toBe(4);
    for (const again of [false, true]) {
      const refused = ask(8, { again });
      expect([refused.execution, refused.request.handler]).toEqual([undefined, "none"]);
      expect(refused.last()?.error).toMatchObject({ code: "resource_exhausted" });
      expect(refused.last()?.error?.message).toContain("maxReplayCalls");
    }
  });

  it("belong to one caller, and to one process", () => {
    const { ask } = setUp();
    ask(1).execution?.settle({ value: "mine" });
    expect(ask(1, { caller: 2n }).execution).toBeDefined();
    const stranger = ask(2, { incarnation: 5n });
    expect(stranger.execution).toBeUndefined();
    expect(stranger.last()?.error).toMatchObject({ code: "aborted" });
    expect(stranger.request.handler).toBe("elsewhere");
  });

  it("are executed when a request of before never came", () => {
    const { ask } = setUp();
    ask(1);
    expect(ask(2, { again: true }).execution).toBeDefined();
  });

  it("are none of what was refused before a handler was begun", () => {
    const { ask, cache } = setUp();
    const refused = ask(1);
    const execution = refused.execution as IncomingCall;
    execution.handler = "none";
    execution.settle({ error: new RpcError({ code: "resource_exhausted", message: "full" }) });
    expect([refused.request.handler, cache.size]).toEqual(["none", 0]);
    expect(ask(1, { again: true }).execution).toBeDefined();
  });

  it("are worked on when the caller is lost, and not when it cancels", () => {
    const { ask, answers } = setUp();
    const lost = ask(1);
    lost.session.state = "ended";
    lost.request.abandon(new RpcError({ code: "unavailable", message: "lost" }));
    expect(lost.execution?.open).toBe(true);
    lost.execution?.settle({ value: "kept" });
    expect([answers, ask(1, { again: true }).last()]).toEqual([[{ value: "kept" }], { value: "kept" }]);
    const given = ask(2);
    const { signal } = given.execution as IncomingCall;
    given.request.abort(cancelled);
    expect([signal.aborted, given.execution?.open]).toEqual([true, false]);
    expect(ask(2, { again: true }).last()?.error).toMatchObject({ code: "cancelled" });
  });

  it("have the time of the call that joins last", () => {
    const { ask, clock } = setUp();
    const { execution } = ask(1);
    clock.advance(800);
    ask(1, { again: true });
    clock.advance(900);
    expect(execution?.open).toBe(true);
    clock.advance(200);
    expect(execution?.signal.reason).toMatchObject({ code: "deadline_exceeded" });
  });

  it("are worked on for as long as they would be kept when nobody waits any more", () => {
    const { ask, clock } = setUp({ maxReplayMs: 5000 });
    const lost = new RpcError({ code: "unavailable", message: "lost" });
    const weeks = 0xffff_ffff;
    const first = ask(1, { timeMs: weeks });
    const { signal } = first.execution as IncomingCall;
    const second = ask(1, { again: true });
    first.request.abandon(lost);
    clock.advance(500);
    // Its own time is up; it was the last that waited.
    second.request.abort(new RpcError({ code: "deadline_exceeded", message: "late" }));
    clock.advance(4990);
    const third = ask(1, { again: true, timeMs: weeks });
    clock.advance(20_000);
    expect([signal.aborted, third.execution]).toEqual([false, undefined]);
    third.request.abandon(lost);
    clock.advance(4990);
    expect(signal.aborted).toBe(false);
    clock.advance(20);
    expect(signal.reason).toMatchObject({ code: "aborted" });
    const late = ask(1, { again: true, timeMs: weeks });
    expect([late.execution, late.request.handler]).toEqual([undefined, "elsewhere"]);
    expect(late.last()?.error).toMatchObject({ code: "aborted" });
    expect(late.last()?.error?.message).toContain("may have been executed");
  });

  it("are out of time at the deadline of the last that waited, however long nobody did before", () => {
    const { ask, clock } = setUp({ maxReplayMs: 500 });
    const lost = new RpcError({ code: "unavailable", message: "lost" });
    const first = ask(1, { timeMs: 10_000 });
    first.request.abandon(lost);
    clock.advance(400);
    ask(1, { again: true, timeMs: 9000 });
    clock.advance(9020);
    expect(first.execution?.signal.reason).toMatchObject({ code: "deadline_exceeded" });
  });

  it("are worked on no longer than was asked for", () => {
    const { ask, clock } = setUp({ maxReplayMs: 5000 });
    const { execution, request } = ask(1);
    request.abandon(new RpcError({ code: "unavailable", message: "lost" }));
    clock.advance(1010);
    expect(execution?.open).toBe(false);
  });

  it("remember a bounded number of callers, and refuse those they forgot what they try again", () => {
    const { ask, cache } = setUp();
    ask(1, { caller: 7n }).execution?.settle({ value: 1 });
    for (let caller = 100n; caller < 100n + 8192n; caller++)
      ask(1, { caller }).execution?.settle({ value: 1 });
    expect(cache.size).toBe(8192);
    expect(ask(1, { caller: 7n, again: true }).last()?.error).toMatchObject({ code: "aborted" });
    expect(ask(2, { caller: 7n }).execution).toBeDefined();
    // Known again by its next call: what it asked for before is not executed a second time for that.
    const retried = ask(1, { caller: 7n, again: true });
    expect(retried.execution).toBeUndefined();
    expect(retried.last()?.error).toMatchObject({ code: "aborted" });
  });

  it("hold nothing when the engine has closed, and fire the signals of what runs", () => {
    const { ask, cache, host, clock } = setUp();
    ask(1).execution?.settle({ value: 1 });
    const signal = ask(2).execution?.signal;
    cache.close(new RpcError({ code: "unavailable", message: "closed" }));
    expect([cache.size, cache.bytes, host.wheel.size, clock.timers]).toEqual([0, 0, 0, 0]);
    expect(signal?.reason).toMatchObject({ code: "unavailable" });
  });
});
