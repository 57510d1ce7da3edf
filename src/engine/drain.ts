import type { Clock } from "../call/clock.ts";
import type { Intake } from "../session/intake.ts";
import type { OpenCall } from "../session/open-call.ts";

/** What `engine.drain` takes. */
export interface DrainOptions {
  /** How long what is in flight may go on, in milliseconds, 0 to 2^31 - 1. Default 10,000. */
  readonly graceMs?: number;
}

/** How a drain ended. */
export interface DrainReport {
  /** Calls of either direction that were still open when the grace ended, or when somebody closed the engine. Empty when everything finished. */
  readonly aborted: readonly OpenCall[];
  readonly tookMs: number;
}

/** What a drain needs of its engine. */
export interface Drainable {
  readonly clock: Clock;
  readonly intake: Intake;
  /** Tells every peer. */
  announce(): void;
  /** Whether handlers run. */
  serves(): boolean;
  /** Whether anything is in flight, down to answers that have not left or have not been pulled. */
  works(): boolean;
  calls(): OpenCall[];
  close(): Promise<void>;
}

export const defaultGraceMs = 10_000;

/** @throws RangeError unless the value is a time a timer can hold. */
export function assertGraceMs(where: string, graceMs: unknown): void {
  if (typeof graceMs === "number" && graceMs >= 0 && graceMs < 2 ** 31) return;
  throw new RangeError(
    `${where}: graceMs must be a number from 0 to ${2 ** 31 - 1}, it is ${String(graceMs)}`,
  );
}

/** How often a draining engine looks whether it is done. A call's end need not tell anybody then, on the hot path of all the others. */
const lookMs = 5;

/**
 * The way from open to closed without loss:
 *
 *   draining   requests are refused; handlers go on, and may call: others, for what they still need
 *   serves no more   calls of our own are refused too; those in flight go on
 *   done, or the grace is over, or the engine was closed   what is open is listed, and the engine closed
 */
export class Drain {
  readonly report: Promise<DrainReport>;
  readonly #engine: Drainable;
  readonly #beganMs: number;
  #untilMs = Number.POSITIVE_INFINITY;
  #cancelTimer: (() => void) | undefined;
  #resolve!: (report: DrainReport) => void;
  #ended = false;

  constructor(engine: Drainable, graceMs: number) {
    this.#engine = engine;
    this.#beganMs = engine.clock.now();
    this.report = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    engine.intake.requests = false;
    engine.announce();
    this.within(graceMs);
  }

  /** The grace ends so much later than now, or when it would have ended, whichever is earlier. */
  within(graceMs: number): void {
    if (this.#ended) return;
    this.#untilMs = Math.min(this.#untilMs, this.#engine.clock.now() + graceMs);
    this.#look();
  }

  /** The engine is being closed: what is open now is cut off. */
  cut(): void {
    if (!this.#ended) this.#end();
  }

  #look(): void {
    this.#cancelTimer?.();
    const { clock, intake } = this.#engine;
    if (!this.#engine.serves()) intake.calls = false;
    if (!this.#engine.works() || clock.now() >= this.#untilMs) return this.#end();
    const waitMs = Math.min(lookMs, this.#untilMs - clock.now());
    this.#cancelTimer = clock.timer(Math.ceil(waitMs), () => this.#look());
  }

  #end(): void {
    this.#ended = true;
    this.#cancelTimer?.();
    this.#engine.intake.calls = false;
    const aborted = this.#engine.works() ? this.#engine.calls() : [];
    const { clock } = this.#engine;
    this.#engine.close().then(() => this.#resolve({ aborted, tookMs: clock.now() - this.#beganMs }));
  }
}
