import { Timed } from "../call/deadline-wheel.ts";
import type { Awaited, IncomingCall, Place } from "../call/incoming-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import type { Priority } from "../flow/priority.ts";
import type { Session } from "../session/session.ts";
import type { HandlerTimes } from "./handler-times.ts";
import type { Lane, Waiting } from "./lane.ts";

/** What is begun when its turn has come. */
export interface Startable {
  /** `service/method`. */
  readonly path: string;
  /** How long its handlers took lately. */
  readonly times: HandlerTimes;
  /** Checks the input and begins the handler; the call's place is left when that has ended. Never throws. */
  start(call: IncomingCall, session: Session, input: unknown): void;
}

/** Who is told what becomes of an entrant. */
export interface EntrantOwner {
  /** It waited, and its call has ended. */
  onGone(entrant: Entrant): void;
  /** It has waited as long as it may. */
  onTooOld(entrant: Entrant): void;
  /** It ran, and its call has ended, but its handler has not. */
  onLingering(entrant: Entrant): void;
  /** Its handler has not ended for long after its call. */
  onOverdue(entrant: Entrant): void;
  /** Its handler has ended. */
  onEnded(entrant: Entrant): void;
}

/**
 * One request at the gate.
 *
 *   waiting   for its turn: it is in its lane's queue
 *   running   it has a place
 *   gone      it has neither
 */
export class Entrant extends Timed implements Waiting, Awaited, Place {
  readonly call: IncomingCall;
  readonly session: Session;
  readonly input: unknown;
  readonly method: Startable;
  readonly lane: Lane<Entrant>;
  readonly priority: Priority;
  readonly waitingBytes: number;
  /** When it came. */
  readonly queuedMs: number;
  begunMs = 0;
  state: "waiting" | "running" | "gone" = "waiting";
  readonly #owner: EntrantOwner;

  constructor(
    owner: EntrantOwner,
    lane: Lane<Entrant>,
    method: Startable,
    call: IncomingCall,
    session: Session,
    input: unknown,
    nowMs: number,
  ) {
    super();
    this.#owner = owner;
    this.lane = lane;
    this.method = method;
    this.call = call;
    this.session = session;
    this.input = input;
    this.priority = call.priority;
    this.waitingBytes = call.bodyBytes;
    this.queuedMs = nowMs;
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
    if (this.state === "running") this.#owner.onEnded(this);
  }

  override onDeadline(): void {
    if (this.state === "waiting") this.#owner.onTooOld(this);
    else if (this.state === "running") this.#owner.onOverdue(this);
  }

  #onCallEnded(): void {
    if (this.state === "waiting") this.#owner.onGone(this);
    else if (this.state === "running") this.#owner.onLingering(this);
  }
}
