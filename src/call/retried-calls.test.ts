import { describe, expect, it } from "vitest";
import { RetriedCalls } from "./retried-calls.ts";

const a = { url: "tcp://10.0.0.7:7400", incarnation: 7n };

describe("who a caller is", () => {
  const callerOf = (calls: RetriedCalls, callee = a) =>
    calls.identify(calls.takeSequence(), callee, false).caller;

  it("is one number for one process at one URL, and another for any other", () => {
    const calls = new RetriedCalls();
    const numbers = [
      callerOf(calls),
      callerOf(calls, { ...a, incarnation: 8n }),
      // Another address with the same incarnation.
      callerOf(calls, { ...a, url: "tcp://10.0.0.8:7400" }),
      callerOf(new RetriedCalls()),
    ];
    expect(new Set(numbers).size).toBe(4);
    expect(callerOf(calls)).toBe(numbers[0]);
  });

  it("comes with the lowest sequence that is open, and for a second time with the incarnation", () => {
    const calls = new RetriedCalls();
    const [first, second] = [calls.takeSequence(), calls.takeSequence()];
    expect(calls.identify(second, a, false)).toMatchObject({ sequence: 2, settled: 1, incarnation: 0n });
    calls.settle(first);
    expect(calls.identify(second, a, true)).toMatchObject({ sequence: 2, settled: 2, incarnation: 7n });
  });
});
