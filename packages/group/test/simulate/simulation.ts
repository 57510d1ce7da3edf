import { seeded } from "../../../../test/matrix/random.ts";
import type { DetectorEvent } from "../../src/detector/detector.ts";
import { Detector } from "../../src/detector/detector.ts";
import type { MemberId, Message } from "../../src/detector/message.ts";
import { decode, encode } from "../../src/detector/message.ts";
import { Roster } from "../../src/detector/opinions.ts";
import { type DetectorOptions, resolveDetectorOptions } from "../../src/detector/options.ts";
import { EventQueue } from "./event-queue.ts";

export interface SimulationOptions {
  readonly members: number;
  readonly seed: number;
  readonly detector?: DetectorOptions;
  /** The share of messages that is lost, each by itself. Default: 0. */
  readonly loss?: number;
  /** How long a message takes, evenly spread between the two. Default: 0.2 to 2 ms. */
  readonly delayMs?: readonly [min: number, max: number];
  /** Called for every event of a detector. */
  readonly onEvent?: (observer: MemberId, event: DetectorEvent, atMs: number) => void;
}

interface Process {
  readonly id: MemberId;
  readonly detector: Detector;
  hasCrashed: boolean;
  /** While it stands still: what has arrived meanwhile. */
  frozen: Uint8Array[] | undefined;
  /** What its clock shows beside the time of the simulation. */
  clockOffsetMs: number;
  /** The time of its next turn in the queue; Infinity without one. */
  wakeMs: number;
  /** Members of different sides receive no messages from each other. */
  side: number;
}

type Event =
  | { readonly kind: "wake"; readonly process: Process }
  | { readonly kind: "arrival"; readonly process: Process; readonly bytes: Uint8Array }
  | { readonly kind: "action"; readonly act: () => void };

const group = 0x51;
/** As many messages as a socket's receive buffer holds; a process that stands still loses the rest. */
const maxFrozenMessages = 256;

/**
 * A group of detectors in one process, over a network and clocks that are events of a queue. The detectors and the
 * bytes of their messages are those of a live group.
 */
export class Simulation {
  /** Messages and bytes that all members have sent. */
  readonly sent = { messages: 0, bytes: 0 };
  readonly #options: SimulationOptions;
  readonly #queue = new EventQueue<Event>();
  readonly #random: () => number;
  readonly #processes: readonly Process[];
  #nowMs = 0;

