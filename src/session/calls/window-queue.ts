import { InFlightWindow, type WindowLimits } from "../../base/flow/in-flight-window.ts";
import { PriorityQueue, type Queued, type QueueLimits } from "../../base/flow/priority-queue.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import type { Session } from "../connection/session.ts";
import { sessionEnded } from "../opening/end-reasons.ts";
import { exhausted } from "./call-errors.ts";

/** The window of a session's outgoing calls, and the users' calls that wait for a place in it. */
export class WindowQueue {
  readonly window: InFlightWindow;
  readonly waiting: WaitingCalls;
  readonly #session: Session;

  constructor(session: Session, limits: WindowLimits) {
    this.#session = session;
    this.window = new InFlightWindow(limits);
    this.waiting = new WaitingCalls({ maxCalls: limits.maxWaiting, maxBytes: limits.maxWaitingBytes });
  }

  /** Lets a request wait for its turn. `inFlight`: the number of users' calls. Throws RpcError when it may not wait. */
  add(request: UnsentRequest, queuedMs: number, inFlight: number): void {
    const { call, input } = request;
    const { counters } = this.#session.services;
    if (call.terms.failsWhenFull) {
      counters.callsNotAdmitted++;
      throw exhausted(`${this.#whyFull(inFlight)}, and whenFull is "fail"`);
    }
    const { priority } = call.terms;
    const waitingBytes = inputBytes(input);
    // A getter of the input may have ended the call, or the session.
    if (call.settled) return;
    if (this.#session.state === "ended") throw sessionEnded(this.#session.peerName);
    const { method, endMs } = request;
    const out = this.waiting.add({ call, method, endMs, queuedMs, input, priority, waitingBytes });
    if (out === undefined) {
      counters.callsNotAdmitted++;
      throw exhausted(`${this.#whyFull(inFlight)}, and ${this.#levels()}`);
    }
    call.phase = "waiting";
    counters.callsWaited++;
    for (const { call: other } of out) {
      counters.callsNotAdmitted++;
      other.onFailure(exhausted(`a control call displaced this one: ${this.#levels()}`));
    }
  }

  #whyFull(inFlight: number): string {
    const { peerName, outbox } = this.#session;
    if (outbox.full)
      return `${outbox.queuedBytes} bytes wait to be sent to ${peerName}, maxQueuedBytes is reached`;
    const { limit, credits } = this.window;
    return `${inFlight} calls are in flight to ${peerName}, its window of ${limit} (of ${credits} granted) is full`;
  }

  #levels(): string {
    const { maxWaiting, maxWaitingBytes } = this.window.limits;
    const { size, bytes } = this.waiting;
    return `${size} calls with ${bytes} bytes wait, maxWaiting is ${maxWaiting}, maxWaitingBytes ${maxWaitingBytes}`;
  }
}

/** A call whose request has not left, with the arguments for sending it. */
export interface UnsentRequest {
  readonly call: OutgoingCall;
  readonly method: number;
  /** The end of the peer's time for the request, on the engine's clock. */
  readonly endMs: number;
  readonly input: unknown;
}

/** A call that waits for a place in the window. */
export interface WaitingCall extends UnsentRequest, Queued {
  /** The start of the wait, on the engine's clock. */
  readonly queuedMs: number;
}

/** The calls of a session that wait for a place in its window. An entry is found by its call in any state. */
export class WaitingCalls {
  readonly #queue: PriorityQueue<WaitingCall>;
  /** A plain field, because each call reads it. Only this class writes it. */
  size = 0;

  constructor(limits: QueueLimits) {
    this.#queue = new PriorityQueue(limits);
  }

  get bytes(): number {
    return this.#queue.bytes;
  }

  /** Adds a waiting call. Returns the calls that lost their place to it. Undefined without room. */
  add(waiting: WaitingCall): WaitingCall[] | undefined {
    const out = this.#queue.push(waiting);
    if (out === undefined) return undefined;
    for (const { call } of out) call.queued = undefined;
    waiting.call.queued = waiting;
    this.size = this.#queue.size;
    return out;
  }

  /**
   * Takes out the next call. It is the oldest of the class whose turn it is, unless that call has waited for half of
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

  /** The caller has given up the call. */
  withdraw(call: OutgoingCall): void {
    if (call.queued !== undefined) this.#takeOut(call.queued as WaitingCall);
  }

  #takeOut(waiting: WaitingCall): void {
    waiting.call.queued = undefined;
    this.#queue.delete(waiting);
    this.size = this.#queue.size;
  }

  takeAll(): WaitingCall[] {
    const all = [...this.#queue];
    for (const waiting of all) this.#takeOut(waiting);
    return all;
  }
}

/** The bytes of a value that is neither a string nor binary, and the further bytes of each entry of a collection. */
const bytesOfValue = 16;
/** The most values that are inspected. The rest of a longer input is extrapolated. */
const maxLooked = 256;

/**
 * The approximate bytes of an input while its call waits: strings and binaries by their length, everything else by a
 * constant. An estimate, for a bound on memory. At most 256 values are inspected, so that a long input costs no more
 * than a short one. Never throws, though it may run getters of the input.
 */
export function inputBytes(input: unknown): number {
  const look = { left: maxLooked };
  try {
    return bytesOf(input, look);
  } catch {
    // Such an input cannot be encoded either.
    return bytesOfValue;
  }
}

function bytesOf(value: unknown, look: { left: number }): number {
  look.left--;
  if (typeof value === "string") return bytesOfValue + value.length;
  if (typeof value !== "object" || value === null) return bytesOfValue;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer || value instanceof SharedArrayBuffer)
    return bytesOfValue + value.byteLength;
  if (Array.isArray(value)) return bytesOfAll(value, value.length, look);
  if (value instanceof Set) return bytesOfAll(value, value.size, look);
  if (value instanceof Map) return bytesOfAll(value.values(), value.size, look);
  return bytesOfFields(value as Record<string, unknown>, look);
}

/** Like `bytesOfAll`, without an iterator: most inputs are plain objects. */
function bytesOfFields(value: Record<string, unknown>, look: { left: number }): number {
  const names = Object.keys(value);
  let bytes = 0;
  let looked = 0;
  while (looked < names.length && look.left > 0) bytes += bytesOf(value[names[looked++] as string], look);
  return estimate(bytes, looked, names.length);
}

function bytesOfAll(values: Iterable<unknown>, count: number, look: { left: number }): number {
  let bytes = 0;
  let looked = 0;
  for (const value of values) {
    if (look.left <= 0) break;
    bytes += bytesOf(value, look);
    looked++;
  }
  return estimate(bytes, looked, count);
}

/** Estimates the bytes of a collection of `count` entries. `looked` of them have `bytes` bytes. */
function estimate(bytes: number, looked: number, count: number): number {
  const like = looked === 0 ? bytesOfValue : bytes / looked;
  return Math.ceil(bytesOfValue + bytes + like * (count - looked));
}
