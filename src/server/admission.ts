import type { Clock } from "../call/clock.ts";
import type { DeadlineWheel } from "../call/deadline-wheel.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { outside } from "../fabric/outside.ts";
import { type Priority, priorities } from "../flow/priority.ts";
import { PriorityQueue } from "../flow/priority-queue.ts";
import { Turns } from "../flow/turns.ts";
import { channels } from "../observe/channels.ts";
import type { Session } from "../session/session.ts";
import { type AdmissionLimits, type AdmissionOptions, resolveAdmission } from "./admission-options.ts";
import type { AdmissionStats, QueuedClass, ShedCause } from "./admission-stats.ts";
import { Entrant, type EntrantOwner, type Startable } from "./entrant.ts";
import { Lane } from "./lane.ts";

/** How long a handler keeps its place after its call has ended. Who heeds its signal needs less; who does not must not keep it for ever. */
const lingerMs = 1000;

/**
 * Which requests' handlers run, of those that have been taken in: at once while there is a place for them, in all and in their service, else in turn.
 * What cannot wait is refused with `resource_exhausted` and when to try again, and nothing was executed then.
 *
 * Each service with limits has a lane, the others share one; a request waits in its lane alone, so that a service that is full holds up no other.
 */
export class Admission implements EntrantOwner {
  readonly #clock: Clock;
  readonly #wheel: DeadlineWheel;
  readonly #limits: AdmissionLimits;
  readonly #common: Lane<Entrant>;
  readonly #lanes: Lane<Entrant>[] = [];
  /** All that wait, in whichever lane. */
  readonly #waiting: PriorityQueue<Entrant>;
  readonly #turns = new Turns();
  /** Whose calls have ended and whose handlers have not. */
  readonly #lingering = new Set<Entrant>();
  readonly #shed: Record<ShedCause, number> = { full: 0, pushed_out: 0, age: 0, deadline: 0 };
  readonly #toFill = new Set<Lane<Entrant>>();
  #running = 0;
  #overdue = 0;
  #filling = false;
  #closed = false;

