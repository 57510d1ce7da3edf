import { describe, expect, it } from "vitest";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { IdlePings } from "./idle-pings.ts";
import type { WatchedSession } from "./watched-session.ts";

const everyMs = 1000;

function setUp() {
  const clock = new FakeClock(0);
  const sessions = new Set<WatchedSession>();
  const pingedMs: number[] = [];
  const pings = new IdlePings(clock, everyMs, { probe: () => void pingedMs.push(clock.now()) }, sessions);
  const open = (given: Partial<WatchedSession> = {}) => {
    const session = { state: "open", wasHeard: true, isWatched: false, ...given } as WatchedSession;
    sessions.add(session);
    pings.onOpened();
    return session;
  };
  /** From now on the peer answers each ping, if `answers`. */
  const run = (session: WatchedSession, ms: number, answers: boolean) => {
    for (let at = 0; at < ms; at += 100) {
      const before = pingedMs.length;
      clock.advance(100);
      if (answers && pingedMs.length > before) session.wasHeard = true;
    }
  };
  return { clock, sessions, pingedMs, pings, open, run };
}

describe("idle sessions", () => {
  it("are pinged once in the interval, for as long as nothing comes by itself", () => {
    const { clock, pingedMs, open, run } = setUp();
    const session = open();
    run(session, 4000, true);
    expect(pingedMs).toEqual([1000, 2000, 3000, 4000]);
    for (let i = 0; i < 100; i++) {
      session.wasHeard = true;
      clock.advance(100);
    }
    expect(pingedMs).toHaveLength(4);
  });

  it("have one timer among them, and none when there are none", () => {
    const { clock, sessions, pings, open } = setUp();
    expect(clock.timers).toBe(0);
    open();
    open();
    expect(clock.timers).toBe(1);
    clock.advance(10 * everyMs);
    expect(clock.timers).toBe(1);
    sessions.clear();
    clock.advance(everyMs);
    expect(clock.timers).toBe(0);
    open();
    expect(clock.timers).toBe(1);
    pings.close();
    expect(clock.timers).toBe(0);
  });

  it("are left to the heartbeat while it watches them, and alone while they open", () => {
    const { clock, pingedMs, open } = setUp();
    open({ isWatched: true });
    open({ state: "opening" });
    clock.advance(10 * everyMs);
    expect(pingedMs).toEqual([]);
  });
});