  constructor(options: SimulationOptions) {
    this.#options = options;
    this.#random = seeded(options.seed);
    const resolved = resolveDetectorOptions(options.detector);
    const ids = Array.from({ length: options.members }, (_, id) => id);
    const roster = new Roster(ids.map((id) => ({ id, addresses: [String(id)] })));
    this.#processes = ids.map((id) => {
      const ports = {
        send: (address: string, message: Message) => this.#send(process, Number(address), message),
        random: this.#random,
        onEvent: (event: DetectorEvent) => options.onEvent?.(id, event, this.#nowMs),
      };
      const detector = new Detector(id, roster, resolved, ports, 0);
      const process: Process = {
        ...{ id, detector, hasCrashed: false, frozen: undefined },
        ...{ clockOffsetMs: 0, wakeMs: Number.POSITIVE_INFINITY, side: 0 },
      };
      return process;
    });
    for (const process of this.#processes) this.#plan(process);
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  detector(id: MemberId): Detector {
    return this.#process(id).detector;
  }

  /** Members that have not crashed. */
  get running(): readonly MemberId[] {
    return this.#processes.filter(({ hasCrashed }) => !hasCrashed).map(({ id }) => id);
  }

  /** Runs up to that time. */
  runTo(endMs: number): void {
    while (this.#queue.nextMs <= endMs) this.#step();
    this.#nowMs = endMs;
  }

  /** Runs until the condition holds, which is asked after every event, or up to that time. Returns whether it holds. */
  runUntil(endMs: number, holds: () => boolean): boolean {
    while (!holds()) {
      if (this.#queue.nextMs > endMs) {
        this.#nowMs = endMs;
        return false;
      }
      this.#step();
    }
    return true;
  }

  /** Calls `act` at that time. */
  at(atMs: number, act: () => void): void {
    this.#queue.add(atMs, { kind: "action", act });
  }

  crash(id: MemberId): void {
    this.#process(id).hasCrashed = true;
  }

  /** Stops a process for a while, as SIGSTOP does: messages wait for it. */
  freeze(id: MemberId, forMs: number): void {
    const process = this.#process(id);
    process.frozen ??= [];
    this.at(this.#nowMs + forMs, () => this.#thaw(process));
  }

  /** Moves the clock of one member. */
  jumpClock(id: MemberId, byMs: number): void {
    const process = this.#process(id);
    process.clockOffsetMs += byMs;
    this.#plan(process);
  }

  /** Parts the network: members hear those of their side alone. */
  part(sideOf: (id: MemberId) => number): void {
    for (const process of this.#processes) process.side = sideOf(process.id);
  }

  heal(): void {
    this.part(() => 0);
  }

  /** Has a member do something, as its user would. */
  tell(id: MemberId, what: (detector: Detector, nowMs: number) => void): void {
    const process = this.#process(id);
    what(process.detector, this.#nowMs + process.clockOffsetMs);
    this.#plan(process);
  }

  #process(id: MemberId): Process {
    const process = this.#processes[id];
    if (process === undefined) throw new RangeError(`the simulation has no member ${id}`);
    return process;
  }

  #step(): void {
    this.#nowMs = Math.max(this.#nowMs, this.#queue.nextMs);
    const event = this.#queue.take();
    if (event === undefined) return;
    if (event.kind === "action") event.act();
    else if (event.kind === "arrival") this.#arrive(event.process, event.bytes);
    else this.#wake(event.process);
  }

  #send(from: Process, to: MemberId, message: Message): void {
    const bytes = encode(group, message);
    this.sent.messages += 1;
    this.sent.bytes += bytes.length;
    const process = this.#process(to);
    const { loss = 0, delayMs: [min, max] = [0.2, 2] } = this.#options;
    if (process.side !== from.side || (loss > 0 && this.#random() < loss)) return;
    this.#queue.add(this.#nowMs + min + this.#random() * (max - min), { kind: "arrival", process, bytes });
  }

  #arrive(process: Process, bytes: Uint8Array): void {
    if (process.hasCrashed) return;
    if (process.frozen !== undefined) {
      if (process.frozen.length < maxFrozenMessages) process.frozen.push(bytes);
      return;
    }
    const message = decode(group, bytes);
    if (typeof message === "string") throw new Error(`a member has sent a message that is ${message}`);
    process.detector.receive(message, this.#nowMs + process.clockOffsetMs);
    this.#plan(process);
  }

  #wake(process: Process): void {
    // Superseded by an earlier turn.
    if (process.wakeMs !== this.#nowMs) return;
    process.wakeMs = Number.POSITIVE_INFINITY;
    if (process.hasCrashed || process.frozen !== undefined) return;
    process.detector.advance(this.#nowMs + process.clockOffsetMs);
    this.#plan(process);
  }

  #thaw(process: Process): void {
    const arrived = process.frozen ?? [];
    process.frozen = undefined;
    for (const bytes of arrived) this.#arrive(process, bytes);
    this.#plan(process);
  }

  #plan(process: Process): void {
    const wakeMs = Math.max(this.#nowMs, process.detector.dueMs - process.clockOffsetMs);
    // A turn that comes too early does nothing, and plans the next.
    if (wakeMs >= process.wakeMs || wakeMs === Number.POSITIVE_INFINITY) return;
    process.wakeMs = wakeMs;
    this.#queue.add(wakeMs, { kind: "wake", process });
  }
}
