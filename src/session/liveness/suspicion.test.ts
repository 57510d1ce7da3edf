import { describe, expect, it, vi } from "vitest";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import { senderState } from "../../wire/frame.ts";
import type { Session } from "../connection/session.ts";
import { Heartbeat } from "./heartbeat.ts";
import { PingState } from "./ping-state.ts";
import type { PeerObserver, WatchedSession } from "./watched-session.ts";

const boundMs = 1000;

function setUp() {
  const clock = new FakeClock();
  const events: string[] = [];
  const observer: PeerObserver = {
    onSuspect: (phi, silentMs) => events.push(`suspect ${phi >= 8} ${silentMs < boundMs}`),
    onTrusted: () => events.push("trusted"),
    onDraining: () => events.push("draining"),
    onServices: () => events.push("services"),
    onHealth: () => events.push("health"),
    onEnded: () => events.push("ended"),
  };
  /** The time until a ping is answered; infinite for never. */
  const peer = { answersAfterMs: Number.POSITIVE_INFINITY };
  const heartbeat: Heartbeat = new Heartbeat(clock, boundMs, () => {});
  const fake = {
    state: "open",
    hasOpenWork: true,
    isSending: false,
    isWatched: false,
    heardMs: 0,
    remoteState: new PingState({ outbox: { framesLeft: 0 } } as WatchedSession),
    peerName: "the peer",
    observer,
    ping() {
      if (peer.answersAfterMs === Number.POSITIVE_INFINITY) return;
      clock.timer(peer.answersAfterMs, () => {
        fake.heardMs = heartbeat.nowMs;
        heartbeat.ponged(session);
      });
    },
    end() {
      fake.state = "ended";
      events.push("ended");
    },
  };
  const session = fake as unknown as Session;
  return { clock, events, peer, heartbeat, fake, session };
}

describe("a watched peer", () => {
  it("that falls silent is suspected before it is lost", () => {
    const { clock, events, heartbeat, session } = setUp();
    heartbeat.watch(session);
    clock.advance(10 * boundMs);
    expect(events).toEqual(["suspect true true", "ended"]);
    expect(clock.timers).toBe(0);
  });

  it("that computes, and is answered for, is suspected and not lost, and trusted when it answers itself", () => {
    const { clock, events, peer, heartbeat, fake, session } = setUp();
    heartbeat.watch(session);
    // Like the peer's port: so often that each look finds a message.
    const speak = () => {
      fake.heardMs = heartbeat.nowMs;
      fake.remoteState.onState(senderState.busy);
      if (fake.remoteState.busy && clock.now() < 20 * boundMs) clock.timer(boundMs / 8, speak);
    };
    clock.timer(boundMs / 2, speak);
    clock.advance(15 * boundMs);
    expect(events).toEqual(["suspect true true"]);
    // It asks again after the port's last keepalive, and receives an answer.
    peer.answersAfterMs = 5;
    clock.advance(10 * boundMs);
    expect(events).toEqual(["suspect true true", "trusted"]);
  });

  it("that answers is not suspected, however long calls stay open", () => {
    const { clock, events, peer, heartbeat, session } = setUp();
    peer.answersAfterMs = 5;
    heartbeat.watch(session);
    clock.advance(100 * boundMs);
    expect(events).toEqual([]);
  });

  it("that answers late is suspected and then trusted, and is given longer once it is known to be slow", () => {
    const { clock, events, peer, heartbeat, session } = setUp();
    peer.answersAfterMs = 200;
    heartbeat.watch(session);
    clock.advance(2 * boundMs);
    expect(events.slice(0, 2)).toEqual(["suspect true true", "trusted"]);
    events.length = 0;
    clock.advance(100 * boundMs);
    expect(events).toEqual([]);
  });

  it("whose last call ends is no longer suspected, and nothing is timed", () => {
    const { clock, events, heartbeat, session, fake } = setUp();
    heartbeat.watch(session);
    clock.advance(0.7 * boundMs);
    expect(events).toEqual(["suspect true true"]);
    fake.hasOpenWork = false;
    clock.advance(boundMs);
    expect(events).toEqual(["suspect true true", "trusted"]);
    expect(clock.timers).toBe(0);
  });

  it("is not suspected because this process stood still", () => {
    const { clock, events, peer, heartbeat, session } = setUp();
    peer.answersAfterMs = 5;
    heartbeat.watch(session);
    clock.advance(0.5 * boundMs);
    clock.stall(60 * boundMs);
    clock.advance(10 * boundMs);
    expect(events).toEqual([]);
  });

  it("is one of thousands that are asked in one tick, with one timer for all", () => {
    const { clock, events, heartbeat, session, fake } = setUp();
    const others = Array.from(
      { length: 5000 },
      () => ({ ...fake, observer: undefined }) as unknown as Session,
    );
    for (const each of [session, ...others]) heartbeat.watch(each);
    const timer = vi.spyOn(clock, "timer");
    clock.advance(0.5 * boundMs);
    // Two ticks, and the timer for late answers.
    expect(timer).toHaveBeenCalledTimes(3);
    clock.advance(0.25 * boundMs);
    expect(events).toEqual(["suspect true true"]);
  });

  it("is suspected in its own time, after one that was asked before it and has answered", () => {
    const { clock, events, peer, heartbeat, session, fake } = setUp();
    const answer = () => {
      quick.heardMs = heartbeat.nowMs;
      heartbeat.ponged(quick);
    };
    const ping = () => void clock.timer(1, answer);
    const quick = { ...fake, observer: undefined, ping } as unknown as Session;
    peer.answersAfterMs = 5;
    for (const each of [quick, session]) heartbeat.watch(each);
    clock.advance(20 * boundMs);
    peer.answersAfterMs = Number.POSITIVE_INFINITY;
    clock.advance(2 * boundMs);
    expect(events).toEqual(["suspect true true", "ended"]);
  });

  it("leaves no timer behind when the heartbeat is closed", () => {
    const { clock, heartbeat, session } = setUp();
    heartbeat.watch(session);
    clock.advance(0.55 * boundMs);
    heartbeat.close();
    expect(clock.timers).toBe(0);
  });
});
