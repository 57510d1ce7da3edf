import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import type { AdmittedRequest } from "./admission.ts";
import type { AdmissionOptions } from "./admission-options.ts";
import { type Asked, type Asking, Gate } from "./admission-queue.test-support.ts";
import type { AdmissionQueue } from "./admission-queue.ts";

function setUp(options: AdmissionOptions = { maxConcurrent: 1 }, service?: AdmissionOptions) {
  const clock = new FakeClock();
  const gate = new Gate(clock, options, service);
  const many = (count: number, asking?: Asking) => Array.from({ length: count }, () => gate.ask(asking));
  return { clock, gate, many };
}

const began = (asked: readonly Asked[]) => asked.map((each) => each.began);
const refused = (asked: Asked | undefined) => asked?.outcome?.error;
const cancelled = new RpcError({ code: "cancelled", message: "the caller gave up", origin: "remote" });

describe("admission", () => {
  it("has no queue for a service where nothing is bounded", () => {
    const { gate } = setUp({});
    expect(gate.addLane("other.v1")).toBeUndefined();
    expect(gate.addLane("other.v1", {})).toBeUndefined();
    expect(() => gate.addLane("other.v1", { maxQueued: 5, maxQueueMs: 1 })).toThrow(
      'service "other.v1": maxQueued, maxQueueMs without maxConcurrent has no effect: no request waits',
    );
    expect(gate.addLane("other.v1", { maxConcurrent: 5 })).toBeDefined();
  });

  it("begins handlers at once while there is a place, and the others as places come free, in order", () => {
    const { gate, many, clock } = setUp({ maxConcurrent: 2 });
    const asked = many(4);
    expect(began(asked)).toEqual([true, true, false, false]);
    expect(gate.admission.stats()).toMatchObject({ running: 2, queued: 2, queuedBytes: 20 });
    clock.advance(8);
    asked[1]?.end();
    expect(began(asked)).toEqual([true, true, true, false]);
    expect(asked.map(({ call }) => call.queuedUs)).toEqual([0, 0, 8000, 0]);
    for (const each of asked) each.end();
    expect(gate.admission.stats()).toMatchObject({ running: 0, queued: 0, queuedBytes: 0, longestWaitMs: 0 });
    expect([gate.most, gate.wheel.size]).toEqual([2, 0]);
  });

  it("takes a handler's end once, and of one that has begun only", () => {
    const { gate, many } = setUp();
    const [first, second, third] = many(3) as [Asked, Asked, Asked];
    first.end();
    first.end();
    expect([second.began, third.began]).toEqual([true, false]);
    expect(gate.most).toBe(1);
  });

  it("does not go deeper with each handler that ends at once", () => {
    const { gate } = setUp({ maxConcurrent: 1, maxQueued: 20_000 });
    const first = gate.ask();
    const all = Array.from({ length: 20_000 }, () => gate.ask({ onBegun: (call) => gate.end(call) }));
    first.end();
    expect(all.every((each) => each.outcome !== undefined)).toBe(true);
    expect(gate.most).toBe(1);
  });

  it("bounds a service by its own limit too, and lets no service wait for another's", () => {
    const { gate, many } = setUp({ maxConcurrent: 3 });
    const narrow = gate.addLane("narrow.v1", { maxConcurrent: 1 }) as AdmissionQueue<AdmittedRequest>;
    const inNarrow = many(3, { queue: narrow });
    expect(began(inNarrow)).toEqual([true, false, false]);
    const others = many(3);
    expect(began(others)).toEqual([true, true, false]);
    // The place is one in all: the narrow service still has none.
    others[0]?.end();
    expect([began(others), began(inNarrow)]).toEqual([
      [true, true, true],
      [true, false, false],
    ]);
    inNarrow[0]?.end();
    expect([narrow.running, gate.admission.stats().running, began(inNarrow)]).toEqual([
      1,
      3,
      [true, true, false],
    ]);
  });

  it("lets the services of an engine take turns", () => {
    const { gate, many } = setUp({ maxConcurrent: 1 });
    const queues = ["a.v1", "b.v1"].map(
      (name) => gate.addLane(name, { maxQueued: 50 }) as AdmissionQueue<AdmittedRequest>,
    );
    const first = gate.ask();
    const a = many(10, { queue: queues[0] as AdmissionQueue<AdmittedRequest> });
    const b = many(2, { queue: queues[1] as AdmissionQueue<AdmittedRequest> });
    let last = first;
    for (let i = 0; i < 4; i++) {
      last.end();
      last = [...a, ...b].find((each) => each.began && each.outcome === undefined) as Asked;
    }
    expect(began(b)).toEqual([true, true]);
  });

  it("refuses what finds no room to wait, and says which limit it was and when to come back", () => {
    const { gate, many, clock } = setUp({ maxConcurrent: 1, maxQueued: 2 });
    const [first] = many(1) as [Asked];
    clock.advance(30);
    first.end();
    const asked = many(4);
    const error = refused(asked[3]);
    expect(error).toMatchObject({ code: "resource_exhausted", retryable: true, retryAfterMs: 90 });
    expect(error?.message).toContain("the server runs 1 handlers (maxConcurrent), and 2 requests");
    expect(error?.message).toContain("maxQueued is 2");
    expect(asked[3]?.call.handler).toBe("none");
    expect(gate.admission.stats().shed).toEqual({ full: 1, pushed_out: 0, age: 0, deadline: 0 });
  });

  it("names the service whose limit it was", () => {
    const { many } = setUp({}, { maxConcurrent: 1, maxQueued: 0 });
    expect(refused(many(2)[1])?.message).toContain('"some.v1" runs 1 handlers');
  });

  it("bounds the bytes that wait, and lets a long one wait alone", () => {
    const { gate } = setUp({ maxConcurrent: 1, maxQueuedBytes: 1024 });
    const first = gate.ask();
    const long = gate.ask({ bytes: 5000 });
    expect(refused(gate.ask({ bytes: 1 }))).toMatchObject({ code: "resource_exhausted" });
    first.end();
    expect(long.began).toBe(true);
    for (const bytes of [1000, 24]) expect(refused(gate.ask({ bytes }))).toBeUndefined();
    expect(refused(gate.ask({ bytes: 1 }))).toBeDefined();
    expect(gate.admission.stats().queuedBytes).toBe(1024);
  });

  it("puts out another request for one of priority control", () => {
    const { gate, many, clock } = setUp({ maxConcurrent: 1, maxQueued: 3 });
    const running = gate.ask();
    const others = many(3);
    clock.advance(4);
    const control = gate.ask({ priority: "control" });
    expect(refused(others[2])).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("after 4 ms in the admission queue: a control request took its place"),
    });
    running.end();
    expect([control.began, began(others)]).toEqual([true, [false, false, false]]);
    expect(gate.admission.stats()).toMatchObject({ shed: { pushed_out: 1 }, queued: 2 });
  });
});

