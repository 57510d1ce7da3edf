import type { RpcError } from "../base/errors/rpc-error.ts";
import type { Priority } from "../base/flow/priority.ts";
import { Timed } from "../base/time/deadline-wheel.ts";
import type { Awaited, IncomingCall, Place } from "../call/incoming-call.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import type { AdmissionQueue, HandlerTimes, Waiting } from "./admission-queue.ts";

/** A served method, for admission control. */
export interface Startable {
  /** `service/method`. */
  readonly path: string;
  /** The recent times of its handlers. */
  readonly times: HandlerTimes;
  /** Validates the input and starts the handler. Releases the call's place when the handler has ended. Never throws. */
  start(call: IncomingCall, session: PeerLink, input: unknown): void;
}

/** Is notified of the states of an admitted request. */
export interface AdmittedRequestListener {
  /** The call ended while the request waited. */
  onGone(request: AdmittedRequest): void;
  /** The request has waited for `maxQueueMs`. */
  onTooOld(request: AdmittedRequest): void;
  /** The call has ended, but its handler still runs. */
  onLingering(request: AdmittedRequest): void;
  /** The handler still runs a second after its call has ended. */
  onOverdue(request: AdmittedRequest): void;
  /** The handler has ended. */
  onEnded(request: AdmittedRequest): void;
}

/**
 * A request under admission control.
 *
 *   waiting   in its admission queue
 *   running   its handler runs, and counts
 *   gone      neither
 */
export class AdmittedRequest extends Timed implements Waiting, Awaited, Place {
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
  readonly #listener: AdmittedRequestListener;

  constructor(
    listener: AdmittedRequestListener,
    queue: AdmissionQueue<AdmittedRequest>,
    method: Startable,
    call: IncomingCall,
    session: PeerLink,
    input: unknown,
    nowMs: number,
  ) {
    super();
    this.#listener = listener;
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
    if (this.state === "running") this.#listener.onEnded(this);
  }

  override onDeadline(): void {
    if (this.state === "waiting") this.#listener.onTooOld(this);
    else if (this.state === "running") this.#listener.onOverdue(this);
  }

  #onCallEnded(): void {
    if (this.state === "waiting") this.#listener.onGone(this);
    else if (this.state === "running") this.#listener.onLingering(this);
  }
}
