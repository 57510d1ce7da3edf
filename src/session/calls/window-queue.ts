import { InFlightWindow, type WindowLimits } from "../../base/flow/in-flight-window.ts";
import type { SessionContext } from "../connection/context.ts";
import { sessionEnded } from "../opening/end-reasons.ts";
import { exhausted } from "./call-errors.ts";
import { inputBytes } from "./input-bytes.ts";
import { WaitingCalls, type WaitingControlRequest } from "./waiting-calls.ts";

/** The window of a session's outgoing calls, and the users' calls that wait for a place in it. */
export class WindowQueue {
  readonly window: InFlightWindow;
  readonly waiting: WaitingCalls;
  readonly #session: SessionContext;
  /** Calls may find a place again. */
  readonly #send: () => void;
  /** When the message that is being taken apart arrived; -1 as long as nobody has asked. */
  #messageMs = -1;

  constructor(session: SessionContext, limits: WindowLimits, send: () => void) {
    this.#session = session;
    this.#send = send;
    this.window = new InFlightWindow(limits);
    this.waiting = new WaitingCalls({ maxCalls: limits.maxWaiting, maxBytes: limits.maxWaitingBytes });
  }

  /** Lets a request wait for its turn. `inFlight`: users' calls. Throws RpcError when it may not. */
  add(request: WaitingControlRequest, queuedMs: number, inFlight: number): void {
    const { call, input } = request;
    const { counters } = this.#session.services;
    if (call.failsWhenFull) {
      counters.callsNotAdmitted++;
      throw exhausted(`${this.#whyFull(inFlight)}, and whenFull is "fail"`);
    }
    const { priority } = call;
    const waitingBytes = inputBytes(input);
    // A getter of the input's may have ended the call, or the session.
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

  /** The peer takes `credits` requests from now on, and never more than `most`. */
  onCredits(credits: number, most: number): void {
    if (credits === 0 || credits > most)
      return this.#session.fault(`${credits} credits are not between 1 and the ${most} it takes at most`);
    this.window.credits = credits;
    this.#send();
  }

  /** A message begins to be taken apart. */
  beginMessage(): void {
    this.#messageMs = -1;
  }

  /** When the message arrived that is being taken apart, or now. The clock is read once for all answers of a message. */
  get answeredMs(): number {
    const { receiving, services } = this.#session;
    if (!receiving) return services.clock.now();
    if (this.#messageMs < 0) this.#messageMs = services.clock.now();
    return this.#messageMs;
  }
}
