import type { DetectorEvent, DetectorStats } from "../detector/detector.ts";
import { Detector } from "../detector/detector.ts";
import type { MemberId } from "../detector/message.ts";
import { decode, encode } from "../detector/message.ts";
import type { Roster } from "../detector/opinions.ts";
import type { ResolvedOptions } from "../detector/options.ts";
import type { Seal } from "./datagrams.ts";
import { UdpTransport } from "./datagrams.ts";

export interface DriverOptions {
  readonly self: MemberId;
  readonly roster: Roster;
  readonly detector: ResolvedOptions;
  /** Identifies the group: a hash of its name. */
  readonly group: number;
  readonly seal?: Seal | undefined;
  onEvent(event: DetectorEvent): void;
}

/** What a live detector counts beside the detector itself. */
export interface LiveStats extends DetectorStats {
  /** Bytes that are no message, messages of other groups, and those without the tag of the group's key. */
  readonly refused: { readonly malformed: number; readonly foreign: number; readonly unauthentic: number };
  /** Messages that could not be sent. */
  readonly sendErrors: number;
  /** Why the last one of them could not be sent. */
  readonly lastSendError: string | undefined;
}

/** How often arrived messages are asked for before time passes: a socket gives a bounded number at a time. */
const maxReadRounds = 64;

/** Runs a detector on a socket and the clock of the process. */
export class Driver {
  readonly #options: DriverOptions;
  readonly #detector: Detector;
  readonly #refused = { malformed: 0, foreign: 0, unauthentic: 0 };
  #transport: UdpTransport | undefined;
  #sendErrors = 0;
  #lastSendError: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #timerMs = Number.POSITIVE_INFINITY;
  #isReading = false;
  #arrived = 0;
  #onDone: (() => void) | undefined;

  /** Starts; rejects where the address of the member cannot be listened at. */
  static async start(options: DriverOptions): Promise<Driver> {
    let driver: Driver | undefined;
    const listener = {
      onBytes: (bytes: Uint8Array) => {
        if (driver !== undefined) driver.#onBytes(bytes);
      },
      onSendError: (reason: string) => {
        if (driver === undefined) return;
        driver.#sendErrors += 1;
        driver.#lastSendError = reason;
      },
    };
    const transport = await UdpTransport.open(options.roster.require(options.self).addresses[0], listener);
    // The clock starts now: while it opens, the detector can do nothing.
    driver = new Driver(options, transport);
    driver.#plan();
    return driver;
  }

  private constructor(options: DriverOptions, transport: UdpTransport) {
    this.#options = options;
    this.#transport = transport;
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
    const sending = { sendErrors: this.#sendErrors, lastSendError: this.#lastSendError };
    return { ...this.#detector.stats, refused: { ...this.#refused }, ...sending };
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

  /** Says goodbye; resolves when enough members have got it. */
  async leave(): Promise<void> {
    await new Promise<void>((resolve) => {
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
