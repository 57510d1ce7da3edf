import type { EngineStats } from "cinnabar/inspect";
import { type DrainReport, RpcError } from "cinnabar/standard";
import { laneUrl } from "./addresses.ts";
import type { LaneCredentials } from "./lane-security.ts";
import { LaneThread, type ThreadEnd } from "./lane-thread.ts";
import type { ListedLane } from "./lanes-service.ts";
import type { LaneListening } from "./messages.ts";
import type { LaneDeath, ResolvedLanesOptions } from "./options.ts";
import { within } from "./within.ts";

/**
 * The state of a lane.
 *
 *   starting   its thread loads the module and starts to listen
 *   serving    it takes calls
 *   waiting    its thread exited unexpectedly; the next one starts after the pause
 *   closed     the lanes were closed or drained
 */
export type LaneState = "starting" | "serving" | "waiting" | "closed";

/** Gets the events of lanes. */
export interface LaneListener {
  /** A lane has started or stopped to listen. */
  onLaneChanged(lane: Lane): void;
  onLaneDied(death: LaneDeath): void;
}

/** How long a thread may take to close its engine (half a second) and its module (a second) before it is terminated. */
const closeMs = 2500;
/** How long a lane that computes, or loads its module, may take to reload its certificates before that is an error. */
const reloadMs = 5000;
/** How long a lane with a blocked event loop may take to report its stats. */
const statsMs = 1000;

/** One lane: a thread that serves, and after an unexpected exit the next one, at the same address if that is free. */
export class Lane implements ListedLane {
  readonly number: number;
  readonly #options: ResolvedLanesOptions;
  readonly #listener: LaneListener;
  readonly #firstUrls: readonly string[];
  #thread: LaneThread | undefined;
  #state: LaneState = "starting";
  #listening: LaneListening | undefined;
  #urls: readonly string[];
  #servesSinceMs: number | undefined;
  #deaths = 0;
  /** Deaths since the lane last lived for long. */
  #early = 0;
  #cancelPause: () => void = () => {};
  #end: Promise<DrainReport | undefined> | undefined;

  /** @throws DataCloneError when the module's data cannot be cloned. */
  constructor(number: number, options: ResolvedLanesOptions, listener: LaneListener) {
    this.number = number;
    this.#options = options;
    this.#listener = listener;
    this.#firstUrls = options.listen.map((url) => laneUrl(url, number, options.firstLanePort));
    this.#urls = this.#firstUrls;
    this.#start();
  }

  get state(): LaneState {
    return this.#state;
  }

  get urls(): readonly string[] {
    return this.#urls;
  }

  get incarnation(): bigint {
    return this.#listening?.incarnation ?? 0n;
  }

  get deaths(): number {
    return this.#deaths;
  }

  /** Resolves when the first thread serves. Rejects when it cannot. */
  async firstServing(): Promise<void> {
    await this.#thread?.listening;
  }

