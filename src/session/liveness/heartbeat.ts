import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Clock } from "../../base/time/clock.ts";
import { stalled } from "../opening/end-reasons.ts";
import { FailureDetector } from "./failure-detector.ts";
import type { SessionWatch, WatchedSession } from "./watched-session.ts";

/**
 * How many bounds a peer has that was welcomed and has not said a word: it may be starting, with its thread blocked.
 */
const newcomerBounds = 5;

/** A peer that must say a word, though nothing is open with it. */
interface Awaited {
  /** When it counts as heard last. Only a message after that is a sign of life. */
  readonly heardMs: number;
  readonly isNewcomer: boolean;
}

/** A ping without an answer, on the time of the clock. */
interface Asked {
  /** When it left. */
  readonly atMs: number;
  /** When its answer is so late that the peer is suspected. */
  readonly lateMs: number;
}

/**
 * Notices dead peers while something is open, because libfabric does not: a pending receive from a process that was
 * killed never completes, on any provider. Any message counts as a sign of life, and bytes of transfers that come; after a quarter of the bound without
 * one the peer is asked, after the whole bound it is lost.
 *
 * A peer that talks may still have missed what it was sent last. It is asked behind that, once: the number of the ping
 * shows it the loss (`PeerState`).
 *
 * A peer that drains is watched too: nothing new is sent to it, and what waits for its end would wait for ever.
 *
 * A peer that has been asked and takes longer than it usually does is suspected meanwhile (`FailureDetector`); that is
 * told and has no other consequence here. One that computes, for whom its port answers, lives and is not lost, but has
 * not answered: it too is suspected.
 *
 * Its clock stands still while this process does: a tick counts for one interval, however late it comes because the
 * loop was blocked or the process stopped. So our own pause is not taken for the peer's death, even when the peer stood
 * still as long (a machine that slept): who has been asked and has not answered yet is asked once more.
 */
export class Heartbeat implements SessionWatch {
  readonly #clock: Clock;
  readonly #boundMs: number;
  readonly #intervalMs: number;
  /** Looks for messages that have arrived while we could not look. */
  readonly #poll: () => void;
  readonly #sessions = new Set<WatchedSession>();
  /** Asked or welcomed, and not heard since. */
  readonly #awaited = new Map<WatchedSession, Awaited>();
  /** How each session's peer answers. */
  readonly #detectors = new WeakMap<WatchedSession, FailureDetector>();
  /** Who has not answered, and who has not done so for so long that it is suspected. */
  readonly #asked = new Map<WatchedSession, Asked>();
  readonly #suspected = new Set<WatchedSession>();
  /** One timer for all that have been asked, not later than the first of them will be late. */
  #cancelDoubt: (() => void) | undefined;
  #doubtMs = Number.POSITIVE_INFINITY;
  #cancelTimer: (() => void) | undefined;
  #lastTickMs = 0;
  /** The heartbeat's time: it advances from tick to tick only. */
  nowMs = 0;

  constructor(clock: Clock, boundMs: number, poll: () => void) {
    this.#clock = clock;
    this.#boundMs = boundMs;
    this.#intervalMs = boundMs / 4;
    this.#poll = poll;
  }

  /** Watches a session until it has no open work, and its peer does not drain. Silence before now is forgiven. */
  watch(session: WatchedSession): void {
    // A peer that has to say a word gets no more time for new work.
    if (!this.#awaited.has(session)) session.heardMs = this.nowMs;
    session.seenBytes = session.heardBytes;
    session.isWatched = true;
    this.#sessions.add(session);
    if (this.#cancelTimer !== undefined) return;
    this.#lastTickMs = this.#clock.now();
    this.#arm();
  }

  /** Watches a session that has no open work, until it has been heard once. */
  probe(session: WatchedSession): void {
    if (this.#isAwaited(session)) return;
    // It may have spoken since the last tick.
    this.#awaited.delete(session);
    this.#await(session, false);
    session.ping();
  }

  /**
   * Watches a session that was welcomed, until its peer has said a word. It may have given up before the welcome came,
   * and not know of the session.
   */
  expect(session: WatchedSession): void {
    this.#await(session, true);
  }

  isAsked(session: WatchedSession): boolean {
    return this.#isAwaited(session) && this.#awaited.get(session)?.isNewcomer === false;
  }

  /** Whether it was asked or welcomed, and has not been heard since. */
  #isAwaited(session: WatchedSession): boolean {
    const awaited = this.#awaited.get(session);
    return awaited !== undefined && session.heardMs <= awaited.heardMs;
  }

  #await(session: WatchedSession, isNewcomer: boolean): void {
    this.watch(session);
    // As if it had been silent for an interval: only a message from now on counts. The end of another session may
    // cause this within a tick, which looks at this session afterwards.
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

  /** Thousands may be asked in one tick, so none looks at the others. */
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
    // We were late ourselves: the answers may wait behind what made us late. The next tick asks again.
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

  /** Nobody looks after the session any more. */
  #leave(session: WatchedSession): void {
    session.isWatched = false;
    this.#sessions.delete(session);
    this.#awaited.delete(session);
    this.#asked.delete(session);
    this.#suspected.delete(session);
  }

  #arm(): void {
    // The deadline of a call keeps the process alive. A call that was given up, or a last tick with nothing open,
    // must not.
    this.#cancelTimer = this.#clock.timer(this.#intervalMs, () => this.#tick(), true);
  }

  #tick(): void {
    const now = this.#clock.now();
    // What arrives during the poll was sent before this tick: it is heard at the old time, which is late enough.
    this.#poll();
    this.nowMs += Math.min(now - this.#lastTickMs, this.#intervalMs);
    this.#lastTickMs = now;
    for (const session of this.#sessions) this.#look(session);
    // Until here the timer counts as armed: a session that the poll brought must not arm a second one, whose ticks
    // would come between.
    if (this.#sessions.size > 0) this.#arm();
    else this.#cancelTimer = undefined;
  }

  /**
   * Bytes that have come since the last look are a sign of life, as of the look before. Messages may wait behind them
   * for longer than the bound, here or at a peer whose loop is busy. Bytes that leave are none: the kernel takes them
   * for a peer that stands still. A peer that must say a word is asked for a message: another session may share its
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
    // The time of hearing is that of the tick before it, so a peer heard within the last interval is up to one interval
    // "silent".
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
      // Nothing is open any more, and nobody will be asked: not to be suspected for ever.
      if (session.state === "open") this.#trust(session);
      return this.#leave(session);
    }
    // One that cannot even be sent the welcome has no more time than others.
    const boundMs = isNewcomer && !session.isSending ? newcomerBounds * this.#boundMs : this.#boundMs;
    if (silentMs >= boundMs) {
      this.#leave(session);
      session.end(
        new RpcError({
          code: "unavailable",
          message: `${session.peerName} has been silent for ${Math.round(silentMs)} ms, heartbeatMs is ${this.#boundMs}`,
          origin: "fabric",
        }),
        // It may have been stopped, and would not know of the end when it goes on.
        { certain: false },
      );
    } else if (session.stalledMs > 0) {
      this.#leave(session);
      session.end(stalled(session));
    } else if (!heardLately || (session.remoteState.busy && !this.#asked.has(session))) this.#ask(session);
    // A peer that sends messages is not suspected for this.
    else if (unconfirmed) session.ping();
  }
}
