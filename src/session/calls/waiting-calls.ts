import { PriorityQueue, type Queued, type QueueLimits } from "../../base/flow/priority-queue.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import { exhausted } from "./call-errors.ts";

/** A call that waits for its turn, and what it takes to send it. */
export interface WaitingCall extends Queued {
  readonly call: OutgoingCall;
  readonly method: number;
  /** Until when the peer may take over it, and since when it waits, on the engine's clock. */
  readonly endMs: number;
  readonly queuedMs: number;
  readonly input: unknown;
}

/** The calls of a session that wait for a place in its window. Whatever happens to one, it is found by its call. */
export class WaitingCalls {
  readonly #queue: PriorityQueue<WaitingCall>;

  constructor(limits: QueueLimits) {
    this.#queue = new PriorityQueue(limits);
  }

  get size(): number {
    return this.#queue.size;
  }

  get bytes(): number {
    return this.#queue.bytes;
  }

  /** Those that had to go for it; undefined when there was no room even so. */
  add(waiting: WaitingCall): WaitingCall[] | undefined {
    const out = this.#queue.push(waiting);
    if (out === undefined) return undefined;
    for (const { call } of out) call.queued = undefined;
    waiting.call.queued = waiting;
    return out;
  }

  /**
   * The next in turn, which waits no more: of the class whose turn it is the oldest, unless that has waited for half of
   * its time. Then more calls come than can be served, and the oldest would be answered too late. The newest has the
   * best chance of an answer in time (adaptive LIFO: B. Maurer, "Fail at Scale", ACM Queue 2015).
   */
  next(nowMs: number): WaitingCall | undefined {
    const priority = this.#queue.turn;
    if (priority === undefined) return undefined;
    const oldest = this.#queue.oldest(priority) as WaitingCall;
    const isLate = nowMs - oldest.queuedMs > oldest.endMs - nowMs;
    const next = isLate ? (this.#queue.newest(priority) as WaitingCall) : oldest;
    this.#takeOut(next);
    return next;
  }

  /** Its caller has given it up. */
  withdraw(call: OutgoingCall): void {
    if (call.queued !== undefined) this.#takeOut(call.queued as WaitingCall);
  }

  #takeOut(waiting: WaitingCall): void {
    waiting.call.queued = undefined;
    this.#queue.delete(waiting);
  }

  /** All of them, which wait no more. */
  takeAll(): WaitingCall[] {
    const all = [...this.#queue];
    for (const waiting of all) this.#takeOut(waiting);
    return all;
  }
}

/** Each is some user's operation, and users can be faster than the peer. */
const maxWaitingRequests = 65_536;

/** A control request, and what it takes to send it. */
export interface WaitingControlRequest {
  readonly call: OutgoingCall;
  readonly method: number;
  readonly endMs: number;
  readonly input: unknown;
}

/** Control requests for which there was no slot, in the order they came. */
export class WaitingControlRequests {
  readonly #requests: WaitingControlRequest[] = [];
  readonly #peerName: string;

  constructor(peerName: string) {
    this.#peerName = peerName;
  }

  get size(): number {
    return this.#requests.length;
  }

  /** @throws RpcError `resource_exhausted` when too many wait. */
  add(request: WaitingControlRequest): void {
    if (this.#requests.length >= maxWaitingRequests)
      throw exhausted(`${maxWaitingRequests} control requests to ${this.#peerName} wait for a slot`);
    this.#requests.push(request);
  }

  /** The first that is still wanted. */
  next(): WaitingControlRequest | undefined {
    for (;;) {
      const request = this.#requests.shift();
      if (request === undefined || !request.call.settled) return request;
    }
  }

  takeAll(): WaitingControlRequest[] {
    return this.#requests.splice(0);
  }
}
