import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { HandlerErrorLog } from "./handler-error-log.ts";

function logged() {
  const clock = new FakeClock();
  const lines: string[] = [];
  const errors: unknown[] = [];
  const log = new HandlerErrorLog(clock, (line, error) => {
    lines.push(line);
    if (error !== undefined) errors.push(error);
  });
  const fail = (error: unknown, method = "s/m", began = true) =>
    log.report(error, { method, callId: 7, began });
  return { clock, log, lines, errors, fail };
}

const shed = () => new RpcError({ code: "resource_exhausted", message: "no room" });

describe("the log of failed handlers", () => {
  it("prints the first error of a kind with its stack, and counts the others once a second", () => {
    const { clock, lines, errors, fail } = logged();
    const first = new TypeError("boom");
    fail(first);
    for (let i = 0; i < 4000; i++) fail(new TypeError("boom again"));
    expect(lines).toEqual(["cinnabar: the handler of s/m failed in call 7:"]);
    expect(errors).toEqual([first]);
    clock.advance(1000);
    expect(lines.slice(1)).toEqual(["cinnabar: the handler of s/m failed 4000 more times"]);
    for (let i = 0; i < 3; i++) fail(new TypeError("boom again"));
    clock.advance(1000);
    expect(lines.slice(2)).toEqual(["cinnabar: the handler of s/m failed 3 more times"]);
  });

  it("tells methods, codes and names of errors apart", () => {
    const { lines, fail } = logged();
    fail(new TypeError("a"));
    fail(new RangeError("a"));
    fail(shed());
    fail(new TypeError("a"), "s/other");
    expect(lines).toHaveLength(4);
  });

  it("says in one line that a one-way call was not executed", () => {
    const { lines, errors, fail } = logged();
    fail(shed(), "s/m", false);
    expect(lines).toEqual([expect.stringMatching(/^cinnabar: s\/m was not executed \(call 7\): .*no room$/)]);
    expect(errors).toEqual([]);
  });

  it("prints the stack again after a quiet second, and holds no timer then", () => {
    const { clock, lines, errors, fail } = logged();
    fail(new TypeError("a"));
    clock.advance(1000);
    expect(clock.timers).toBe(0);
    fail(new TypeError("b"));
    expect(lines).toHaveLength(2);
    expect(errors).toHaveLength(2);
  });

  it("keeps a bounded number of kinds", () => {
    const { clock, lines, fail } = logged();
    for (let i = 0; i < 1000; i++) fail(Object.assign(new Error("x"), { name: `Kind${i}` }));
    expect(lines.length).toBeLessThanOrEqual(257);
    clock.advance(1000);
    expect(lines.at(-1)).toMatch(/^cinnabar: handlers failed in other ways \d+ more times$/);
  });

  it("prints what it has counted when it closes, and ends its timer", () => {
    const { clock, log, lines, fail } = logged();
    fail(new TypeError("a"));
    fail(new TypeError("a"));
    log.close();
    expect(lines.at(-1)).toBe("cinnabar: the handler of s/m failed 1 more times");
    expect(clock.timers).toBe(0);
  });
});
