import { type RpcError, remoteError } from "../base/errors/rpc-error.ts";
import { type Priority, priorities } from "../base/flow/priority.ts";
import { PriorityQueue } from "../base/flow/priority-queue.ts";
import { channels } from "../base/observe/channels.ts";
import type { Clock } from "../base/time/clock.ts";
import { type DeadlineWheel, Timed } from "../base/time/deadline-wheel.ts";
import type { Awaited, IncomingCall } from "../call/incoming-call.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import {
  type AdmissionLimits,
  type AdmissionOptions,
  assertHandlersBounded,
  completeAdmission,
} from "./admission-options.ts";
import { AdmissionQueue, type HandlerTimes, type Waiting } from "./admission-queue.ts";

/** A served method, for admission control. */
export interface Startable {
  /** `service/method`. */
  readonly path: string;
  readonly times: HandlerTimes;
  /** Validates the input and starts the handler. Releases the call's place when the handler has ended. Never throws. */
  start(call: IncomingCall, session: PeerLink, input: unknown): void;
}

/**
 * The time that a handler still counts as running after its call has ended, in milliseconds. Handlers that heed
 * `call.signal` end sooner. Other handlers must not keep their places forever.
 */
const lingerMs = 1000;

/**
 * Admission control: starts a handler for each request, at once while the engine and the service have room, otherwise
 * in turn. It rejects a request that cannot be served in time with `resource_exhausted` and `retryAfterMs`. No handler
 * has started for a rejected request.
 *
 * Each service with limits of its own has an admission queue. All other services share one. So a full service does not
 * delay another service.
 */
