import type { Clock } from "../../base/time/clock.ts";
import type { Heartbeat } from "./heartbeat.ts";
import type { WatchedSession } from "./watched-session.ts";

/**
 * Pings idle peers, for networks that drop idle connections (`keepaliveMs`). A peer that does not answer is lost, as
 * with the heartbeat.
 *
 * All sessions share one timer of half the interval, which runs while there are sessions. A session without a message
 * between two ticks is pinged, so it is never silent for longer than the interval. The timer does not keep the process
 * alive.
 */
export class IdlePings {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #watch: Pick<Heartbeat, "probe">;
  readonly #sessions: Iterable<WatchedSession>;
  #cancelTimer: (() => void) | undefined;

  constructor(
    clock: Clock,
    everyMs: number,
    watch: Pick<Heartbeat, "probe">,
    sessions: Iterable<WatchedSession>,
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
      // The heartbeat takes care of the sessions that it watches.
      if (!session.wasHeard && !session.isWatched) this.#watch.probe(session);
      session.wasHeard = false;
    }
    if (open > 0) this.#cancelTimer ??= this.#arm();
  }
}
