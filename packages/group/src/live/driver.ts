import { decode, encode } from "../detector/codec.ts";
import { Detector } from "../detector/detector.ts";
import type { DetectorEvent, DetectorStats } from "../detector/events.ts";
import type { MemberId } from "../detector/message.ts";
import type { ResolvedOptions } from "../detector/options.ts";
import type { Roster } from "../detector/roster.ts";
import type { Seal } from "./seal.ts";
import type { OpenTransport, Transport } from "./transport.ts";

export interface DriverOptions {
  readonly self: MemberId;
  readonly roster: Roster;
  readonly detector: ResolvedOptions;
  /** What tells the group apart from others: a hash of its name. */
  readonly group: number;
  readonly seal?: Seal | undefined;
  onEvent(event: DetectorEvent): void;
}

/** What a live detector counts beside the detector itself. */
export interface LiveStats extends DetectorStats {
  /** Bytes that are no message, messages of other groups, and those without the tag of the group's key. */
  readonly refused: { readonly malformed: number; readonly foreign: number; readonly unauthentic: number };
  readonly sendErrors: number;
}

/** How often arrived messages are asked for before time passes: a socket gives a bounded number at a time. */
const maxReadRounds = 64;

/** Runs a detector on a transport and the clock of the process. */
export class Driver {
  readonly #options: DriverOptions;
  readonly #detector: Detector;
  readonly #refused = { malformed: 0, foreign: 0, unauthentic: 0 };
  #transport: Transport | undefined;
  #sendErrors = 0;
  #timer: NodeJS.Timeout | undefined;
  #timerMs = Number.POSITIVE_INFINITY;
  #isReading = false;
  #arrived = 0;
  #onDone: (() => void) | undefined;

  /** Starts; rejects where the address of the member cannot be listened at. */
  static async start(options: DriverOptions, open: OpenTransport): Promise<Driver> {
    const listener = {
      onBytes: (bytes: Uint8Array) => driver.#onBytes(bytes),
      onSendError: () => {
        driver.#sendErrors += 1;
      },
    };
    const driver = new Driver(options);
    driver.#transport = await open(options.roster.require(options.self).addresses[0], listener);
    driver.#plan();
    return driver;
  }

  private constructor(options: DriverOptions) {
    this.#options = options;
    const ports = {
      send: (address: string, message: Parameters<typeof encode>[1]) => {
        const bytes = encode(options.group, message);
        this.#transport?.send(address, options.seal?.close(bytes) ?? bytes);
      },
      random: Math.random,
      onEvent: (event: DetectorEvent) => options.onEvent(event),
    };
    const { self, roster, detector } = options;
    this.#detector = new Detector(self, roster, detector, ports, performance.now());
  }

  get stats(): LiveStats {
    return { ...this.#detector.stats, refused: { ...this.#refused }, sendErrors: this.#sendErrors };
  }

  /** Time in which this process ran. */
  awakeMs(): number {
    return this.#detector.awakeMs(performance.now());
  }

  setStalled(isStalled: boolean): void {
    this.#detector.setStalled(isStalled, performance.now());
    this.#plan();
  }

  adopt(roster: Roster): void {
    this.#detector.adopt(roster, performance.now());
    this.#plan();
  }

  /** Says goodbye; resolves when enough members have been told. */
  leave(): Promise<void> {
    return new Promise((resolve) => {
      this.#onDone = resolve;
      this.#detector.leave(performance.now());
      this.#plan();
    });
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    const transport = this.#transport;
    this.#transport = undefined;
    await transport?.close();
  }

  #onBytes(sealed: Uint8Array): void {
    this.#arrived += 1;
    const { seal, group } = this.#options;
    const bytes = seal === undefined ? sealed : seal.open(sealed);
    if (bytes === undefined) {
      this.#refused.unauthentic += 1;
      return;
    }
    const message = decode(group, bytes);
    if (typeof message === "string") {
      this.#refused[message] += 1;
      return;
    }
    this.#detector.receive(message, performance.now());
    this.#plan();
  }

  /** Sets the timer to when the detector has something to do. */
  #plan(): void {
    if (this.#detector.isDone) this.#onDone?.();
    const { dueMs } = this.#detector;
    if (this.#isReading || dueMs === this.#timerMs || this.#transport === undefined) return;
    clearTimeout(this.#timer);
    this.#timerMs = dueMs;
    if (dueMs === Number.POSITIVE_INFINITY) return;
    this.#timer = setTimeout(() => this.#readFirst(maxReadRounds), Math.max(0, dueMs - performance.now()));
  }

  /** Timers come before sockets in a turn of the event loop: what has arrived is taken in before time passes. */
  #readFirst(rounds: number): void {
    this.#isReading = true;
    const before = this.#arrived;
    setImmediate(() => {
      if (this.#transport === undefined) return;
      // A first round that finds something after a late timer is followed by others, until the socket is empty.
      if (this.#arrived > before && rounds > 1) {
        this.#readFirst(rounds - 1);
        return;
      }
      this.#isReading = false;
      this.#timerMs = Number.POSITIVE_INFINITY;
      this.#detector.advance(performance.now());
      this.#plan();
    });
  }
}
