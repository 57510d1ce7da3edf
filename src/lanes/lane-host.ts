import { systemClock } from "../call/clock.ts";
import { assertOptions } from "../contract/check.ts";
import { assertGraceMs, type DrainOptions, type DrainReport, defaultGraceMs } from "../engine/drain.ts";
import type { Engine } from "../engine/engine.ts";
import type { EngineStats } from "../engine/stats.ts";
import { channels } from "../observe/channels.ts";
import type { Lane, LaneState } from "./lane.ts";
import { closeServices, type LaneServices } from "./lane-module.ts";

/** One lane at this moment. */
export interface LaneStatus {
  readonly lane: number;
  readonly state: LaneState;
  /** Where it listens, URL by URL as the front does; while there is no engine, where it did or will at first. */
  readonly urls: readonly string[];
  /** Of its engine; 0 while there is none. */
  readonly incarnation: bigint;
  /** How many of its threads have died. */
  readonly deaths: number;
}

/** What the front and all lanes hold at one moment. */
export interface LaneHostStats {
  readonly front: EngineStats;
  /** By number. `engine` is undefined while none serves, and of one that computes for longer than a second. */
  readonly lanes: readonly (LaneStatus & { readonly engine: EngineStats | undefined })[];
}

/** How a drain of all lanes ended: `aborted` is of the front and all lanes together. */
export interface LanesDrainReport extends DrainReport {
  /** Lanes that did not answer, and were terminated with whatever they had in flight. */
  readonly unanswered: readonly number[];
}

/**
 * A service in several threads behind one address. Made by `openLanes`; close it, or let `await using` do so. It keeps the process alive until then. The lanes are replaced when they die; the
 * front, which is an engine of the thread that opened it, tells clients where they are.
 */
export class LaneHost implements AsyncDisposable {
  readonly #front: Engine;
  readonly #lanes: readonly Lane[];
  readonly #services: LaneServices;
  #drain: Promise<LanesDrainReport> | undefined;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(front: Engine, lanes: readonly Lane[], services: LaneServices) {
    this.#front = front;
    this.#lanes = lanes;
    this.#services = services;
    this.publish();
  }

  /** @internal Tells clients where the lanes are now. */
  publish(): void {
    if (this.#closing === undefined) this.#front.postLanes(this.#lanes);
  }

  /** `draining`: on the way to be closed, see `drain`. */
  get state(): "open" | "draining" | "closed" {
    if (this.#closing !== undefined) return "closed";
    return this.#drain === undefined ? "open" : "draining";
  }

  /** Where clients connect to; a tcp port 0 shows as the port it got. */
  get urls(): string[] {
    return this.#front.urls;
  }

  /** Its lanes, by number. */
  get lanes(): LaneStatus[] {
    return this.#lanes.map(statusOf);
  }

  /** What the front and all lanes hold and have counted. Each lane is asked; one that computes for longer than a second is left out. */
  async stats(): Promise<LaneHostStats> {
    const lanes = this.#lanes.map(async (lane) => ({ ...statusOf(lane), engine: await lane.stats() }));
    return { front: this.#front.stats(), lanes: await Promise.all(lanes) };
  }

  /** Publishes what `stats()` gives on the diagnostics channel `cinnabar:stats`, as one engine does: once for the front, once for each lane, which has its number beside. */
  async publishStats(): Promise<void> {
    if (!channels.stats.hasSubscribers) return;
    this.#front.publishStats();
    for (const { lane, incarnation, urls, engine: stats } of (await this.stats()).lanes)
      if (stats !== undefined) channels.stats.publish({ lane, incarnation, urls, stats });
  }

  /**
   * Closes without cutting off what is in flight: the front and all lanes drain beside each other, as `engine.drain` says. A lane that does not answer within `graceMs` and some seconds is terminated. Always
   * ends. Called again it gives the same report, and can shorten the grace, never lengthen it.
   *
   * @throws TypeError or RangeError for bad options.
   */
  async drain(options: DrainOptions = {}): Promise<LanesDrainReport> {
    assertOptions("drain", options, ["graceMs"]);
    const { graceMs = defaultGraceMs } = options;
    assertGraceMs("drain", graceMs);
    if (this.#drain !== undefined)
      for (const drainable of [this.#front, ...this.#lanes]) void hurry(drainable, graceMs);
    else if (this.#closing === undefined) this.#drain = this.#drainAll(graceMs);
    return this.#drain ?? { aborted: [], tookMs: 0, unanswered: [] };
  }

  async #drainAll(graceMs: number): Promise<LanesDrainReport> {
    const begunMs = systemClock.now();
    const [front, reports] = await Promise.all([
      this.#front.drain({ graceMs }),
      Promise.all(this.#lanes.map((lane) => lane.drain(graceMs))),
    ]);
    await this.close();
    return {
      aborted: [front, ...reports].flatMap((report) => report?.aborted ?? []),
      unanswered: this.#lanes.filter((_, i) => reports[i] === undefined).map(({ number }) => number),
      tookMs: systemClock.now() - begunMs,
    };
  }

  /** Ends the front and all lanes: peers are told, open calls fail with `unavailable`. A thread that does not end by itself is terminated, so it always ends, within some seconds. Safe to call again. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await Promise.all([this.#front.close(), ...this.#lanes.map((lane) => lane.close())]);
    await closeServices(this.#services, "the front");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

function hurry(drainable: Engine | Lane, graceMs: number): Promise<unknown> {
  return "number" in drainable ? drainable.drain(graceMs) : drainable.drain({ graceMs });
}

function statusOf({ number, state, urls, incarnation, deaths }: Lane): LaneStatus {
  return { lane: number, state, urls, incarnation, deaths };
}
