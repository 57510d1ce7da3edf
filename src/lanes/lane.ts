import { systemClock } from "../call/clock.ts";
import type { DrainReport } from "../engine/drain.ts";
import type { LaneEntry } from "../engine/lane-board.ts";
import type { EngineStats } from "../engine/stats.ts";
import { within } from "../engine/within.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { laneUrl } from "./addresses.ts";
import { LaneThread, type ThreadEnd } from "./lane-thread.ts";
import type { LaneListening } from "./messages.ts";
import type { ResolvedLanesOptions } from "./options.ts";

/**
 *   starting   its thread loads the module and begins to listen
 *   serving    it takes calls
 *   waiting    its thread has ended without our doing; the next starts when the pause is over
 *   closed     for good
 */
export type LaneState = "starting" | "serving" | "waiting" | "closed";

/** A lane's thread has ended without anybody's having asked for it, or none could be had in its place. */
export interface LaneDeath {
  readonly lane: number;
  /** 1 where no thread could be had. */
  readonly exitCode: number;
  /** What it threw, or why it never came to serve. Undefined where it left by `process.exit`. */
  readonly error: Error | undefined;
  /** Since it began to serve; 0 if it never did. */
  readonly servedMs: number;
  /** Of this lane so far, this one included. */
  readonly deaths: number;
  /** The pause before the next thread of the lane is started. */
  readonly replacedInMs: number;
}

/** Whoever has lanes. */
export interface LaneOwner {
  /** One of them listens, or listens no more. */
  onLaneChanged(lane: Lane): void;
  onLaneDied(death: LaneDeath): void;
}

/** How long a thread may take to close its engine (half a second) and its module (a second) before it is terminated. */
const closeMs = 2500;
/** How long a lane that computes may take to say what it holds. */
const statsMs = 1000;

/** One lane: a thread that serves, and after its death another in its place, at the same address where that can be had. */
export class Lane implements LaneEntry {
  readonly number: number;
  readonly #options: ResolvedLanesOptions;
  readonly #owner: LaneOwner;
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
  constructor(number: number, options: ResolvedLanesOptions, owner: LaneOwner) {
    this.number = number;
    this.#options = options;
    this.#owner = owner;
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

  /** Settles when its first thread serves, or cannot come to serve. */
  async firstServing(): Promise<void> {
    await this.#thread?.listening;
  }

  /** What its engine holds; undefined while none serves, and of one that does not answer soon. */
  async stats(): Promise<EngineStats | undefined> {
    if (this.#state !== "serving" || this.#thread === undefined) return undefined;
    try {
      return await within(statsMs, `lane ${this.number} has not answered`, this.#thread.stats());
    } catch {
      return undefined;
    }
  }

  /** Its engine drains, and its thread ends. The report is undefined when it ended without one. Called again it gives the same, and can shorten the grace. */
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

  /** It ends already, and shall do so sooner. */
  #hurry(ask: (thread: LaneThread) => Promise<unknown>, limitMs: number): void {
    const thread = this.#thread;
    if (thread === undefined) return;
    ask(thread).catch(() => {});
    const cancel = systemClock.timer(timerMs(limitMs), () => thread.terminate());
    thread.ended.then(cancel);
  }

  #start(): void {
    const { module, lanes, data, engine, resourceLimits, startTimeoutMs } = this.#options;
    this.#state = "starting";
    const orders = { module, lane: this.number, lanes, data, listen: this.#urls, engine };
    const thread = new LaneThread(orders, resourceLimits, startTimeoutMs);
    this.#thread = thread;
    thread.listening.then(
      (listening) => this.#onListening(thread, listening),
      () => {},
    );
    thread.ended.then((end) => this.#onEnded(thread, end));
  }

  /** There may be no thread to be had, as when the process has as many as it may. That is a death like any other: it is told of, and the next try comes later. */
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
    this.#servesSinceMs = systemClock.now();
    this.#state = "serving";
    this.#owner.onLaneChanged(this);
  }

  #onEnded(thread: LaneThread, { exitCode, error }: ThreadEnd): void {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    const served = this.#listening !== undefined;
    const servedMs = this.#servesSinceMs === undefined ? 0 : systemClock.now() - this.#servesSinceMs;
    this.#listening = undefined;
    this.#servesSinceMs = undefined;
    // Whoever listens there now may stay for ever.
    if (!served) this.#urls = this.#firstUrls;
    if (this.#end !== undefined) {
      this.#state = "closed";
      this.#owner.onLaneChanged(this);
      return;
    }
    this.#onDied({ exitCode, error }, servedMs);
  }

  #onDied({ exitCode, error }: ThreadEnd, servedMs: number): void {
    this.#state = "waiting";
    const replacedInMs = this.#pauseMs(servedMs);
    this.#deaths++;
    // Before anybody is told: who closes the lane then calls it off, and who throws loses no lane.
    this.#cancelPause = systemClock.timer(replacedInMs, () => this.#startAgain());
    this.#owner.onLaneChanged(this);
    this.#owner.onLaneDied({
      lane: this.number,
      exitCode,
      error,
      servedMs,
      deaths: this.#deaths,
      replacedInMs,
    });
  }

  #pauseMs(servedMs: number): number {
    const { minDelayMs, maxDelayMs } = this.#options.restart;
    if (this.#deaths === 0 || servedMs >= maxDelayMs) {
      this.#early = 0;
      return 0;
    }
    return Math.min(maxDelayMs, minDelayMs * 2 ** Math.min(this.#early++, 31));
  }

  /** Asks the thread to end, terminates it when it has, or when it has not within `limitMs`. */
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
      const cancel = systemClock.timer(timerMs(limitMs), () => thread.terminate());
      // What it says when it is terminated, or dies on its way, is not waited for.
      report = await ask(thread).catch(() => undefined);
      cancel();
    }
    thread?.terminate();
    await thread?.ended;
    return served ? report : nothingAborted;
  }
}

function threadRefused(lane: number, cause: unknown): RpcError {
  const why = cause instanceof Error ? cause.message : String(cause);
  const message = `no thread could be started for lane ${lane}: ${why}`;
  return new RpcError({ code: "resource_exhausted", message, origin: "local", cause });
}

/** Of a lane that had no engine. */
const nothingAborted: DrainReport = { aborted: [], tookMs: 0 };

const timerMs = (ms: number): number => Math.min(ms, 2 ** 31 - 1);
