import { describe, expect, it } from "vitest";
import { defaultLimits } from "../base/flow/session-limits.ts";
import { systemClock } from "../base/time/clock.ts";
import { DeadlineWheel } from "../base/time/deadline-wheel.ts";
import { service } from "../contract/service.ts";
import { unary } from "../contract/unary.ts";
import { Admission } from "./admission.ts";
import { defaultAdmission } from "./admission-options.ts";
import { codeOfReason } from "./call-context.ts";
import { dispatchTable } from "./dispatcher.ts";
import { implement, isImplementation } from "./implement.ts";
import { ReplayCache } from "./replay-cache.ts";

const One = service("one.v1", { a: unary(), b: unary() });
const Two = service("two.v1", { a: unary() });
const nothing = () => {};
const admission = new Admission(systemClock, new DeadlineWheel(systemClock), defaultAdmission);
const replays = new ReplayCache(systemClock, defaultLimits);
const loose = implement as (service: unknown, handlers: unknown) => unknown;

describe("implement", () => {
  it("refuses what is no service, no handlers, or incomplete, naming it", () => {
    expect(() => loose({}, {})).toThrow("made by service()");
    expect(() => loose(One, null)).toThrow("handlers must be an object");
    expect(() => loose(One, { a: nothing })).toThrow('method "b" has no handler');
    expect(() => loose(One, { a: nothing, b: 5 })).toThrow('method "b" has no handler');
    expect(() => loose(One, { a: nothing, b: nothing, c: nothing })).toThrow('handler "c" is not a method');
  });

  it("takes inherited handlers, and is frozen", () => {
    class Base {
      a(): void {}
    }
    class Derived extends Base {
      b(): void {}
      helper(): void {}
    }
    const made = implement(One, new Derived());
    expect(Object.isFrozen(made) && Object.isFrozen(made.handlers)).toBe(true);
    expect(Object.keys(made.handlers)).toEqual(["a", "b"]);
    expect(isImplementation(made)).toBe(true);
    for (const value of [One, { a: nothing }, null, "one.v1", { service: One }])
      expect(isImplementation(value)).toBe(false);
  });
});

describe("limits of a service", () => {
  it("are checked when it is implemented", () => {
    const handlers = { a: nothing, b: nothing };
    expect(implement(One, handlers, { maxConcurrent: 5 }).admission).toEqual({ maxConcurrent: 5 });
    expect(() => implement(One, handlers, { maxConcurrent: 0 })).toThrow(
      'implement "one.v1": maxConcurrent must be an integer from 1 to 1000000, it is 0',
    );
    expect(() => implement(One, handlers, { limit: 5 } as object)).toThrow('unknown option "limit"');
  });
});

describe("the dispatch table", () => {
  const handlers = { a: nothing, b: nothing };

  it("numbers the methods through in the order it tells them", () => {
    const { services, methods } = dispatchTable(
      [implement(One, handlers), implement(Two, handlers2)],
      nothing,
      replays,
      admission,
    );
    expect(services).toEqual([
      ["one.v1", ["a", "b"]],
      ["two.v1", ["a"]],
    ]);
    expect(methods).toHaveLength(3);
  });

  it("refuses a service twice", () => {
    const one = implement(One, handlers);
    expect(() => dispatchTable([one, one], nothing, replays, admission)).toThrow(
      'service "one.v1" is implemented twice',
    );
  });

  const handlers2 = { a: nothing };
});

describe("the code of a declared reason", () => {
  it.each([
    ["NotFound", "not_found"],
    ["AlreadyExists", "already_exists"],
    ["Aborted", "aborted"],
    ["ResourceExhausted", "resource_exhausted"],
    ["Busy", "failed_precondition"],
    ["notFound", "not_found"],
    ["not_found", "not_found"],
    ["__proto__", "failed_precondition"],
  ])("%s is %s", (reason, code) => {
    expect(codeOfReason(reason)).toBe(code);
  });
});
