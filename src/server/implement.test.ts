import { describe, expect, it } from "vitest";
import { usualLimits } from "../base/flow/engine-limits.test-support.ts";
import { CallMetrics } from "../base/observe/call-metrics.ts";
import { systemClock } from "../base/time/clock.ts";
import { DeadlineWheel } from "../base/time/deadline-wheel.ts";
import { service } from "../contract/service.ts";
import { unary } from "../contract/unary.ts";
import { Admission } from "./admission.ts";
import { defaultAdmission } from "./admission-options.ts";
import { implement, isImplementation } from "./implement.ts";
import { ReplayCache } from "./replay-cache.ts";
import { Dispatchers, ServedServices } from "./served-services.ts";

const One = service("one.v1", { a: unary(), b: unary() });
const Two = service("two.v1", { a: unary() });
const nothing = () => {};
const admission = new Admission(systemClock, new DeadlineWheel(systemClock), defaultAdmission);
const replays = new ReplayCache(systemClock, usualLimits);
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
  const servedServices = () =>
    new ServedServices(
      new Dispatchers({
        onHandlerError: nothing,
        replays,
        admission,
        metrics: new CallMetrics(),
        middleware: [],
      }),
    );

  const handlers = { a: nothing, b: nothing };

  it("numbers the methods through in the order it tells them", () => {
    const served = servedServices();
    served.add("serve", [implement(One, handlers)]);
    served.add("serve", [implement(Two, handlers2)]);
    const { services, methods } = served;
    expect(services).toEqual([
      ["one.v1", ["a", "b"]],
      ["two.v1", ["a"]],
    ]);
    expect(methods).toHaveLength(3);
  });

  it("refuses a service twice", () => {
    const one = implement(One, handlers);
    const served = servedServices();
    expect(() => served.add("serve", [implement(Two, handlers2), one, one])).toThrow(
      'serve: service "one.v1" is implemented twice',
    );
    expect(served.services).toEqual([]);
    served.add("serve", [one]);
    expect(() => served.add("serve", [one])).toThrow('service "one.v1" is implemented twice');
  });

  it("refuses what implement has not made", () => {
    expect(() => servedServices().add("serve", [{ service: One }] as never)).toThrow(
      "serve: serve[0] must be made by implement()",
    );
    expect(() => servedServices().add("serve", One as never)).toThrow("serve must be an array");
  });

  const handlers2 = { a: nothing };
});
