import type { Priority } from "../flow/priority.ts";
import { PriorityQueue, type Queued } from "../flow/priority-queue.ts";
import type { AdmissionLimits } from "./admission-options.ts";
import { HandlerTimes } from "./handler-times.ts";

/** What waits in a lane. */
export interface Waiting extends Queued {
  /** Since when, on the engine's clock. */
  readonly queuedMs: number;
}

/** What is taken from a lane, and what had waited too long to be taken. */
export interface Taken<T> {
  readonly next: T;
  readonly stale: readonly T[];
}

/** Once some have been waiting without a break for so many times the target, it is no burst any more. As in CoDel, where the target is 5 % of the interval. */
const targetsInInterval = 20;
const never = Number.NEGATIVE_INFINITY;
const typicalMs = 10;
const longestRetryMs = 1000;

/**
 * Requests that share a limit: those of one service that has limits of its own, or of all that have none. Whether they may run, and who goes first.
 *
 * A queue absorbs bursts; one that stands only makes everything late. So, after CoDel (K. Nichols and V. Jacobson, "Controlling Queue Delay", ACM Queue
 * 2012) as it was adapted for requests (B. Maurer, "Fail at Scale", ACM Queue 2015): when a class has not been without waiting requests for an
 * interval, those that have waited longer than the target are refused as it comes to them, but for the last: a place is not left empty where there is work.
 * To have been emptied by refusals is no break until an interval has gone without any.
 */
export class Lane<T extends Waiting> {
  /** The service's name; undefined for what all services share that have no limits of their own. */
  readonly service: string | undefined;
  readonly limits: AdmissionLimits;
  readonly queue: PriorityQueue<T>;
  readonly times = new HandlerTimes();
  running = 0;
  /** Since when each class has not been empty; of no meaning while it is. */
  readonly #standingMs: Record<Priority, number> = { control: 0, high: 0, normal: 0, low: 0 };
  /** When one of each class was last refused for its age. */
  readonly #refusedMs: Record<Priority, number> = { control: never, high: never, normal: never, low: never };

  constructor(service: string | undefined, limits: AdmissionLimits) {
    this.service = service;
    this.limits = limits;
    this.queue = new PriorityQueue({ maxCalls: limits.maxQueued, maxBytes: limits.maxQueuedBytes });
  }

  get hasRoom(): boolean {
    return this.running < this.limits.maxConcurrent;
  }

  /** As `PriorityQueue.push`. */
  push(item: T): T[] | undefined {
    const { priority, queuedMs } = item;
    const out = this.queue.push(item);
    const isFirst = out !== undefined && this.queue.sizeOf(priority) === 1;
    if (isFirst && queuedMs - this.#refusedMs[priority] >= this.#intervalMs)
      this.#standingMs[priority] = queuedMs;
    return out;
  }

  /**
   * Takes the one of that class that has waited longest; where they stand, of those that have not waited too long, or the last. All that is given leaves the
   * queue. The class must not be empty.
   */
  take(priority: Priority, nowMs: number): Taken<T> {
    const { queue } = this;
    const { targetQueueMs } = this.limits;
    const stands = priority !== "control" && nowMs - this.#standingMs[priority] >= this.#intervalMs;
    const stale: T[] = [];
    for (;;) {
      const oldest = queue.oldest(priority) as T;
      queue.delete(oldest);
      if (!stands || queue.sizeOf(priority) === 0 || nowMs - oldest.queuedMs <= targetQueueMs)
        return { next: oldest, stale };
      stale.push(oldest);
      this.#refusedMs[priority] = nowMs;
    }
  }

  /** When there will be room for another, about: as soon as all that wait have been served. */
  retryAfterMs(queued: number, places: number): number {
    const meanMs = this.times.meanMs || typicalMs;
    return Math.min(Math.max(Math.ceil((meanMs * (queued + 1)) / places), 1), longestRetryMs);
  }

  get #intervalMs(): number {
    return this.limits.targetQueueMs * targetsInInterval;
  }
}
