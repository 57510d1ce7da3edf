/*
 * The part `session/liveness`: whether the peer lives, and what is left of a session that has ended.
 * Promises: a silent peer with open work is lost after `heartbeatMs`. A pause of this process is not taken for the
 * peer's death. Memory that a lost peer may still touch is kept.
 * Takes: the outbox from `session/channel`, reasons from `session/opening`, grants and quarantine from `memory`.
 */

import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Clock } from "../../base/time/clock.ts";
import { stalled } from "../opening/end-reasons.ts";
import { FailureDetector } from "./failure-detector.ts";
import type { WatchedSession } from "./watched-session.ts";

/**
 * The bound of a welcomed peer that has sent no message yet, as a multiple of the usual bound. The peer may be
 * starting, with its thread blocked.
 */
const newcomerBounds = 5;

/** A peer that must send a message, though nothing is open with it. */
interface AwaitedPeer {
  /** The assumed time of the last message. Only a later message is a sign of life. */
  readonly heardMs: number;
  readonly isNewcomer: boolean;
}

/** A ping without an answer, on the time of the clock. */
interface OpenPing {
  /** When it left. */
  readonly atMs: number;
  /** The time when the answer is so late that the peer is suspected. */
  readonly lateMs: number;
}

/**
 * Notices dead peers while something is open, because libfabric does not. A pending receive from a killed process never
 * completes, on any provider. Any message counts as a sign of life, and so do incoming bytes of transfers. After a
 * quarter of the bound without one the peer is asked, and after the whole bound it is lost.
 *
 * A peer that sends messages may still have missed the last message of this side. It is asked once behind that message:
 * the number of the ping shows it the loss (`PeerState`).
 *
 * A draining peer is watched too: it receives no new requests, so calls that wait for its end would wait forever.
 *
 * A peer is suspected when its answer takes longer than usual (`FailureDetector`). Suspicion is reported and has no
 * other consequence here. A peer whose port answers for its busy thread is alive and not lost. But its thread has not
 * answered, so it too is suspected.
 *
 * The clock stands still while this process does: a tick counts for one interval, however late it comes because the
 * loop was blocked or the process stopped. So a pause of this process does not count as the death of a peer. That holds
 * even when the peer stood still as long (a machine that slept): a peer without an answer is asked once more.
 */
export class Heartbeat {
  readonly #clock: Clock;
  readonly #boundMs: number;
  readonly #intervalMs: number;
  /** Polls for messages that have arrived while this thread was blocked. */
  readonly #poll: () => void;
  readonly #sessions = new Set<WatchedSession>();
  /** Sessions that were asked or welcomed, and have received no message since. */
  readonly #awaited = new Map<WatchedSession, AwaitedPeer>();
  /** The failure detector of each session's peer. */
  readonly #detectors = new WeakMap<WatchedSession, FailureDetector>();
  /** Sessions with an open ping, and sessions whose peer is suspected. */
  readonly #asked = new Map<WatchedSession, OpenPing>();
  readonly #suspected = new Set<WatchedSession>();
  /** One timer for all open pings. It fires no later than the first late answer. */
  #cancelDoubt: (() => void) | undefined;
  #doubtMs = Number.POSITIVE_INFINITY;
  #cancelTimer: (() => void) | undefined;
  #lastTickMs = 0;
  /** The heartbeat's time, for messages that arrive now. It advances only from tick to tick. */
  nowMs = 0;

  constructor(clock: Clock, boundMs: number, poll: () => void) {
    this.#clock = clock;
    this.#boundMs = boundMs;
    this.#intervalMs = boundMs / 4;
    this.#poll = poll;
  }