describe("what waits for its turn", () => {
  it("leaves with its bytes when it is cancelled, when its peer is lost, and when its time is up", () => {
    const { gate, many, clock } = setUp();
    const running = gate.ask();
    const [one, two, three] = many(3, { timeMs: 50 }) as [Asked, Asked, Asked];
    one.call.onCancelled();
    expect(refused(one)).toMatchObject({ code: "cancelled" });
    two.call.abandon(cancelled);
    expect(gate.admission.stats()).toMatchObject({ queued: 1, queuedBytes: 10 });
    clock.advance(60);
    expect(refused(three)).toMatchObject({
      code: "deadline_exceeded",
      message: expect.stringContaining("while the request waited in the queue"),
    });
    expect(three.call.handler).toBe("none");
    expect(gate.admission.stats()).toMatchObject({
      queued: 0,
      queuedBytes: 0,
      shed: { age: 0, deadline: 0 },
    });
    running.end();
    expect([one, two, three].some((each) => each.began)).toBe(false);
    expect(gate.wheel.size).toBe(0);
  });

  it("is refused after maxQueueMs, but for control", () => {
    const { gate, clock } = setUp({ maxConcurrent: 1, maxQueueMs: 100 });
    const running = gate.ask();
    const normal = gate.ask();
    const control = gate.ask({ priority: "control" });
    clock.advance(99);
    expect(refused(normal)).toBeUndefined();
    clock.advance(10);
    expect(refused(normal)).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("maxQueueMs is 100"),
    });
    clock.advance(5000);
    running.end();
    expect(control.began).toBe(true);
    expect(gate.admission.stats().shed.age).toBe(1);
  });

  it("is refused rather than begun when no handler of its method has been that fast lately", () => {
    const { gate, clock } = setUp();
    const fast = gate.method();
    const slow = gate.method();
    for (let i = 0; i < 8; i++) {
      const measured = gate.ask({ method: slow });
      clock.advance(80 + i);
      measured.end();
    }
    const running = gate.ask({ method: fast });
    const hopeless = gate.ask({ method: slow, timeMs: 100 });
    const hopeful = gate.ask({ method: slow, timeMs: 150 });
    const other = gate.ask({ method: fast, timeMs: 100 });
    clock.advance(40);
    running.end();
    expect(refused(hopeless)).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("its deadline is in 60 ms, and the fastest recent handler took 80 ms"),
    });
    expect(hopeful.began).toBe(true);
    hopeful.end();
    expect(other.began).toBe(true);
    expect(gate.admission.stats().shed.deadline).toBe(1);
  });

  it("is refused after targetQueueMs when others have been waiting without a break for long", () => {
    const { gate, many, clock } = setUp({ maxConcurrent: 1, targetQueueMs: 10 });
    const running = gate.ask();
    const old = many(3);
    clock.advance(195);
    const fresh = many(2);
    clock.advance(5);
    running.end();
    expect(old.map((each) => refused(each)?.code)).toEqual([1, 2, 3].map(() => "resource_exhausted"));
    expect(refused(old[0])?.message).toContain("after 200 ms in the admission queue");
    expect(began(fresh)).toEqual([true, false]);
    expect(gate.admission.stats()).toMatchObject({ shed: { age: 3 }, queued: 1 });
    for (const each of fresh) each.end();
    // No request waits, but the refusals are recent: they still count.
    const [first, second, third, fourth] = many(4) as [Asked, Asked, Asked, Asked];
    clock.advance(20);
    first.end();
    expect([refused(second), refused(third)].map((error) => error?.code)).toEqual([
      "resource_exhausted",
      "resource_exhausted",
    ]);
    expect(fourth.began).toBe(true);
    fourth.end();
    // After an interval of calm a burst is let wait again.
    clock.advance(200);
    const burst = many(20);
    clock.advance(100);
    burst[0]?.end();
    expect(began(burst).slice(0, 3)).toEqual([true, true, false]);
    expect(gate.admission.stats().shed.age).toBe(5);
  });

  it("keeps the last that waits, however old it is: a place is not left empty", () => {
    const { gate, clock } = setUp({ maxConcurrent: 1, targetQueueMs: 1 });
    const running = gate.ask();
    const old = gate.ask();
    clock.advance(900);
    running.end();
    expect(old.began).toBe(true);
  });
});