export class Admission {
  readonly #clock: Clock;
  readonly #wheel: DeadlineWheel;
  readonly #limits: AdmissionLimits;
  readonly #common: AdmissionQueue<AdmittedRequest>;
  readonly #queues: AdmissionQueue<AdmittedRequest>[] = [];
  /** All waiting requests, of every queue. */
  readonly #waiting: PriorityQueue<AdmittedRequest>;
  /** Requests with an ended call and a running handler. */
  readonly #lingering = new Set<AdmittedRequest>();
  readonly #shed: Record<ShedCause, number> = { full: 0, pushed_out: 0, age: 0, deadline: 0 };
  readonly #toFill = new Set<AdmissionQueue<AdmittedRequest>>();
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
    this.#common = new AdmissionQueue(undefined, { ...limits, maxConcurrent: Number.POSITIVE_INFINITY });
    this.#queues.push(this.#common);
  }

  /** The admission queue of a service; undefined when it has no limits. `options` false: no admission control. */
  queueOf(
    service: string,
    options: AdmissionOptions | false | undefined,
  ): AdmissionQueue<AdmittedRequest> | undefined {
    if (options === false) return undefined;
    const bounded = this.#limits.maxConcurrent < Number.POSITIVE_INFINITY;
    if (options === undefined) return bounded ? this.#common : undefined;
    const limits = completeAdmission(options, { ...this.#limits, maxConcurrent: Number.POSITIVE_INFINITY });
    if (!bounded && limits.maxConcurrent === Number.POSITIVE_INFINITY) {
      assertHandlersBounded(`service "${service}"`, options);
      return undefined;
    }
    const queue = new AdmissionQueue<AdmittedRequest>(service, limits);
    this.#queues.push(queue);
    return queue;
  }

  /** Starts the handler for a call now or later, or rejects the call. */
  enter(
    queue: AdmissionQueue<AdmittedRequest>,
    method: Startable,
    call: IncomingCall,
    session: PeerLink,
    input: unknown,
  ): void {
    // The input is complete now. The call's own times give this moment, so the clock need not be read.
    const nowMs = call.startedMs + call.pullingUs / 1000;
    const request = new AdmittedRequest(this, queue, method, call, session, input, nowMs);
    if (this.#closed) return this.#endUnavailable(request);
    if (this.#hasRoom && queue.hasRoom && queue.waiting.size === 0) return this.#begin(request, nowMs);
    const out = this.#queue(request);
    if (out === undefined) return this.#reject(request, "full", this.#explainFull(queue));
    call.queue(request);
    if (request.priority !== "control") this.#wheel.arm(request, nowMs + queue.limits.maxQueueMs);
    for (const each of out) this.#reject(each, "pushed_out", "a control request took its place in the queue");
    if (this.#hasRoom && queue.hasRoom) this.#fill(queue);
  }

  /** The call ended while the request waited. */
  onGone(request: AdmittedRequest): void {
    this.#remove(request);
    request.state = "gone";
  }

  /** The request has waited for `maxQueueMs`. */
  onTooOld(request: AdmittedRequest): void {
    this.#remove(request);
    this.#reject(request, "age", `maxQueueMs is ${request.queue.limits.maxQueueMs}`);
  }

  /** The call has ended, but its handler still runs. */
  onLingering(request: AdmittedRequest): void {
    if (this.#closed) return;
    this.#lingering.add(request);
    this.#wheel.arm(request, this.#clock.now() + lingerMs);
  }

  /** The handler still runs a second after its call has ended. */
  onOverdue(request: AdmittedRequest): void {
    this.#overdue++;
    this.#vacate(request);
  }

  /** The handler has ended. */
  onEnded(request: AdmittedRequest): void {
    const nowMs = this.#clock.now();
    const tookMs = nowMs - request.begunMs;
    // A request with invalid input gives no handler time, and the length of a stream is arbitrary.
    if (request.call.handler === "here" && request.call.items === undefined) {
      request.method.times.record(tookMs, nowMs);
      request.queue.times.record(tookMs, nowMs);
    }
    this.#vacate(request);
  }

  /**
   * Ends the waiting requests: they were not executed, and their callers are notified. Running handlers no longer
   * count.
   */
  close(): void {
    this.#closed = true;
    const waiting = [...this.#waiting];
    for (const request of waiting) this.#remove(request);
    for (const request of waiting) this.#endUnavailable(request);
    for (const request of this.#lingering) this.#wheel.disarm(request);
    this.#lingering.clear();
    this.#running = 0;
  }

  stats(): AdmissionStats {
    let oldestMs = Number.POSITIVE_INFINITY;
    for (const priority of priorities)
      oldestMs = Math.min(oldestMs, this.#waiting.oldest(priority)?.queuedMs ?? oldestMs);
    return {
      running: this.#running,
      queued: this.#waiting.size,
      queuedBytes: this.#waiting.bytes,
      longestWaitMs: oldestMs === Number.POSITIVE_INFINITY ? 0 : this.#clock.now() - oldestMs,
      shed: { ...this.#shed },
      overdue: this.#overdue,
    };
  }

  get #hasRoom(): boolean {
    return this.#running < this.#limits.maxConcurrent;
  }

  /** Puts a request into its queue. Returns the requests that lost their place to it, or undefined without room. */
  #queue(request: AdmittedRequest): AdmittedRequest[] | undefined {
    // Checked before any request is pushed out.
    if (this.#waiting.roomFor(request) === undefined) return undefined;
    const out = request.queue.push(request);
    if (out === undefined) return undefined;
    for (const each of out) this.#remove(each);
    const alsoOut = this.#waiting.push(request);
    if (alsoOut === undefined) request.queue.waiting.delete(request);
    else for (const each of alsoOut) this.#remove(each);
    return alsoOut === undefined || out.length === 0 ? alsoOut : [...out, ...alsoOut];
  }

  #begin(request: AdmittedRequest, nowMs: number): void {
    const { call, queue, method, session, input } = request;
    request.state = "running";
    // A handler may run for long and no longer needs this reference.
    request.input = undefined;
    request.begunMs = nowMs;
    this.#running++;
    queue.running++;
    call.dequeue(Math.ceil((nowMs - request.queuedMs) * 1000), request);
    method.start(call, session, input);
  }

  #vacate(request: AdmittedRequest): void {
    request.state = "gone";
    if (this.#closed) return;
    if (this.#lingering.delete(request)) this.#wheel.disarm(request);
    this.#running--;
    request.queue.running--;
    if (this.#waiting.size > 0) this.#fill(request.queue);
  }

  /**
   * Starts the requests that are next in turn. A handler that ends at once returns its place to the loop that started
   * it, not to a nested one.
   */
  #fill(queue: AdmissionQueue<AdmittedRequest>): void {
    this.#toFill.add(queue);
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

  /** Starts or rejects one waiting request. False when no request may run. */
  #fillOne(queue: AdmissionQueue<AdmittedRequest>): boolean {
    const nowMs = this.#clock.now();
    const next = this.#next(queue, nowMs);
    // A rejection may end a session, and with it the next request.
    if (next === undefined || next.state !== "waiting") return next !== undefined;
    const leftMs = next.call.deadlineMs - nowMs;
    const leastMs = next.method.times.leastMs(nowMs);
    if (leftMs >= leastMs) this.#begin(next, nowMs);
    else
      this.#reject(
        next,
        "deadline",
        `its deadline is in ${ms(leftMs)}, and the fastest recent handler took ${ms(leastMs)}`,
      );
    return true;
  }

  /** Takes the next request: of all queues with room when the engine has a limit, else of this queue. */
  #next(queue: AdmissionQueue<AdmittedRequest>, nowMs: number): AdmittedRequest | undefined {
    const chosen = this.#limits.maxConcurrent < Number.POSITIVE_INFINITY ? this.#nextOfAll() : nextOf(queue);
    if (chosen === undefined) return undefined;
    const { next, stale } = chosen.queue.take(chosen.priority, nowMs);
    this.#remove(next);
    for (const each of stale) this.#remove(each);
    for (const each of stale)
      this.#reject(
        each,
        "age",
        `the queue does not drain, and targetQueueMs is ${chosen.queue.limits.targetQueueMs}`,
      );
    return next;
  }

  #nextOfAll(): { readonly queue: AdmissionQueue<AdmittedRequest>; readonly priority: Priority } | undefined {
    for (const priority of priorities) {
      if (this.#waiting.sizeOf(priority) === 0) continue;
      const at = this.#queues.findIndex((each) => each.hasRoom && each.waiting.sizeOf(priority) > 0);
      if (at < 0) continue;
      // The queues take turns: the chosen one comes last next time.
      const [queue] = this.#queues.splice(at, 1) as [AdmissionQueue<AdmittedRequest>];
      this.#queues.push(queue);
      return { queue, priority };
    }
    return undefined;
  }

  #remove(request: AdmittedRequest): void {
    this.#wheel.disarm(request);
    request.queue.waiting.delete(request);
    this.#waiting.delete(request);
  }

  /** Rejects a request that may not wait, or may not wait longer. */
  #reject(request: AdmittedRequest, cause: ShedCause, why: string): void {
    if (request.state === "gone") return;
    request.state = "gone";
    this.#shed[cause]++;
    const { call, queue, method, priority, session } = request;
    const waitedMs = this.#clock.now() - request.queuedMs;
    call.queuedUs = Math.ceil(waitedMs * 1000);
    if (channels.shed.hasSubscribers)
      channels.shed.publish({ method: method.path, peer: session.peerName, priority, cause, waitedMs });
    call.settle({
      error: remoteError(
        "resource_exhausted",
        cause === "full" ? why : `rejected after ${ms(waitedMs)} in the admission queue: ${why}`,
        {
          retryAfterMs: Math.max(
            queue.retryAfterMs(queue.waiting.size, queue.limits.maxConcurrent),
            queue.retryAfterMs(this.#waiting.size, this.#limits.maxConcurrent),
          ),
        },
      ),
    });
  }

  #explainFull(queue: AdmissionQueue<AdmittedRequest>): string {
    const [who, limits, waiting] = queue.hasRoom
      ? ["the server", this.#limits, this.#waiting]
      : [`"${queue.service}"`, queue.limits, queue.waiting];
    const { maxConcurrent, maxQueued, maxQueuedBytes } = limits;
    return (
      `rejected: ${who} runs ${maxConcurrent} handlers (maxConcurrent), and ${waiting.size} requests of ${waiting.bytes} bytes wait ` +
      `(maxQueued is ${maxQueued}, maxQueuedBytes ${maxQueuedBytes})`
    );
  }

  #endUnavailable({ call }: AdmittedRequest): void {
    call.settle({
      error: remoteError(
        "unavailable",
        "the server closed before the handler started; the request was not executed",
      ),
    });
  }
}

/**
 * A request under admission control.
 *
 *   waiting   in its admission queue
 *   running   its handler runs, and counts
 *   gone      neither
 */
export class AdmittedRequest extends Timed implements Waiting, Awaited {
  readonly call: IncomingCall;
  readonly session: PeerLink;
  /** Undefined once the handler has begun. */
  input: unknown;
  readonly method: Startable;
  readonly queue: AdmissionQueue<AdmittedRequest>;
  /** The arrival time, on the engine's clock. */
  readonly queuedMs: number;
  begunMs = 0;
  state: "waiting" | "running" | "gone" = "waiting";
  readonly #admission: Admission;

  constructor(
    admission: Admission,
    queue: AdmissionQueue<AdmittedRequest>,
    method: Startable,
    call: IncomingCall,
    session: PeerLink,
    input: unknown,
    nowMs: number,
  ) {
    super();
    this.#admission = admission;
    this.queue = queue;
    this.method = method;
    this.call = call;
    this.session = session;
    this.input = input;
    this.queuedMs = nowMs;
  }

  get priority(): Priority {
    return this.call.priority;
  }

  get waitingBytes(): number {
    return this.call.bodyBytes;
  }

  get queued(): boolean {
    return this.state === "waiting";
  }

  onAborted(_call: IncomingCall, _error: RpcError): void {
    this.#onCallEnded();
  }

  onAbandoned(): void {
    this.#onCallEnded();
  }

  leave(): void {
    if (this.state === "running") this.#admission.onEnded(this);
  }

  override onDeadline(): void {
    if (this.state === "waiting") this.#admission.onTooOld(this);
    else if (this.state === "running") this.#admission.onOverdue(this);
  }

  #onCallEnded(): void {
    if (this.state === "waiting") this.#admission.onGone(this);
    else if (this.state === "running") this.#admission.onLingering(this);
  }
}

function nextOf(queue: AdmissionQueue<AdmittedRequest>) {
  const priority = queue.hasRoom ? queue.waiting.turn : undefined;
  return priority === undefined ? undefined : { queue, priority };
}

function ms(value: number): string {
  return `${Math.round(value * 10) / 10} ms`;
}

/**
 * Why admission control rejected a request before its handler started.
 *
 * - `full`: the queue was full.
 * - `pushed_out`: a request of priority `control` took its place in the queue.
 * - `age`: it had waited too long.
 * - `deadline`: no handler would have ended before its deadline.
 */
export type ShedCause = "full" | "pushed_out" | "age" | "deadline";

/** The present state of admission control. All zero without limits. */
export interface AdmissionStats {
  /** The number of running handlers. */
  readonly running: number;
  /** The number of waiting requests, and the encoded bytes of their inputs. */
  readonly queued: number;
  readonly queuedBytes: number;
  /** The longest wait of a request in the queue now, in milliseconds. */
  readonly longestWaitMs: number;
  /** Requests rejected since the engine opened, by cause. */
  readonly shed: Readonly<Record<ShedCause, number>>;
  /**
   * The number of handlers that still ran a second after their call had ended. Their places were given to others, and
   * they may still run.
   */
  readonly overdue: number;
}
