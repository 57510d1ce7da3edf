import { describe, expect, it } from "vitest";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import type { Session } from "../connection/session.ts";
import { Heartbeat } from "./heartbeat.ts";
import { PingState } from "./ping-state.ts";
import type { EndOptions, WatchedSession } from "./watched-session.ts";

const boundMs = 1000;
const quarterMs = boundMs / 4;

class Watched {
  state = "open";
  hasOpenWork = true;
  isSending = false;
  isWatched = false;
  readonly outbox = { framesLeft: 0 };
  readonly remoteState = new PingState(this as unknown as WatchedSession);
  heardMs = 0;
  pings = 0;
  stalledMs = 0;
  heardBytes = 0;
  seenBytes = 0;
  readonly peerName = "the peer";
  reason: RpcError | undefined;
  how: EndOptions | undefined;

  ping(): void {
    this.pings++;
  }

  end(reason: RpcError, how: EndOptions): void {
    this.state = "ended";
    this.how = how;
    this.reason = reason;
  }
}

function setUp() {
  const clock = new FakeClock();
  /** What arrives when the heartbeat looks. */
  const arrivals: (() => void)[] = [];
  const heartbeat = new Heartbeat(clock, boundMs, () => {
    for (const arrive of arrivals.splice(0)) arrive();
  });
  const watched = new Watched();
  const session = watched as unknown as Session;
  const hear = () => {
    watched.heardMs = heartbeat.nowMs;
  };
  return { clock, arrivals, heartbeat, watched, session, hear };
}

