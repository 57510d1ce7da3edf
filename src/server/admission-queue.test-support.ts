import type { Priority } from "../base/flow/priority.ts";
import type { Clock } from "../base/time/clock.ts";
import { DeadlineWheel } from "../base/time/deadline-wheel.ts";
import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { Admission, type AdmittedRequest, type Startable } from "./admission.ts";
import { type AdmissionOptions, completeAdmission } from "./admission-options.ts";
import type { AdmissionQueue } from "./admission-queue.ts";
import { HandlerTimes } from "./admission-queue.ts";

/** One request at the gate, and what became of it. */
export interface Asked {
  readonly call: IncomingCall;
  readonly outcome: Outcome | undefined;
  readonly began: boolean;
  /** Its handler ends. */
  end(): void;
}

export interface Asking {
  readonly priority?: Priority;
  readonly bytes?: number;
  readonly timeMs?: number;
  readonly queue?: AdmissionQueue<AdmittedRequest>;
  readonly method?: Startable;
  /** Called when its handler begins. */
  readonly onBegun?: (call: IncomingCall) => void;
}

/** A gate with requests that the test makes and ends; no session, no wire. */
export class Gate {
  readonly wheel: DeadlineWheel;
  readonly admission: Admission;
  readonly queue: AdmissionQueue<AdmittedRequest>;
  /** The calls whose handlers run now. */
  readonly running = new Set<IncomingCall>();
  /** How many have run at once. */
  most = 0;
  readonly #clock: Clock;
  #calls = 0;

  constructor(clock: Clock, options: AdmissionOptions = {}, service?: AdmissionOptions) {
    this.#clock = clock;
    this.wheel = new DeadlineWheel(clock);
    this.admission = new Admission(clock, this.wheel, completeAdmission(options));
    this.queue = this.addLane("some.v1", service) as AdmissionQueue<AdmittedRequest>;
  }

  addLane(service: string, options?: AdmissionOptions): AdmissionQueue<AdmittedRequest> | undefined {
    return this.admission.queueOf(service, options);
  }

  /** A method with times of its own. */
  method(): Startable {
    return { path: "some.v1/method", times: new HandlerTimes(), start: (call) => this.#start(call) };
  }

  readonly #begun = new Map<IncomingCall, (call: IncomingCall) => void>();
  readonly #method = this.method();

  ask({ priority = "normal", bytes = 10, timeMs = 10_000, queue, method, onBegun }: Asking = {}): Asked {
    let outcome: Outcome | undefined;
    const answer = (ended: IncomingCall, with_: Outcome) => {
      this.wheel.disarm(ended);
      outcome = with_;
    };
    const call = new IncomingCall({ takeOutcome: answer }, ++this.#calls, 0);
    call.priority = priority;
    call.bodyBytes = bytes;
    call.startedMs = this.#clock.now();
    this.wheel.arm(call, call.startedMs + timeMs);
    if (onBegun !== undefined) this.#begun.set(call, onBegun);
    const session = { peerName: "a peer" } as PeerLink;
    this.admission.enter(queue ?? this.queue, method ?? this.#method, call, session, undefined);
    const end = () => this.end(call);
    return {
      call,
      get outcome() {
        return outcome;
      },
      get began() {
        return call.handler === "here";
      },
      end,
    };
  }

  end(call: IncomingCall): void {
    this.running.delete(call);
    call.settle({ value: undefined });
    call.awaits?.leave?.();
  }

  #start(call: IncomingCall): void {
    call.handler = "here";
    this.running.add(call);
    this.most = Math.max(this.most, this.running.size);
    this.#begun.get(call)?.(call);
    this.#begun.delete(call);
  }
}
