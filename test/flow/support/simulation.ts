import { RpcError } from "cinnabar";
import { defaultWindow, InFlightWindow, type WindowLimits } from "../../../src/base/flow/in-flight-window.ts";
import type { AdmissionOptions } from "../../../src/server/admission-options.ts";
import { Gate } from "../../../src/server/admission-queue.test-support.ts";
import { WaitingCalls } from "../../../src/session/calls/window-queue.ts";
import { FakeCall } from "../../../src/session/connection/fake-services.test-support.ts";
import { SimulatedClock } from "../../admission/support/simulation.ts";
import { seeded } from "../../matrix/random.ts";

export interface Scenario {
  /** The server: its places, and which requests wait for one. */
  readonly admission: AdmissionOptions;
  /** How long handlers take on the average. */
  readonly handlerMs: number;
  /** How that is distributed: `steady`, a tenth more or less; or `wild`, exponentially above a tenth of it. */
  readonly spread: "steady" | "wild";
  /** From one side to the other. */
  readonly networkMs: number;
  readonly clients: number;
  /** Requests that the server takes in flight of each client. */
  readonly credits: number;
  readonly window: Partial<WindowLimits>;
  readonly whenFull: "wait" | "fail";
  /** Calls that are made, as a multiple of what the places can serve. */
  readonly load: number;
  /** How long a call may take. */
  readonly timeoutMs: number;
  readonly seconds: number;
  readonly seed: number;
}

export interface Result {
  /** Calls that succeeded, as a share of what the places could serve. */
  readonly goodput: number;
  /** How long those took, in milliseconds. */
  readonly p50: number;
  readonly p99: number;
  /** How many calls succeeded, for the client that got most and the one that got least. */
  readonly most: number;
  readonly least: number;
  /** Requests that the server sent away, as a share of those it was sent. */
  readonly pushedBack: number;
}

/** One caller: the window and the queue of a session as they are, and the rest of a session as far as they see it. */
class Caller {
  readonly window: InFlightWindow;
  readonly waiting: WaitingCalls;
  readonly tookMs: number[] = [];
  sent = 0;
  pushedBack = 0;
  #inFlight = 0;
  readonly #clock: SimulatedClock;
  readonly #gate: Gate;
  readonly #scenario: Scenario;
  readonly #serviceMs: () => number;
  readonly #countsMs: number;

  constructor(
    clock: SimulatedClock,
    gate: Gate,
    scenario: Scenario,
    serviceMs: () => number,
    countsMs: number,
  ) {
    const limits = { ...defaultWindow, ...scenario.window };
    this.window = new InFlightWindow(limits);
    this.window.grant(scenario.credits);
    this.waiting = new WaitingCalls({ maxCalls: limits.maxWaiting, maxBytes: limits.maxWaitingBytes });
    this.#clock = clock;
    this.#gate = gate;
    this.#scenario = scenario;
    this.#serviceMs = serviceMs;
    this.#countsMs = countsMs;
  }

  call(): void {
    const call = new FakeCall();
    const nowMs = this.#clock.now();
    call.startedMs = nowMs;
    call.deadlineMs = nowMs + this.#scenario.timeoutMs;
    const free = this.#inFlight < this.window.limit && this.waiting.size === 0;
    if (!free && this.#scenario.whenFull === "fail") return;
    this.#clock.timer(this.#scenario.timeoutMs, () => {
      if (call.settled) return;
      call.giveUp();
      this.waiting.withdraw(call);
    });
    if (free) this.#send(call);
    else
      this.waiting.add({
        call,
        method: 0,
        endMs: call.deadlineMs,
        queuedMs: nowMs,
        input: undefined,
        priority: "normal",
        waitingBytes: 16,
      });
  }

  #send(call: FakeCall): void {
    const { networkMs } = this.#scenario;
    this.#inFlight++;
    this.sent++;
    this.#clock.timer(networkMs, () => {
      const asked = this.#gate.ask({
        timeMs: call.deadlineMs - this.#clock.now(),
        onBegun: (begun) => this.#clock.timer(this.#serviceMs(), () => this.#gate.end(begun)),
      });
      const answer = () => this.#clock.timer(networkMs, () => this.#onAnswer(call, asked));
      if (asked.outcome !== undefined) answer();
      else asked.call.onAnswered = answer;
    });
  }

  #onAnswer(call: FakeCall, { outcome, began }: ReturnType<Gate["ask"]>): void {
    const nowMs = this.#clock.now();
    const error = outcome?.error;
    if (error instanceof RpcError) {
      if (!began) this.pushedBack++;
    } else if (!call.settled && call.startedMs >= this.#countsMs) this.tookMs.push(nowMs - call.startedMs);
    call.giveUp();
    this.#inFlight--;
    while (this.#inFlight < this.window.limit) {
      const next = this.waiting.next(nowMs);
      if (next === undefined) break;
      this.#send(next.call as FakeCall);
    }
  }
}

/**
 * Lets calls be made as Poisson processes, at every client the same, and says how they fared; those of the first fifth
 * do not count.
 */
export function simulate(scenario: Scenario): Result {
  const { admission, handlerMs, clients, load, seconds, seed } = scenario;
  const random = seeded(seed);
  const clock = new SimulatedClock();
  const gate = new Gate(clock, admission);
  const exponential = (mean: number) => -Math.log(1 - random()) * mean;
  const capacity = (admission.maxConcurrent as number) / handlerMs;
  const countsMs = seconds * 200;
  const serviceMs = () =>
    scenario.spread === "steady"
      ? handlerMs * (0.9 + 0.2 * random())
      : handlerMs * 0.1 + exponential(handlerMs * 0.9);
  const callers = Array.from(
    { length: clients },
    () => new Caller(clock, gate, scenario, serviceMs, countsMs),
  );
  for (const caller of callers) {
    const arrive = () => {
      clock.timer(exponential(clients / capacity / load), arrive);
      caller.call();
    };
    clock.timer(exponential(clients / capacity / load), arrive);
  }
  clock.run(seconds * 1000);
  const took = callers.flatMap(({ tookMs }) => tookMs).sort((a, b) => a - b);
  const counts = callers.map(({ tookMs }) => tookMs.length);
  const sum = (of: (caller: Caller) => number) => callers.reduce((all, caller) => all + of(caller), 0);
  return {
    goodput: took.length / (capacity * (seconds * 1000 - countsMs)),
    p50: took[Math.floor(took.length * 0.5)] ?? 0,
    p99: took[Math.floor(took.length * 0.99)] ?? 0,
    most: Math.max(...counts),
    least: Math.min(...counts),
    pushedBack: sum(({ pushedBack }) => pushedBack) / sum(({ sent }) => sent),
  };
}
