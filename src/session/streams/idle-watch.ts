import type { Clock } from "../../base/time/clock.ts";
import { type DeadlineWheel, Timed } from "../../base/time/deadline-wheel.ts";

/** A side of a stream with an idle bound. */
export interface WatchedSide {
  /** This side waits for the peer, and does not itself keep the peer from continuing. */
  readonly waitsForPeer: boolean;
  /** The number of the stream's frames from the peer. */
  readonly framesReceived: number;
}

/** A side that ends when its peer has been silent for the whole bound. */
export interface IdleListener extends WatchedSide {
  onIdle(): void;
}

/** The time of an engine. */
interface IdleTimes {
  readonly wheel: DeadlineWheel;
  readonly clock: Pick<Clock, "now">;
}

/** The number of checks within the bound. A stream ends at most a sixteenth late, and no frame reads the clock. */
const idleLooks = 16;

/** The side did not wait at the last check, or has not been checked yet. */
const notWaiting = -1;

/** Measures by periodic checks how long a side has waited without a frame from its peer. */
export class SilenceTimer {
  readonly #stepMs: number;
  readonly #idleTimeoutMs: number;
  #quietMs = notWaiting;
  #framesSeen: number;
  #lookedMs: number;

  constructor(idleTimeoutMs: number, framesReceived: number, nowMs: number) {
    this.#stepMs = idleTimeoutMs / idleLooks;
    this.#idleTimeoutMs = idleTimeoutMs;
    this.#framesSeen = framesReceived;
    this.#lookedMs = nowMs;
  }

  /** The time until the next check, in milliseconds. */
  get untilNextMs(): number {
    return this.#quietMs === notWaiting
      ? this.#stepMs
      : Math.min(this.#stepMs, this.#idleTimeoutMs - this.#quietMs);
  }

  /**
   * Checks the side. True when it has waited for the whole bound. The wait may have begun, or the last frame may have
   * come, any time before the check that saw it first. A process that stood still has not read its messages: a long gap
   * between two checks counts as two steps.
   */
  look({ waitsForPeer, framesReceived }: WatchedSide, nowMs: number): boolean {
    const passedMs = Math.min(nowMs - this.#lookedMs, 2 * this.#stepMs);
    this.#lookedMs = nowMs;
    if (!waitsForPeer) this.#quietMs = notWaiting;
    else if (this.#quietMs === notWaiting || framesReceived !== this.#framesSeen) this.#quietMs = 0;
    else this.#quietMs += passedMs;
    this.#framesSeen = framesReceived;
    return this.#quietMs >= this.#idleTimeoutMs;
  }
}

/** The idle bound of one side of a stream that has no deadline of its own. */
export class IdleWatch extends Timed {
  readonly #engine: IdleTimes;
  readonly #silence: SilenceTimer;
  readonly #listener: IdleListener;

  constructor(engine: IdleTimes, idleTimeoutMs: number, listener: IdleListener) {
    super();
    this.#engine = engine;
    this.#listener = listener;
    const nowMs = engine.clock.now();
    this.#silence = new SilenceTimer(idleTimeoutMs, listener.framesReceived, nowMs);
    this.#arm(nowMs);
  }

  override onDeadline(): void {
    const nowMs = this.#engine.clock.now();
    if (this.#silence.look(this.#listener, nowMs)) this.#listener.onIdle();
    else this.#arm(nowMs);
  }

  #arm(nowMs: number): void {
    this.#engine.wheel.arm(this, nowMs + this.#silence.untilNextMs);
  }

  stop(): void {
    this.#engine.wheel.disarm(this);
  }
}
