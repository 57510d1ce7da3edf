import type { Priority } from "../../../src/base/flow/priority.ts";
import type { Clock, WakeUp } from "../../../src/base/time/clock.ts";
import type { ShedCause } from "../../../src/server/admission.ts";
import type { AdmissionOptions } from "../../../src/server/admission-options.ts";
import { Gate } from "../../../src/server/admission-queue.test-support.ts";
import { seeded } from "../../matrix/random.ts";

interface Event {
  readonly atMs: number;
  readonly order: number;
  fire: (() => void) | undefined;
}

/** Time that goes from event to event. */
export class SimulatedClock implements Clock {
  #nowMs = 0;
  #made = 0;
  /** A binary heap, the next on top. */
  readonly #events: Event[] = [];

  now(): number {
    return this.#nowMs;
  }

  timer(delayMs: number, fire: () => void): () => void {
    const event: Event = { atMs: this.#nowMs + delayMs, order: this.#made++, fire };
    const events = this.#events;
    let at = events.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, events[parent] as Event)) break;
      events[at] = events[parent] as Event;
      at = parent;
    }
    events[at] = event;
    return () => {
      event.fire = undefined;
    };
  }

  wakeUp(delayMs: number, fire: () => void): WakeUp {
    return { hold() {}, cancel: this.timer(delayMs, fire) };
  }

  run(untilMs: number): void {
    for (;;) {
      const next = this.#events[0];
      if (next === undefined || next.atMs > untilMs) break;
      this.#pop();
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.fire?.();
    }
    this.#nowMs = untilMs;
  }

  #pop(): void {
    const events = this.#events;
    const last = events.pop() as Event;
    if (events.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child + 1 < events.length && isBefore(events[child + 1] as Event, events[child] as Event)) child++;
      if (child >= events.length || !isBefore(events[child] as Event, last)) break;
      events[at] = events[child] as Event;
      at = child;
    }
    events[at] = last;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

export interface Scenario {
  readonly admission: AdmissionOptions;
  /** How long handlers take on the average, in milliseconds; exponentially distributed above a tenth of that. */
  readonly handlerMs: number;
  /** Requests that arrive, as a multiple of what the places can serve. */
  readonly load: number;
  /** How much of the load each class is. */
  readonly mix: Partial<Record<Priority, number>>;
  /** How long callers wait. */
  readonly timeMs: number;
  readonly seconds: number;
  readonly seed: number;
}

export interface ClassResult {
  readonly offered: number;
  /** Answered in time. */
  readonly served: number;
  /** From arrival to the handler's begin, of those that were answered in time. */
  readonly waitP50Ms: number;
  readonly waitP99Ms: number;
  readonly waitMaxMs: number;
}

export interface Result {
  /** Answered in time, as a share of what the places could serve. */
  readonly goodput: number;
  /** Begun, but answered too late, as a share of what was begun. */
  readonly wasted: number;
  readonly waitP99Ms: number;
  readonly most: number;
  readonly classes: Readonly<Record<Priority, ClassResult>>;
  readonly shed: Readonly<Record<ShedCause, number>>;
}

/** Lets requests come as a Poisson process and says how they fared; what comes in the first fifth does not count. */
export function simulate(scenario: Scenario): Result {
  const { admission, handlerMs, load, mix, timeMs, seconds, seed } = scenario;
  const random = seeded(seed);
  const clock = new SimulatedClock();
  const gate = new Gate(clock, admission);
  const places = admission.maxConcurrent as number;
  const exponential = (mean: number) => -Math.log(1 - random()) * mean;
  const betweenMs = handlerMs / places / load;
  const endMs = seconds * 1000;
  const countsMs = endMs / 5;
  const waits: Record<Priority, number[]> = { control: [], normal: [] };
  const offered: Record<Priority, number> = { control: 0, normal: 0 };
  let begun = 0;
  let late = 0;

  const draw = (): Priority => {
    let left = random() * Object.values(mix).reduce((sum, share) => sum + share, 0);
    for (const [priority, share] of Object.entries(mix) as [Priority, number][]) {
      left -= share;
      if (left < 0) return priority;
    }
    return "normal";
  };
  const arrive = () => {
    clock.timer(exponential(betweenMs), arrive);
    const priority = draw();
    const arrivedMs = clock.now();
    const counts = arrivedMs >= countsMs;
    if (counts) offered[priority]++;
    gate.ask({
      priority,
      timeMs,
      onBegun: (call) => {
        const waitedMs = clock.now() - arrivedMs;
        if (counts) begun++;
        clock.timer(handlerMs * 0.1 + exponential(handlerMs * 0.9), () => {
          // A handler that does not heed its signal: the worst case.
          const inTime = call.open;
          gate.end(call);
          if (!counts) return;
          if (inTime) waits[priority].push(waitedMs);
          else late++;
        });
      },
    });
  };
  arrive();
  clock.run(endMs);

  const result = (priority: Priority): ClassResult => {
    const sorted = waits[priority].sort((a, b) => a - b);
    return {
      offered: offered[priority],
      served: sorted.length,
      waitP50Ms: quantile(sorted, 0.5),
      waitP99Ms: quantile(sorted, 0.99),
      waitMaxMs: sorted.at(-1) ?? 0,
    };
  };
  const all = Object.values(waits)
    .flat()
    .sort((a, b) => a - b);
  return {
    goodput: all.length / (((endMs - countsMs) / handlerMs) * places),
    wasted: late / begun,
    waitP99Ms: quantile(all, 0.99),
    most: gate.most,
    classes: {
      control: result("control"),
      normal: result("normal"),
    },
    shed: gate.admission.stats().shed,
  };
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}
