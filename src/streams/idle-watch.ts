import type { Clock } from "../time/clock.ts";
import { type DeadlineWheel, Timed } from "../time/deadline-wheel.ts";

/** What an idle watch looks at. */
export interface Watched {
  /** This side waits for the peer, and nothing of its own keeps the peer from going on. */
  readonly waitsForPeer: boolean;
  /** Frames of the stream that have come from the peer. */
  readonly signs: number;
  /** The peer has been silent for the whole bound. */
  onIdle(): void;
}

/** What tells an engine's time. */
interface IdleTimes {
  readonly wheel: DeadlineWheel;
  readonly clock: Pick<Clock, "now">;
}

/** How often it looks within the bound: a stream ends at most a quarter late, and no frame reads the clock. */
const looks = 4;

/** The idle bound of one side of a stream. */
export class IdleWatch extends Timed {
  readonly #engine: IdleTimes;
  readonly #stepMs: number;
  readonly #watched: Watched;
  #signs = 0;
  /** Looks in a row that saw this side wait, the one included that saw the last frame. */
  #quiet = 0;

  constructor(engine: IdleTimes, idleTimeoutMs: number, watched: Watched) {
    super();
    this.#engine = engine;
    this.#stepMs = idleTimeoutMs / looks;
    this.#watched = watched;
    this.#signs = watched.signs;
    this.#arm();
  }

  override onDeadline(): void {
    const { waitsForPeer, signs } = this.#watched;
    if (!waitsForPeer) this.#quiet = 0;
    else this.#quiet = signs === this.#signs ? this.#quiet + 1 : 1;
    this.#signs = signs;
    // The wait may have begun, and the frame have come, just before the first look that saw it.
    if (this.#quiet > looks) this.#watched.onIdle();
    else this.#arm();
  }

  #arm(): void {
    const { wheel, clock } = this.#engine;
    wheel.arm(this, clock.now() + this.#stepMs);
  }

  stop(): void {
    this.#engine.wheel.disarm(this);
  }
}