  /** The stats of its engine; undefined if it does not serve, or does not answer in time. */
  async stats(histograms: boolean): Promise<EngineStats | undefined> {
    if (this.#state !== "serving" || this.#thread === undefined) return undefined;
    try {
      return await within(statsMs, `lane ${this.number} has not answered`, this.#thread.stats(histograms));
    } catch {
      return undefined;
    }
  }

  /**
   * Its engine takes these certificates. A thread that ends meanwhile, or starts later, does not matter: the next one has
   * them from the beginning.
   *
   * @throws RpcError `unavailable` when the thread has not answered in time; what the engine throws.
   */
  async reloadSecurity(security: LaneCredentials): Promise<void> {
    const thread = this.#thread;
    if (thread === undefined) return;
    try {
      const reloaded = thread.ask("reloadSecurity", { security });
      await within(reloadMs, `lane ${this.number} has not reloaded its certificates`, reloaded);
    } catch (error) {
      if (this.#thread === thread) throw error;
    }
  }

  /**
   * Its engine drains, and its thread ends. The report is undefined when the thread ended without one. A second call
   * gives the same report, and can shorten the grace.
   */
  drain(graceMs: number): Promise<DrainReport | undefined> {
    if (this.#end === undefined)
      this.#end = this.#endThread((thread) => thread.ask("drain", { graceMs }), graceMs + closeMs);
    else this.#hurry((thread) => thread.ask("drain", { graceMs }), graceMs + closeMs);
    return this.#end;
  }

  /** Its engine closes, and its thread ends, whatever it does. */
  async close(): Promise<void> {
    if (this.#end === undefined) this.#end = this.#endThread((thread) => thread.ask("close"), closeMs);
    else this.#hurry((thread) => thread.ask("close"), closeMs);
    await this.#end;
  }

  /** Shortens a drain or close in progress. */
  #hurry(ask: (thread: LaneThread) => Promise<unknown>, limitMs: number): void {
    const thread = this.#thread;
    if (thread === undefined) return;
    ask(thread).catch(() => {});
    const timer = setTimeout(() => thread.terminate(), timerMs(limitMs));
    thread.ended.then(() => clearTimeout(timer));
  }

  #start(): void {
    const { module, lanes, data, engine, resourceLimits, startTimeoutMs } = this.#options;
    this.#state = "starting";
    const security = this.#options.security?.current;
    const orders = { module, lane: this.number, lanes, data, listen: this.#urls, engine, security };
    const thread = new LaneThread(orders, resourceLimits, startTimeoutMs);
    this.#thread = thread;
    thread.listening.then(
      (listening) => this.#onListening(thread, listening),
      () => {},
    );
    thread.ended.then((end) => this.#onEnded(thread, end));
  }

  /** A failed start, for example because the process has too many threads, counts as an unexpected exit. */
  #startAgain(): void {
    try {
      this.#start();
    } catch (cause) {
      this.#onDied({ exitCode: 1, error: threadRefused(this.number, cause) }, 0);
    }
  }

  #onListening(thread: LaneThread, listening: LaneListening): void {
    if (this.#thread !== thread || this.#end !== undefined) return;
    this.#listening = listening;
    this.#urls = listening.urls;
    this.#servesSinceMs = performance.now();
    this.#state = "serving";
    this.#listener.onLaneChanged(this);
  }

  #onEnded(thread: LaneThread, { exitCode, error }: ThreadEnd): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const served = this.#listening !== undefined;
    const servedMs = this.#servesSinceMs === undefined ? 0 : performance.now() - this.#servesSinceMs;
    this.#listening = undefined;
    this.#servesSinceMs = undefined;
    // Another process may have the address now, and keep it forever.
    if (!served) this.#urls = this.#firstUrls;
    if (this.#end !== undefined) {
      this.#state = "closed";
      this.#listener.onLaneChanged(this);
      return;
    }
    this.#onDied({ exitCode, error }, servedMs);
  }

  #onDied({ exitCode, error }: ThreadEnd, servedMs: number): void {
    this.#state = "waiting";
    const replacedInMs = this.#pauseMs(servedMs);
    this.#deaths++;
    // Before the listener runs: a listener that closes the lane cancels it, and one that throws loses no lane.
    const timer = setTimeout(() => this.#startAgain(), replacedInMs);
    this.#cancelPause = () => clearTimeout(timer);
    this.#listener.onLaneChanged(this);
    this.#listener.onLaneDied({
      lane: this.number,
      exitCode,
      error,
      servedMs,
      deaths: this.#deaths,
      replacedInMs,
    });
  }

  #pauseMs(servedMs: number): number {
    const { restart } = this.#options;
    if (this.#deaths === 0 || servedMs >= restart.maxDelayMs) {
      this.#early = 0;
      return 0;
    }
    const { baseDelayMs, maxDelayMs } = restart;
    return Math.min(Math.max(baseDelayMs, maxDelayMs), baseDelayMs * 2 ** this.#early++);
  }

  /** Asks the thread to end, and terminates it after its answer or after `limitMs`. */
  async #endThread(
    ask: (thread: LaneThread) => Promise<DrainReport | undefined>,
    limitMs: number,
  ): Promise<DrainReport | undefined> {
    const thread = this.#thread;
    const served = this.#listening !== undefined;
    this.#cancelPause();
    if (thread === undefined) this.#state = "closed";
    let report: DrainReport | undefined;
    if (thread !== undefined && served) {
      const timer = setTimeout(() => thread.terminate(), timerMs(limitMs));
      // A thread that is terminated, or exits, sends no report.
      report = await ask(thread).catch(() => undefined);
      clearTimeout(timer);
    }
    thread?.terminate();
    await thread?.ended;
    return served ? report : nothingAborted;
  }
}

function threadRefused(lane: number, cause: unknown): RpcError {
  const why = cause instanceof Error ? cause.message : String(cause);
  const message = `no thread could be started for lane ${lane}: ${why}`;
  return new RpcError({ code: "resource_exhausted", message, cause });
}

/** The drain report of a lane that had no engine. */
const nothingAborted: DrainReport = { aborted: [], tookMs: 0 };

const timerMs = (ms: number): number => Math.min(ms, 2 ** 31 - 1);