describe("a place", () => {
  it("goes back when the handler ends, though its call has ended before", () => {
    const { gate, many, clock } = setUp();
    const [first, second] = many(2) as [Asked, Asked];
    first.call.onCancelled();
    expect(second.began).toBe(false);
    clock.advance(500);
    first.end();
    expect([second.began, gate.admission.stats().overdue]).toEqual([true, 0]);
    second.end();
    expect(gate.wheel.size).toBe(0);
  });

  it("goes back a second after the call when the handler does not end", () => {
    const { gate, many, clock } = setUp({ maxConcurrent: 1, maxQueueMs: 60_000, targetQueueMs: 60_000 });
    const [first, second] = many(2, { timeMs: 2000 }) as [Asked, Asked];
    const third = gate.ask({ timeMs: 60_000 });
    first.call.onCancelled();
    clock.advance(999);
    expect(second.began).toBe(false);
    clock.advance(10);
    expect([second.began, gate.admission.stats().overdue]).toEqual([true, 1]);
    first.end();
    expect(third.began).toBe(false);
    clock.advance(1000);
    expect(second.outcome?.error).toMatchObject({ code: "deadline_exceeded" });
    clock.advance(1010);
    expect([third.began, gate.admission.stats().overdue]).toEqual([true, 2]);
    expect(gate.admission.stats().running).toBe(1);
  });
});

describe("the close of an engine", () => {
  it("ends what waits as not executed, and begins nothing any more", () => {
    const { gate, many } = setUp();
    const asked = many(3);
    gate.admission.close();
    expect(asked.map((each) => refused(each)?.code)).toEqual([undefined, "unavailable", "unavailable"]);
    expect(asked[2]?.call.handler).toBe("none");
    asked[0]?.end();
    expect(refused(gate.ask())).toMatchObject({ code: "unavailable" });
    expect(gate.admission.stats()).toMatchObject({ running: 0, queued: 0 });
    expect(gate.wheel.size).toBe(0);
  });
});
