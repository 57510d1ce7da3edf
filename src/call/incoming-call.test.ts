import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { IncomingCall, type Outcome } from "./incoming-call.ts";

function setUp() {
  const answers: Outcome[] = [];
  const call = new IncomingCall({ takeOutcome: (_, outcome) => answers.push(outcome) }, 0x100000, 3);
  return { answers, call };
}

const cancelled = new RpcError({ code: "cancelled", message: "the caller gave up", origin: "remote" });

describe("incoming call", () => {
  it("answers once with what it settled with first", () => {
    const { answers, call } = setUp();
    expect(call.settle({ value: 1 })).toBe(true);
    expect(call.settle({ value: 2 })).toBe(false);
    call.abort(cancelled);
    call.onDeadline();
    expect(answers).toEqual([{ value: 1 }]);
    expect(call.phase).toBe("answered");
    expect(call.signal.aborted).toBe(false);
  });

  it("fires its signal and answers when it is aborted, and drops the handler's later result", () => {
    const { answers, call } = setUp();
    const { signal } = call;
    call.abort(cancelled);
    expect(signal.reason).toBe(cancelled);
    expect(call.settle({ value: 1 })).toBe(false);
    expect(answers).toEqual([{ error: cancelled }]);
  });

  it("tells of a handler that has not ended when the time is up, and of nothing else", () => {
    const told: IncomingCall[] = [];
    const ended = (handler: IncomingCall["handler"], before: (call: IncomingCall) => void = () => {}) => {
      const call = new IncomingCall(
        { takeOutcome: () => {}, onOverdue: (late) => told.push(late) },
        0x100000,
        3,
      );
      call.handler = handler;
      before(call);
      call.onDeadline();
      return call;
    };
    ended("none");
    ended("elsewhere");
    ended("here", (call) => call.settle({ value: 1 }));
    ended("here", (call) => call.abort(cancelled));
    expect(told).toEqual([]);
    const late = ended("here");
    expect(told).toEqual([late]);
    expect(late.signal.reason).toMatchObject({ code: "deadline_exceeded" });
  });

  it("makes its signal when first asked, fired if it should have been", () => {
    const { call } = setUp();
    call.abort(cancelled);
    expect(call.signal.aborted).toBe(true);
    expect(call.signal.reason).toBe(cancelled);
    expect(call.signal).toBe(call.signal);
  });

  it("ends with deadline_exceeded when its time is up", () => {
    const { answers, call } = setUp();
    call.onDeadline();
    expect(answers[0]?.error?.code).toBe("deadline_exceeded");
    expect((call.signal.reason as RpcError).code).toBe("deadline_exceeded");
  });

  it("holds its answer back until its last transfer has ended, whichever side ended the call", () => {
    for (const end of [
      (call: IncomingCall) => void call.settle({ value: 1 }),
      (call: IncomingCall) => call.abort(cancelled),
      (call: IncomingCall) => call.onDeadline(),
    ]) {
      const { answers, call } = setUp();
      call.beginTransfer();
      call.beginTransfer();
      end(call);
      expect([call.phase, call.open, answers.length]).toEqual(["ended", false, 0]);
      call.endTransfer();
      expect(answers).toHaveLength(0);
      call.endTransfer();
      expect([call.phase, answers.length]).toEqual(["answered", 1]);
    }
  });

  it("stays open after transfers that end before it", () => {
    const { answers, call } = setUp();
    call.beginTransfer();
    call.endTransfer();
    expect([call.open, answers.length]).toEqual([true, 0]);
  });

  it("begins no transfer once it has ended, and says why", () => {
    const aborted = setUp().call;
    aborted.abort(cancelled);
    expect(() => aborted.beginTransfer()).toThrow(cancelled);
    const settled = setUp().call;
    settled.settle({ value: 1 });
    expect(() => settled.beginTransfer()).toThrow("[failed_precondition] the call has ended");
  });

  it("fires its signal and answers nobody when its peer is gone, even with transfers under way", () => {
    const { answers, call } = setUp();
    const { signal } = call;
    call.beginTransfer();
    call.abandon(cancelled);
    expect([call.phase, signal.aborted]).toEqual(["answered", true]);
    call.endTransfer();
    expect(answers).toEqual([]);
    expect(() => call.beginTransfer()).toThrow(cancelled);
  });

  it("keeps its signal quiet when its peer goes after it has ended", () => {
    const { call } = setUp();
    call.beginTransfer();
    call.settle({ value: 1 });
    call.abandon(cancelled);
    expect(call.signal.aborted).toBe(false);
  });
});
