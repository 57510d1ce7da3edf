import type { Clock } from "../call/clock.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "./session.ts";

/**
 * Notices dead peers while something is open, because libfabric does not: a pending receive from a process that was killed never completes,
 * on any provider. Any message counts as a sign of life; after a quarter of the bound without one the peer is asked, after the whole bound it is lost.
 *
 * Its clock stands still while this process does: a tick that comes late because the loop was blocked or the process stopped counts for two
 * intervals at most, so that our own pause is not taken for the peer's death.
 */
export class Heartbeat {
  readonly #clock: Clock;
  readonly #boundMs: number;
  readonly #intervalMs: number;
  /** Looks for messages that have arrived while we could not look. */
  readonly #poll: () => void;
  readonly #sessions = new Set<Session>();
  readonly #probed = new Set<Session>();
  #cancelTimer: (() => void) | undefined;
  #lastTickMs = 0;
  #nowMs = 0;

  constructor(clock: Clock, boundMs: number, poll: () => void) {
    this.#clock = clock;
    this.#boundMs = boundMs;
    this.#intervalMs = boundMs / 4;
    this.#poll = poll;
  }

  /** The heartbeat's time: it advances from tick to tick only. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** Watches a session until it has no open work. Silence before now is forgiven. */
  watch(session: Session): void {
    session.heardMs = this.#nowMs;
    this.#sessions.add(session);
    if (this.#cancelTimer !== undefined) return;
    this.#lastTickMs = this.#clock.now();
    this.#arm();
  }

  /** Watches a session that has no open work, until it has been heard once. */
  probe(session: Session): void {
    if (this.#probed.has(session)) return;
    this.#probed.add(session);
    this.watch(session);
    // As if it had been silent for an interval: only a message from now on counts.
    session.heardMs -= this.#intervalMs;
    session.ping();
  }

  close(): void {
    this.#cancelTimer?.();
    this.#sessions.clear();
    this.#probed.clear();
  }

  #arm(): void {
    // Whoever waits for a call is kept alive by its deadline; a call given up, or a last tick with nothing open, must not hold a process.
    this.#cancelTimer = this.#clock.timer(this.#intervalMs, () => this.#tick(), true);
  }

  #tick(): void {
    const now = this.#clock.now();
    // What arrives during the poll was sent before this tick: it is heard at the old time, which is late enough.
    this.#poll();
    this.#nowMs += Math.min(now - this.#lastTickMs, 2 * this.#intervalMs);
    this.#lastTickMs = now;
    for (const session of this.#sessions) this.#look(session);
    // Until here the timer counts as armed: a session that the poll brought must not arm a second one, whose ticks would come between.
    if (this.#sessions.size > 0) this.#arm();
    else this.#cancelTimer = undefined;
  }

  #look(session: Session): void {
    // The time of hearing is that of the tick before it, so a peer heard within the last interval is up to one interval "silent".
    const silentMs = this.#nowMs - session.heardMs;
    const heardLately = silentMs < 1.5 * this.#intervalMs;
    if (heardLately) this.#probed.delete(session);
    const open = session.hasOpenWork || session.hasPosted || this.#probed.has(session);
    if (session.state !== "open" || !open) {
      this.#sessions.delete(session);
      this.#probed.delete(session);
      return;
    }
    if (silentMs >= this.#boundMs) {
      this.#sessions.delete(session);
      this.#probed.delete(session);
      session.end(
        new RpcError({
          code: "unavailable",
          message: `${session.peerName} has been silent for ${Math.round(silentMs)} ms, heartbeatMs is ${this.#boundMs}`,
          origin: "fabric",
        }),
        { quiet: true, certain: false },
      );
    } else if (!heardLately) session.ping();
  }
}
