import { describe, expect, it } from "vitest";
import { DeadlineWheel } from "../../base/time/deadline-wheel.ts";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { IdleWatch, SilenceTimer } from "./idle-watch.ts";

const idleTimeoutMs = 400;
const stepMs = 4;

/** A stream with waiting and frames under the test's control, and the time when it was found idle. */
function setUp() {
  const clock = new FakeClock();
  const stream = {
    waitsForPeer: true,
    framesReceived: 0,
    idleAtMs: undefined as number | undefined,
    onIdle: () => {
      stream.idleAtMs = clock.now();
    },
  };
  const watch = new IdleWatch({ wheel: new DeadlineWheel(clock), clock }, idleTimeoutMs, stream);
  const pass = (ms: number) => {
    for (let passedMs = 0; passedMs < ms; passedMs += stepMs) clock.advance(stepMs);
  };
  return { clock, stream, watch, pass };
}

describe("an idle bound", () => {
  it.each(["a frame", "the begin of the wait"])(
    "ends the stream after one to one and a tenth of it, whenever %s was",
    (since) => {
      for (let atMs = 0; atMs < idleTimeoutMs; atMs += stepMs) {
        const { clock, stream, pass } = setUp();
        stream.waitsForPeer = since === "a frame";
        pass(atMs);
        expect(stream.idleAtMs).toBeUndefined();
        stream.waitsForPeer = true;
        if (since === "a frame") stream.framesReceived++;
        const sinceMs = clock.now();
        pass(2 * idleTimeoutMs);
        const afterMs = (stream.idleAtMs as number) - sinceMs;
        expect(afterMs).toBeGreaterThanOrEqual(idleTimeoutMs);
        expect(afterMs).toBeLessThanOrEqual(1.1 * idleTimeoutMs);
      }
    },
  );

  it("does not count the time that the process stood still: what came meanwhile is not read yet", () => {
    const quiet = new SilenceTimer(idleTimeoutMs, 0, 0);
    const stream = { waitsForPeer: true, framesReceived: 0 };
    expect(quiet.look(stream, quiet.untilNextMs)).toBe(false);
    expect(quiet.look(stream, 10 * idleTimeoutMs)).toBe(false);
    stream.framesReceived++;
    expect(quiet.look(stream, 10 * idleTimeoutMs + quiet.untilNextMs)).toBe(false);
  });

  it("does not end a stream that hears of its peer now and then, nor one that does not wait, nor one that is over", () => {
    const { stream, pass, watch } = setUp();
    for (let round = 0; round < 20; round++) {
      pass(idleTimeoutMs - stepMs);
      stream.framesReceived++;
    }
    stream.waitsForPeer = false;
    pass(5 * idleTimeoutMs);
    stream.waitsForPeer = true;
    watch.stop();
    pass(5 * idleTimeoutMs);
    expect(stream.idleAtMs).toBeUndefined();
  });
});
