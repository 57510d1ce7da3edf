import type { Clock } from "../../base/time/clock.ts";
import { type DeadlineWheel, Timed } from "../../base/time/deadline-wheel.ts";

/** A side of a stream with an idle bound. */
export interface Watched {
  /** This side waits for the peer, and nothing of its own keeps the peer from going on. */
  readonly waitsForPeer: boolean;
  /** Frames of the stream that have come from the peer. */
  readonly signs: number;
}

/** Is told that its peer has been silent for the whole bound. */
export interface IdleListener extends Watched {
  onIdle(): void;
}

/** What tells an engine's time. */
interface IdleTimes {
  readonly wheel: DeadlineWheel;
  readonly clock: Pick<Clock, "now">;
}

/** How often a side looks within the bound: a stream ends at most a quarter late, and no frame reads the clock. */
export const idleLooks = 4;

/**
 * Looks in a row that saw this side wait, the one included that saw the last frame: after one more look. `seenSigns`:
 * those of the look before.
 */
export function quietLooks(quiet: number, { waitsForPeer, signs }: Watched, seenSigns: number): number {
  if (!waitsForPeer) return 0;
  return signs === seenSigns ? quiet + 1 : 1;
}

/** Whether so many looks are the whole bound: the wait may have begun, and the frame have come, just before the first. */
export function isIdle(quiet: number): boolean {
  return quiet > idleLooks;
}

/** The idle bound of one side of a stream that has no deadline of its own. */
export class IdleWatch extends Timed {
  readonly #engine: IdleTimes;
  readonly #stepMs: number;
  readonly #listener: IdleListener;
  #seenSigns = 0;
  #quiet = 0;

  constructor(engine: IdleTimes, idleTimeoutMs: number, listener: IdleListener) {
    super();
    this.#engine = engine;
    this.#stepMs = idleTimeoutMs / idleLooks;
    this.#listener = listener;
    this.#seenSigns = listener.signs;
    this.#arm();
  }

  override onDeadline(): void {
    this.#quiet = quietLooks(this.#quiet, this.#listener, this.#seenSigns);
    this.#seenSigns = this.#listener.signs;
    if (isIdle(this.#quiet)) this.#listener.onIdle();
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
