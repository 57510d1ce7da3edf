import type { Priority } from "../base/flow/priority.ts";
import { PriorityQueue, type Queued } from "../base/flow/priority-queue.ts";
import { RecentLeast } from "../base/flow/recent-least.ts";
import type { AdmissionLimits } from "./admission-options.ts";

/** A request in an admission queue. */
export interface Waiting extends Queued {
  /** The start of the wait, on the engine's clock. */
  readonly queuedMs: number;
}

/**
 * A queue that has not been empty for this many targets is not a burst. As in CoDel, which has a target of 5 % of the
 * interval.
 */
const targetsInInterval = 20;
const typicalMs = 10;
const longestRetryMs = 1000;

/**
 * The waiting requests of one service, or of all services without limits of their own.
 *
 * A queue absorbs bursts; a standing queue only makes everything late. So it follows CoDel (K. Nichols and V. Jacobson,
 * "Controlling Queue Delay", ACM Queue 2012) as adapted to requests (B. Maurer, "Fail at Scale", ACM Queue 2015). When
 * requests of priority `normal` have waited for an interval without a break, requests older than the target are
 * rejected in their turn. The last one is served even then: a free place is not wasted. When rejections empty the
 * queue, the interval continues until one has passed without rejections.
 */
export class AdmissionQueue<T extends Waiting> {
  /** The name of the service. Undefined for the queue that services without limits share. */
  readonly service: string | undefined;
  readonly limits: AdmissionLimits;
  readonly waiting: PriorityQueue<T>;
  readonly times = new HandlerTimes();
  running = 0;
  /**
   * The time since when requests of priority `normal` have waited without a break. Ignored while none of them waits.
   */
  #standingMs = 0;
  /** When a request was last rejected for its age. */
  #refusedMs = Number.NEGATIVE_INFINITY;

  constructor(service: string | undefined, limits: AdmissionLimits) {
    this.service = service;
    this.limits = limits;
    this.waiting = new PriorityQueue({ maxCalls: limits.maxQueued, maxBytes: limits.maxQueuedBytes });
  }

  get hasRoom(): boolean {
    return this.running < this.limits.maxConcurrent;
  }

  /** Adds a request, as `PriorityQueue.push`. */
  push(item: T): T[] | undefined {
    const { priority, queuedMs } = item;
    const out = this.waiting.push(item);
    const isFirst = out !== undefined && priority === "normal" && this.waiting.sizeOf(priority) === 1;
    if (isFirst && queuedMs - this.#refusedMs >= this.#intervalMs) this.#standingMs = queuedMs;
    return out;
  }

  /**
   * Takes the oldest request of a priority. In a standing queue it skips requests older than the target, except the
   * last: they are `stale`. All returned requests have left the queue. The queue of that priority must not be empty.
   */
  take(priority: Priority, nowMs: number): { readonly next: T; readonly stale: readonly T[] } {
    const { waiting } = this;
    const { targetQueueMs } = this.limits;
    const stands = priority !== "control" && nowMs - this.#standingMs >= this.#intervalMs;
    const stale: T[] = [];
    for (;;) {
      const oldest = waiting.oldest(priority) as T;
      waiting.delete(oldest);
      if (!stands || waiting.sizeOf(priority) === 0 || nowMs - oldest.queuedMs <= targetQueueMs)
        return { next: oldest, stale };
      stale.push(oldest);
      this.#refusedMs = nowMs;
    }
  }

  /**
   * The approximate time until there is room for another request, in milliseconds: the time to serve all waiting ones.
   * 1 to 1000.
   */
  retryAfterMs(queued: number, places: number): number {
    const meanMs = this.times.meanMs || typicalMs;
    return Math.min(Math.max(Math.ceil((meanMs * (queued + 1)) / places), 1), longestRetryMs);
  }

  get #intervalMs(): number {
    return this.limits.targetQueueMs * targetsInInterval;
  }
}

/** The window of the minimum of handler times: it is remembered for one to two windows. */
const windowMs = 5000;
/** With fewer samples the minimum means nothing. */
const enough = 8;
/** Weight of a new sample in the mean. */
const weight = 1 / 16;

/** The recent times of a method's handlers. */
export class HandlerTimes {
  readonly #recent = new RecentLeast(windowMs);
  /** Moving average in milliseconds; 0 when no handler has ended yet. */
  meanMs = 0;

  record(tookMs: number, nowMs: number): void {
    this.#recent.record(tookMs, nowMs);
    this.meanMs = this.meanMs === 0 ? tookMs : this.meanMs + (tookMs - this.meanMs) * weight;
  }

  /** The fastest handler of the last five to ten seconds, in milliseconds; 0 with fewer than eight samples. */
  leastMs(nowMs: number): number {
    this.#recent.turnTo(nowMs);
    return this.#recent.count < enough ? 0 : this.#recent.least;
  }
}