describe("heartbeat", () => {
  it("takes bytes that come for life, and the end of them for silence", () => {
    const { clock, heartbeat, watched, session } = setUp();
    heartbeat.watch(session);
    for (let quarter = 0; quarter < 12; quarter++) {
      watched.heardBytes++;
      clock.advance(quarterMs);
    }
    expect([watched.state, watched.pings]).toEqual(["open", 0]);
    // The last byte counts as a sign of life a quarter before the look that finds it.
    clock.advance(boundMs - 2 * quarterMs);
    expect(watched.state).toBe("open");
    clock.advance(quarterMs);
    expect(watched.reason?.message).toContain("the peer has been silent for 1000 ms");
  });

  it("wants a message of a peer that was asked, whatever bytes come", () => {
    const { clock, heartbeat, watched, session } = setUp();
    heartbeat.probe(session);
    for (let quarter = 0; quarter < 4; quarter++) {
      watched.heardBytes++;
      clock.advance(quarterMs);
    }
    expect(watched.state).toBe("ended");
  });

  it("has no timer until something is watched, and none once nothing is open", () => {
    const { clock, heartbeat, watched, session } = setUp();
    expect(clock.timers).toBe(0);
    heartbeat.watch(session);
    heartbeat.watch(session);
    expect(clock.timers).toBe(1);
    watched.hasOpenWork = false;
    clock.advance(quarterMs);
    expect([clock.timers, watched.pings]).toEqual([0, 0]);
  });

  it("ends a session whose peer lives, and does not move its bodies", () => {
    const { clock, heartbeat, watched, session, hear } = setUp();
    heartbeat.watch(session);
    watched.stalledMs = 12_345;
    hear();
    clock.advance(quarterMs);
    expect(watched.reason).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining(
        "the peer moves its long bodies too slowly: one has waited for 12345 ms",
      ),
    });
    clock.advance(quarterMs);
    expect(clock.timers).toBe(0);
  });

  it("keeps one timer when a session is watched while it looks", () => {
    const { clock, arrivals, heartbeat, watched, session } = setUp();
    heartbeat.watch(session);
    arrivals.push(() => heartbeat.watch(new Watched() as unknown as Session));
    clock.advance(quarterMs);
    expect(clock.timers).toBe(1);
    watched.hasOpenWork = false;
    arrivals.push(() => heartbeat.probe(session));
    clock.advance(boundMs);
    expect(watched.state).toBe("ended");
  });

  it("asks a peer that has been silent, and loses it at the bound", () => {
    const { clock, heartbeat, watched, session } = setUp();
    heartbeat.watch(session);
    clock.advance(boundMs / 2);
    expect(watched.pings).toBeGreaterThan(0);
    clock.advance(boundMs / 2 - 1);
    expect(watched.state).toBe("open");
    clock.advance(1);
    expect(watched.reason?.message).toBe(
      "[unavailable] the peer has been silent for 1000 ms, heartbeatMs is 1000",
    );
    expect(clock.timers).toBe(0);
  });

  it("loses a silent peer that drains, though nothing is open with it", () => {
    const { clock, heartbeat, watched, session } = setUp();
    watched.hasOpenWork = false;
    watched.remoteState.drains = true;
    heartbeat.watch(session);
    clock.advance(boundMs);
    expect(watched.reason?.code).toBe("unavailable");
    expect(clock.timers).toBe(0);
  });

  it("never asks a peer that is heard in every quarter", () => {
    const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
    heartbeat.watch(session);
    for (let i = 0; i < 40; i++) {
      arrivals.push(hear);
      clock.advance(quarterMs);
    }
    expect([watched.state, watched.pings]).toEqual(["open", 0]);
  });

  it("keeps a peer that does nothing but answer when it is asked", () => {
    const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
    heartbeat.watch(session);
    for (let i = 0; i < 100; i++) {
      const asked = watched.pings;
      clock.advance(quarterMs);
      if (watched.pings > asked) arrivals.push(hear);
      expect(watched.state).toBe("open");
    }
    expect(watched.pings).toBeLessThanOrEqual(50);
  });

  it("asks a peer that talks, behind what was said last, until it confirms that", () => {
    const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
    heartbeat.watch(session);
    const quarter = () => {
      arrivals.push(hear);
      clock.advance(quarterMs);
      return watched.pings;
    };
    watched.outbox.framesLeft += 1;
    expect([quarter(), quarter(), quarter()]).toEqual([0, 1, 2]);
    watched.remoteState.confirm(watched.remoteState.confirmationWord);
    expect([quarter(), quarter(), watched.state]).toEqual([2, 2, "open"]);
  });

  it("does not take a pause of its own for the peer's death", () => {
    const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
    heartbeat.watch(session);
    clock.advance(quarterMs);
    // Stopped for a minute; the peer's messages wait at the port.
    arrivals.push(hear);
    clock.stall(60_000);
    expect([watched.state, watched.pings]).toEqual(["open", 0]);
    // A pause is worth a quarter and no more; a peer that stays silent through several is lost.
    for (let i = 0; i < 3; i++) clock.stall(60_000);
    expect(watched.state).toBe("ended");
  });

  it("asks again after a pause of both, before a peer is lost whose answer the pause held up", () => {
    const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
    heartbeat.watch(session);
    clock.advance(2 * quarterMs);
    expect(watched.pings).toBe(1);
    clock.stall(60_000);
    expect([watched.state, watched.pings]).toEqual(["open", 2]);
    arrivals.push(hear);
    clock.advance(quarterMs);
    expect(watched.state).toBe("open");
  });

  it("forgives the silence of the time when nothing was open", () => {
    const { clock, heartbeat, watched, session } = setUp();
    heartbeat.watch(session);
    watched.hasOpenWork = false;
    clock.advance(quarterMs);
    clock.advance(100_000);
    watched.hasOpenWork = true;
    heartbeat.watch(session);
    clock.advance(boundMs - 1);
    expect(watched.state).toBe("open");
    clock.advance(1);
    expect(watched.state).toBe("ended");
  });

  it("watches each session by itself", () => {
    const { clock, arrivals, heartbeat, watched, session } = setUp();
    const other = new Watched();
    heartbeat.watch(session);
    heartbeat.watch(other as unknown as Session);
    for (let i = 0; i < 4; i++) {
      arrivals.push(() => {
        other.heardMs = heartbeat.nowMs;
      });
      clock.advance(quarterMs);
    }
    expect([watched.state, other.state, clock.timers]).toEqual(["ended", "open", 1]);
  });

  it("leaves ended sessions alone", () => {
    const { clock, heartbeat, watched, session } = setUp();
    heartbeat.watch(session);
    watched.state = "ended";
    clock.advance(10 * boundMs);
    expect([watched.reason, clock.timers]).toEqual([undefined, 0]);
  });

  it("stops when it is closed", () => {
    const { clock, heartbeat, watched, session } = setUp();
    heartbeat.watch(session);
    heartbeat.close();
    clock.advance(10 * boundMs);
    expect([watched.state, clock.timers]).toEqual(["open", 0]);
  });

  it("watches a session for as long as anything waits to leave, whatever is open", () => {
    const { clock, heartbeat, watched, session } = setUp();
    watched.hasOpenWork = false;
    watched.isSending = true;
    heartbeat.watch(session);
    expect(watched.isWatched).toBe(true);
    clock.advance(boundMs);
    expect(watched.reason?.message).toContain("the peer has been silent for 1000 ms");
    expect(watched.isWatched).toBe(false);
  });

  describe("expecting the first word of a newcomer", () => {
    it("asks, and lets go when it is heard", () => {
      const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
      watched.hasOpenWork = false;
      heartbeat.expect(session);
      expect(watched.pings).toBe(0);
      clock.advance(quarterMs);
      expect(watched.pings).toBe(1);
      arrivals.push(hear);
      clock.advance(2 * quarterMs);
      expect([watched.state, watched.isWatched, clock.timers]).toEqual(["open", false, 0]);
    });

    it("ends its session after five bounds, since its thread may be blocked", () => {
      const { clock, heartbeat, watched, session } = setUp();
      watched.hasOpenWork = false;
      heartbeat.expect(session);
      clock.advance(4 * boundMs);
      expect(watched.state).toBe("open");
      clock.advance(boundMs);
      expect([watched.state, watched.how?.quiet]).toEqual(["ended", undefined]);
    });

    it("loses one that takes nothing at the usual bound", () => {
      const { clock, heartbeat, watched, session } = setUp();
      watched.hasOpenWork = false;
      watched.isSending = true;
      heartbeat.expect(session);
      clock.advance(boundMs);
      expect(watched.state).toBe("ended");
    });

    it("loses it at the usual bound once it was heard", () => {
      const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
      heartbeat.expect(session);
      clock.advance(quarterMs);
      arrivals.push(hear);
      clock.advance(quarterMs);
      clock.advance(boundMs);
      expect([watched.state, watched.how?.quiet]).toEqual(["ended", undefined]);
    });
  });

  it.each([
    ["spoke and called", true],
    ["spoke and has nothing open", false],
  ])("gives the usual bound to a newcomer that %s before its connection was reset", (_, hasOpenWork) => {
    const { clock, heartbeat, watched, session, hear } = setUp();
    watched.hasOpenWork = hasOpenWork;
    heartbeat.expect(session);
    // All between two looks: the first word, the reset, and the question that follows it.
    hear();
    heartbeat.probe(session);
    clock.advance(boundMs);
    expect([watched.state, watched.how?.quiet]).toEqual(["ended", undefined]);
  });

  it("gives a newcomer five bounds that was asked before its first word", () => {
    const { clock, heartbeat, watched, session } = setUp();
    watched.hasOpenWork = false;
    heartbeat.expect(session);
    heartbeat.probe(session);
    clock.advance(4 * boundMs);
    expect(watched.state).toBe("open");
    clock.advance(boundMs);
    expect(watched.state).toBe("ended");
  });

  describe("probing an idle peer", () => {
    it("asks at once, and lets go when it is heard", () => {
      const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
      watched.hasOpenWork = false;
      heartbeat.probe(session);
      heartbeat.probe(session);
      expect(watched.pings).toBe(1);
      arrivals.push(hear);
      clock.advance(2 * quarterMs);
      expect([watched.state, clock.timers]).toEqual(["open", 0]);
    });

    it("loses a peer that does not answer, within the bound", () => {
      const { clock, heartbeat, watched, session } = setUp();
      watched.hasOpenWork = false;
      heartbeat.probe(session);
      clock.advance(boundMs);
      expect(watched.state).toBe("ended");
      expect(clock.timers).toBe(0);
    });

    it("loses it when the end of another session was the reason to ask", () => {
      const { clock, heartbeat, watched, session } = setUp();
      const idle = new Watched();
      idle.hasOpenWork = false;
      watched.end = () => {
        watched.state = "ended";
        heartbeat.probe(idle as unknown as Session);
      };
      heartbeat.watch(session);
      clock.advance(boundMs);
      expect([watched.state, idle.state, idle.isWatched]).toEqual(["ended", "open", true]);
      clock.advance(boundMs);
      expect([idle.state, clock.timers]).toEqual(["ended", 0]);
    });

    it("gives a newcomer no more time", () => {
      const { clock, heartbeat, watched, session } = setUp();
      watched.hasOpenWork = false;
      heartbeat.expect(session);
      clock.advance(4 * boundMs);
      heartbeat.probe(session);
      clock.advance(boundMs);
      expect(watched.state).toBe("ended");
    });

    it("loses a peer that was asked, whatever begins and ends meanwhile", () => {
      const { clock, heartbeat, watched, session } = setUp();
      watched.hasOpenWork = false;
      heartbeat.probe(session);
      for (let quarter = 0; quarter < 4; quarter++) {
        heartbeat.watch(session);
        clock.advance(quarterMs);
      }
      expect(watched.state).toBe("ended");
    });

    it("asks again after it was heard once", () => {
      const { clock, arrivals, heartbeat, watched, session, hear } = setUp();
      watched.hasOpenWork = false;
      heartbeat.probe(session);
      arrivals.push(hear);
      clock.advance(2 * quarterMs);
      heartbeat.probe(session);
      expect(watched.pings).toBeGreaterThanOrEqual(2);
      clock.advance(boundMs);
      expect(watched.state).toBe("ended");
    });
  });
});