  constructor(clock: Clock, wheel: DeadlineWheel, limits: AdmissionLimits) {
    this.#clock = clock;
    this.#wheel = wheel;
    this.#limits = limits;
    const { maxQueued, maxQueuedBytes, maxConcurrent } = limits;
    const bounded = maxConcurrent < Number.POSITIVE_INFINITY;
    this.#waiting = new PriorityQueue({
      maxCalls: bounded ? maxQueued : Number.POSITIVE_INFINITY,
      maxBytes: bounded ? maxQueuedBytes : Number.POSITIVE_INFINITY,
    });
    this.#common = new Lane(undefined, { ...limits, maxConcurrent: Number.POSITIVE_INFINITY });
    this.#lanes.push(this.#common);
  }

  /** Where a service's requests wait; undefined when nothing bounds them. */
  laneOf(service: string, options: AdmissionOptions | undefined): Lane<Entrant> | undefined {
    const bounded = this.#limits.maxConcurrent < Number.POSITIVE_INFINITY;
    if (options === undefined) return bounded ? this.#common : undefined;
    const limits = resolveAdmission(`implement "${service}"`, options, {
      ...this.#limits,
      maxConcurrent: Number.POSITIVE_INFINITY,
    });
    if (!bounded && limits.maxConcurrent === Number.POSITIVE_INFINITY) return undefined;
    const lane = new Lane<Entrant>(service, limits);
    this.#lanes.push(lane);
    return lane;
  }

  /** Starts `method` for a call, now or when its turn has come; or refuses the call. */
  enter(lane: Lane<Entrant>, method: Startable, call: IncomingCall, session: Session, input: unknown): void {
    // When its input was complete, which is now, without asking the clock.
    const nowMs = call.startedMs + call.pullingUs / 1000;
    const entrant = new Entrant(this, lane, method, call, session, input, nowMs);
    if (this.#closed) return this.#endUnavailable(entrant);
    if (this.#hasRoom && lane.hasRoom && lane.queue.size === 0) return this.#begin(entrant, nowMs);
    const out = this.#queue(entrant);
    if (out === undefined) return this.#refuse(entrant, "full", this.#whyFull(lane));
    call.queue(entrant);
    if (entrant.priority !== "control") this.#wheel.arm(entrant, nowMs + lane.limits.maxQueueMs);
    for (const each of out)
      this.#refuse(each, "pushed_out", "its room was needed for one that is more urgent");
    if (this.#hasRoom && lane.hasRoom) this.#fill(lane);
  }

  onGone(entrant: Entrant): void {
    this.#remove(entrant);
    entrant.state = "gone";
  }

  onTooOld(entrant: Entrant): void {
    this.#remove(entrant);
    this.#refuse(entrant, "age", `maxQueueMs is ${entrant.lane.limits.maxQueueMs}`);
  }

  onLingering(entrant: Entrant): void {
    if (this.#closed) return;
    this.#lingering.add(entrant);
    this.#wheel.arm(entrant, this.#clock.now() + lingerMs);
  }

  onOverdue(entrant: Entrant): void {
    this.#overdue++;
    this.#vacate(entrant);
  }

  onEnded(entrant: Entrant): void {
    const nowMs = this.#clock.now();
    const tookMs = nowMs - entrant.begunMs;
    // One whose input did not do says nothing of how long handlers take.
    if (entrant.call.handler === "here") {
      entrant.method.times.record(tookMs, nowMs);
      entrant.lane.times.record(tookMs, nowMs);
    }
    this.#vacate(entrant);
  }

  /** Ends what waits: it was not executed, and its callers are told so. What runs keeps no place. */
  close(): void {
    this.#closed = true;
    const waiting = [...this.#waiting];
    for (const entrant of waiting) this.#remove(entrant);
    for (const entrant of waiting) this.#endUnavailable(entrant);
    for (const entrant of this.#lingering) this.#wheel.disarm(entrant);
    this.#lingering.clear();
    this.#running = 0;
  }

  stats(): AdmissionStats {
    const byPriority: Record<string, QueuedClass> = {};
    let oldestMs = Number.POSITIVE_INFINITY;
    for (const priority of priorities)
      byPriority[priority] = {
        calls: this.#waiting.sizeOf(priority),
        bytes: this.#waiting.bytesOf(priority),
      };
    for (const priority of priorities)
      oldestMs = Math.min(oldestMs, this.#waiting.oldest(priority)?.queuedMs ?? oldestMs);
    return {
      running: this.#running,
      queued: this.#waiting.size,
      queuedBytes: this.#waiting.bytes,
      queuedByPriority: byPriority as Record<Priority, QueuedClass>,
      longestWaitMs: oldestMs === Number.POSITIVE_INFINITY ? 0 : this.#clock.now() - oldestMs,
      shed: { ...this.#shed },
      overdue: this.#overdue,
    };
  }

  get #hasRoom(): boolean {
    return this.#running < this.#limits.maxConcurrent;
  }

  /** Lets it wait in its lane and in all; gives who had to go for it, or undefined when there was no room. */
  #queue(entrant: Entrant): Entrant[] | undefined {
    // Before anybody is put out for it.
    if (this.#waiting.roomFor(entrant) === undefined) return undefined;
    const out = entrant.lane.push(entrant);
    if (out === undefined) return undefined;
    for (const each of out) this.#remove(each);
    const alsoOut = this.#waiting.push(entrant);
    if (alsoOut === undefined) entrant.lane.queue.delete(entrant);
    else for (const each of alsoOut) this.#remove(each);
    return alsoOut === undefined || out.length === 0 ? alsoOut : [...out, ...alsoOut];
  }

  #begin(entrant: Entrant, nowMs: number): void {
    const { call, lane, method, session, input } = entrant;
    entrant.state = "running";
    entrant.begunMs = nowMs;
    this.#running++;
    lane.running++;
    call.dequeue(Math.ceil((nowMs - entrant.queuedMs) * 1000), entrant);
    method.start(call, session, input);
  }

  /** One that has waited begins when another's handler ends, and not as a part of that. */
  readonly #beginNext = (entrant: Entrant, nowMs: number): void => this.#begin(entrant, nowMs);

  /** Its place is free. */
  #vacate(entrant: Entrant): void {
    entrant.state = "gone";
    if (this.#closed) return;
    if (this.#lingering.delete(entrant)) this.#wheel.disarm(entrant);
    this.#running--;
    entrant.lane.running--;
    if (this.#waiting.size > 0) this.#fill(entrant.lane);
  }

  /** Begins those whose turn has come. A handler that ends at once leaves its place to the loop that began it, not to a deeper one. */
  #fill(lane: Lane<Entrant>): void {
    this.#toFill.add(lane);
    if (this.#filling) return;
    this.#filling = true;
    try {
      for (const each of this.#toFill) {
        this.#toFill.delete(each);
        while (this.#hasRoom && !this.#closed && this.#fillOne(each));
      }
    } finally {
      this.#filling = false;
    }
  }

  /** False when none waits that may run. */
  #fillOne(lane: Lane<Entrant>): boolean {
    const nowMs = this.#clock.now();
    const next = this.#next(lane, nowMs);
    // A refusal may end a session, and with it the one that was next.
    if (next === undefined || next.state !== "waiting") return next !== undefined;
    const leftMs = next.call.deadlineMs - nowMs;
    const leastMs = next.method.times.leastMs(nowMs);
    if (leftMs >= leastMs) outside(this.#beginNext, next, nowMs);
    else
      this.#refuse(
        next,
        "deadline",
        `it has ${ms(leftMs)} left, and no handler took less than ${ms(leastMs)} lately`,
      );
    return true;
  }

  /** Who is next, of all lanes with room where all share the engine's places, else of that lane. It waits no more. */
  #next(lane: Lane<Entrant>, nowMs: number): Entrant | undefined {
    const chosen = this.#limits.maxConcurrent < Number.POSITIVE_INFINITY ? this.#nextOfAll() : nextOf(lane);
    if (chosen === undefined) return undefined;
    const { next, stale } = chosen.lane.take(chosen.priority, nowMs);
    this.#remove(next);
    for (const each of stale) this.#remove(each);
    for (const each of stale)
      this.#refuse(
        each,
        "age",
        `requests stand in line, and targetQueueMs is ${chosen.lane.limits.targetQueueMs}`,
      );
    return next;
  }

  #nextOfAll(): { readonly lane: Lane<Entrant>; readonly priority: Priority } | undefined {
    const laneFor = (priority: Priority) =>
      this.#lanes.findIndex((lane) => lane.hasRoom && lane.queue.sizeOf(priority) > 0);
    const priority = this.#turns.next((each) => this.#waiting.sizeOf(each) > 0 && laneFor(each) >= 0);
    if (priority === undefined) return undefined;
    // The lanes take turns: who was chosen is asked last next time.
    const [lane] = this.#lanes.splice(laneFor(priority), 1) as [Lane<Entrant>];
    this.#lanes.push(lane);
    return { lane, priority };
  }

  #remove(entrant: Entrant): void {
    this.#wheel.disarm(entrant);
    entrant.lane.queue.delete(entrant);
    this.#waiting.delete(entrant);
  }

  /** It must not wait any more, or never could. */
  #refuse(entrant: Entrant, cause: ShedCause, why: string): void {
    if (entrant.state === "gone") return;
    entrant.state = "gone";
    this.#shed[cause]++;
    const { call, lane, method, priority, session } = entrant;
    const waitedMs = this.#clock.now() - entrant.queuedMs;
    call.queuedUs = Math.ceil(waitedMs * 1000);
    if (channels.shed.hasSubscribers)
      channels.shed.publish({ method: method.path, peer: session.peerName, priority, cause, waitedMs });
    call.settle({
      error: new RpcError({
        code: "resource_exhausted",
        message: cause === "full" ? why : `after ${ms(waitedMs)} in line: ${why}`,
        origin: "remote",
        retryAfterMs: Math.max(
          lane.retryAfterMs(lane.queue.size, lane.limits.maxConcurrent),
          lane.retryAfterMs(this.#waiting.size, this.#limits.maxConcurrent),
        ),
      }),
    });
  }

  #whyFull(lane: Lane<Entrant>): string {
    const [who, limits, queue] = lane.hasRoom
      ? ["the server", this.#limits, this.#waiting]
      : [`"${lane.service}"`, lane.limits, lane.queue];
    const { maxConcurrent, maxQueued, maxQueuedBytes } = limits;
    return (
      `${who} runs ${maxConcurrent} handlers, its maxConcurrent, and ${queue.size} requests of ${queue.bytes} bytes wait ` +
      `(maxQueued is ${maxQueued}, maxQueuedBytes ${maxQueuedBytes})`
    );
  }

  #endUnavailable({ call }: Entrant): void {
    call.settle({
      error: new RpcError({
        code: "unavailable",
        message: "the server was closed before the request's turn came; it was not executed",
        origin: "remote",
      }),
    });
  }
}

function nextOf(lane: Lane<Entrant>) {
  const priority = lane.hasRoom ? lane.queue.takeTurn() : undefined;
  return priority === undefined ? undefined : { lane, priority };
}

function ms(value: number): string {
  return `${Math.round(value * 10) / 10} ms`;
}