  /** Watches a session until it has no open work and its peer does not drain. Earlier silence does not count. */
  watch(session: WatchedSession): void {
    // New work gives no more time to a peer that must send a message.
    if (!this.#awaited.has(session)) session.heardMs = this.nowMs;
    session.seenBytes = session.heardBytes;
    session.isWatched = true;
    this.#sessions.add(session);
    if (this.#cancelTimer !== undefined) return;
    this.#lastTickMs = this.#clock.now();
    this.#arm();
  }

  /**
   * Asks an idle peer for a sign of life, and watches its session until its next message. Without one within the bound
   * the session ends.
   */
  probe(session: WatchedSession): void {
    if (this.#isAwaited(session)) return;
    // A message may have come since the last tick.
    this.#awaited.delete(session);
    this.#await(session, false);
    session.ping();
  }

  /**
   * Watches a welcomed session until its first message. The peer may have given up before the welcome came, and may not
   * know of the session.
   */
  expect(session: WatchedSession): void {
    this.#await(session, true);
  }

  /** Whether the peer was asked by `probe`, and no message has come since. */
  isAsked(session: WatchedSession): boolean {
    return this.#isAwaited(session) && this.#awaited.get(session)?.isNewcomer === false;
  }

  /** Whether the session was asked or welcomed, and has received no message since. */
  #isAwaited(session: WatchedSession): boolean {
    const awaited = this.#awaited.get(session);
    return awaited !== undefined && session.heardMs <= awaited.heardMs;
  }

  #await(session: WatchedSession, isNewcomer: boolean): void {
    this.watch(session);
    // Counts as silent for one interval, so that only a later message counts. The end of another session may cause this
    // within a tick, which looks at this session afterwards.
    session.heardMs -= this.#intervalMs;
    this.#awaited.set(session, { heardMs: session.heardMs, isNewcomer });
  }

  /** The answer to a ping has come. */
  ponged(session: WatchedSession): void {
    const asked = this.#asked.get(session);
    if (asked !== undefined) {
      this.#asked.delete(session);
      this.#detectorOf(session).sample(this.#clock.now() - asked.atMs);
    }
    this.#trust(session);
  }

  close(): void {
    this.#cancelTimer?.();
    this.#cancelDoubt?.();
    this.#sessions.clear();
    this.#awaited.clear();
    this.#asked.clear();
    this.#suspected.clear();
  }

  #ask(session: WatchedSession): void {
    session.ping();
    if (this.#asked.has(session)) return;
    const atMs = this.#clock.now();
    const lateMs = atMs + this.#patienceMs(session);
    this.#asked.set(session, { atMs, lateMs });
    this.#doubtAt(lateMs);
  }

  /** Thousands of sessions may be asked in one tick, so this does not compare them all. */
  #doubtAt(dueMs: number): void {
    if (dueMs >= this.#doubtMs) return;
    this.#cancelDoubt?.();
    this.#doubtMs = dueMs;
    const waitMs = Math.ceil(Math.max(1, dueMs - this.#clock.now()));
    this.#cancelDoubt = this.#clock.timer(waitMs, () => this.#doubt(dueMs), true);
  }

  #doubt(dueMs: number): void {
    this.#cancelDoubt = undefined;
    this.#doubtMs = Number.POSITIVE_INFINITY;
    this.#poll();
    const now = this.#clock.now();
    // The timer itself was late: the answers may wait behind the cause of the delay. The next tick asks again.
    if (now - dueMs > this.#intervalMs) return this.#asked.clear();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const [session, { atMs, lateMs }] of this.#asked) {
      if (this.#suspected.has(session)) continue;
      if (session.state !== "open") this.#asked.delete(session);
      else if (now < lateMs) nextMs = Math.min(nextMs, lateMs);
      else {
        this.#suspected.add(session);
        const waitedMs = now - atMs;
        session.observer?.onSuspect(
          this.#detectorOf(session).phi(waitedMs),
          this.nowMs - session.heardMs + waitedMs,
        );
      }
    }
    this.#doubtAt(nextMs);
  }

  #trust(session: WatchedSession): void {
    if (this.#suspected.delete(session)) session.observer?.onTrusted();
  }

  #patienceMs(session: WatchedSession): number {
    // A peer is suspected before it is lost.
    return Math.min(this.#detectorOf(session).suspectAfterMs(), this.#intervalMs * 1.5);
  }

  #detectorOf(session: WatchedSession): FailureDetector {
    let detector = this.#detectors.get(session);
    if (detector === undefined) {
      detector = new FailureDetector(this.#boundMs / 50);
      this.#detectors.set(session, detector);
    }
    return detector;
  }

  /** Stops watching the session. */
  #leave(session: WatchedSession): void {
    session.isWatched = false;
    this.#sessions.delete(session);
    this.#awaited.delete(session);
    this.#asked.delete(session);
    this.#suspected.delete(session);
  }

  #arm(): void {
    // The deadline of a call keeps the process alive. An abandoned call, or a last tick with nothing open, must not.
    this.#cancelTimer = this.#clock.timer(this.#intervalMs, () => this.#tick(), true);
  }

  #tick(): void {
    const now = this.#clock.now();
    // A message that arrives during the poll was sent before this tick. It counts at the old time, which is late
    // enough.
    this.#poll();
    this.nowMs += Math.min(now - this.#lastTickMs, this.#intervalMs);
    this.#lastTickMs = now;
    for (const session of this.#sessions) this.#look(session);
    // Until here the timer counts as armed. A session from the poll must not arm a second timer, with ticks in between.
    if (this.#sessions.size > 0) this.#arm();
    else this.#cancelTimer = undefined;
  }

  /**
   * Bytes that have come since the last look are a sign of life at the time of that look. Messages may wait behind them
   * for longer than the bound, here or at a peer with a busy loop. Bytes that leave are not a sign: the kernel takes
   * them for a peer that stands still. A peer that must send a message is asked for one: another session may share its
   * connection.
   */
  #listen(session: WatchedSession): void {
    const { heardBytes } = session;
    if (heardBytes === session.seenBytes) return;
    session.seenBytes = heardBytes;
    if (!this.#isAwaited(session)) session.heardMs = Math.max(session.heardMs, this.nowMs - this.#intervalMs);
  }

  #look(session: WatchedSession): void {
    this.#listen(session);
    // A message counts at the time of the tick before it. So a peer may seem silent for one interval more than it was.
    const silentMs = this.nowMs - session.heardMs;
    const heardLately = silentMs < 1.5 * this.#intervalMs;
    const unconfirmed = session.remoteState.isUnconfirmed();
    const isAwaited = this.#isAwaited(session);
    if (!isAwaited) this.#awaited.delete(session);
    if (heardLately && !session.remoteState.busy) {
      this.#asked.delete(session);
      this.#trust(session);
    }
    const isNewcomer = this.#awaited.get(session)?.isNewcomer === true;
    const open = session.hasOpenWork || session.isSending || session.remoteState.drains || isAwaited;
    if (session.state !== "open" || !open) {
      // Nothing is open, and no more pings follow: the suspicion must not stay forever.
      if (session.state === "open") this.#trust(session);
      return this.#leave(session);
    }
    // A peer that cannot even be sent the welcome has no more time than other peers.
    const boundMs = isNewcomer && !session.isSending ? newcomerBounds * this.#boundMs : this.#boundMs;
    if (silentMs >= boundMs) {
      this.#leave(session);
      session.end(
        new RpcError({
          code: "unavailable",
          message: `${session.peerName} has been silent for ${Math.round(silentMs)} ms, heartbeatMs is ${this.#boundMs}`,
          origin: "fabric",
        }),
        // The peer may have been stopped, and would not know of the end when it continues.
        { certain: false },
      );
    } else if (session.stalledMs > 0) {
      this.#leave(session);
      session.end(stalled(session.peerName, session.stalledMs));
    } else if (!heardLately || (session.remoteState.busy && !this.#asked.has(session))) this.#ask(session);
    // A peer that sends messages is not suspected for this.
    else if (unconfirmed) session.ping();
  }
}
