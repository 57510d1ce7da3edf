import type { Clock } from "../../base/time/clock.ts";
import type { SessionWatch, WatchedSession } from "./watched-session.ts";

/** A session as it is kept alive while nothing is open on it. */
export interface IdleSession extends WatchedSession {
  /** Something has come from the peer. Set by the session, cleared here. */
  wasHeard: boolean;
}

/**
 * Pings peers with which nothing is open, for networks that drop connections on which nothing moves (`keepaliveMs`). A
 * peer that does not answer is lost, as one that the heartbeat asks.
 *
 * All sessions share one timer of half the interval, which runs while there are sessions. One of which nothing came
 * between two ticks is pinged, so it is never silent for longer than the interval. The timer does not keep the process
 * alive.
 */
export class IdlePings {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #watch: Pick<SessionWatch, "probe">;
  readonly #sessions: Iterable<IdleSession>;
  #cancelTimer: (() => void) | undefined;

  constructor(
    clock: Clock,
    everyMs: number,
    watch: Pick<SessionWatch, "probe">,
    sessions: Iterable<IdleSession>,
  ) {
    this.#clock = clock;
    this.#tickMs = everyMs / 2;
    this.#watch = watch;
    this.#sessions = sessions;
  }

  /** A session has opened. */
  onOpened(): void {
    this.#cancelTimer ??= this.#arm();
  }

  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #arm(): () => void {
    return this.#clock.timer(this.#tickMs, () => this.#tick(), true);
  }

  #tick(): void {
    this.#cancelTimer = undefined;
    let open = 0;
    for (const session of this.#sessions) {
      if (session.state !== "open") continue;
      open++;
      // The heartbeat looks after those that it watches.
      if (!session.wasHeard && !session.isWatched) this.#watch.probe(session);
      session.wasHeard = false;
    }
    if (open > 0) this.#cancelTimer ??= this.#arm();
  }
}
