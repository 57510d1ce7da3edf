import { type FieldsOf, milliseconds } from "../base/options/options.ts";
import { realClock, systemClock } from "../base/time/clock.ts";
import type { EngineParts } from "./engine-parts.ts";
import { type OpenCall, openCalls } from "./open-call.ts";

/** The options of `engine.drain`. */
export interface DrainOptions {
  /** How long calls in flight may go on, in milliseconds, 0 to 2^31 - 1. Default 10,000. */
  readonly graceMs?: number | undefined;
}

/** How a drain ended. */
export interface DrainReport {
  /**
   * The calls, of both directions, that were still open when the grace ended or the engine was closed. Empty when every
   * call finished.
   */
  readonly aborted: readonly OpenCall[];
  /** How long the drain took, in milliseconds. */
  readonly tookMs: number;
}

export const drainFields = {
  graceMs: milliseconds({ low: 0, fallback: 10_000 }),
} satisfies FieldsOf<DrainOptions>;

/**
 * The time between checks of a draining engine. Polling keeps notices of ended calls off the hot path of other engines.
 */
const lookMs = 5;
/**
 * The longest wait for peers to receive the announcement. A peer with a blocked event loop, or a stopped peer, may take
 * longer.
 */
const longestNoticeMs = 1000;

/**
 * The states of an engine from open to closed, without loss:
 *
 * - Draining: requests are refused. Handlers continue, and may call other engines.
 * - No handler runs: calls of this engine are refused too. Calls in flight continue.
 * - Closed: the open calls are listed, and the engine is closed. This happens when nothing is in flight and every peer
 *   has received the announcement, so that no request is on its way. It also happens when the grace is over, or when
 *   the engine is closed by `close`.
 */
export class Drain {
  readonly report: Promise<DrainReport>;
  readonly #engine: EngineParts;
  readonly #beganMs: number;
  /** The drain waits until this time for peers that have not received the announcement. */
  readonly #heardMs: number;
  #untilMs = Number.POSITIVE_INFINITY;
  #cancelTimer: (() => void) | undefined;
  #resolve!: (report: DrainReport) => void;
  #ended = false;

  constructor(engine: EngineParts, graceMs: number) {
    this.#engine = engine;
    this.#beganMs = systemClock.now();
    this.#heardMs = this.#beganMs + longestNoticeMs;
    this.report = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    engine.sessions.stopAccepting();
    engine.gate.requests = false;
    for (const session of engine.sessions) session.ping();
    engine.health.onDraining();
    this.shorten(graceMs);
  }

  /** The grace ends after `graceMs`, or at its former end if that is earlier. */
  shorten(graceMs: number): void {
    if (this.#ended) return;
    this.#untilMs = Math.min(this.#untilMs, systemClock.now() + graceMs);
    this.#look();
  }

  /** The engine is being closed: calls that are open now are aborted. */
  cut(): void {
    if (!this.#ended) this.#end();
  }

  #look(): void {
    this.#cancelTimer?.();
    const { serves, gate } = this.#engine;
    if (!serves) gate.calls = false;
    const isDone = !this.#engine.works && (this.#engine.isDrainHeard || systemClock.now() >= this.#heardMs);
    if (!isDone && systemClock.now() >= this.#untilMs) this.#warnOfItself();
    if (isDone || systemClock.now() >= this.#untilMs) return this.#end();
    const waitMs = Math.min(lookMs, this.#untilMs - systemClock.now());
    this.#cancelTimer = realClock.timer(Math.ceil(waitMs), () => this.#look());
  }

  /** A handler that awaits the drain is the only call left when the grace is over. */
  #warnOfItself(): void {
    const calls = openCalls(this.#engine.exchanges, this.#engine.wheel);
    const [last] = calls;
    if (calls.length !== 1 || last?.direction !== "in" || last.phase !== "open") return;
    process.emitWarning(
      `the grace of engine.drain is over, and the handler of ${last.method} alone still runs. If it awaits engine.drain, it waits for itself: call drain there without await`,
      "CinnabarWarning",
    );
  }

  #end(): void {
    this.#ended = true;
    this.#cancelTimer?.();
    this.#engine.gate.calls = false;
    const aborted = this.#engine.works ? openCalls(this.#engine.exchanges, this.#engine.wheel) : [];
    this.#engine.close().then(() => this.#resolve({ aborted, tookMs: systemClock.now() - this.#beganMs }));
  }
}
