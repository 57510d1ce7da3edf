import type { Quarantine } from "../bulk/quarantine.ts";
import type { Clock } from "../call/clock.ts";
import type { Loan } from "../call/outgoing-call.ts";
import type { Port } from "../fabric/port.ts";

/** How long messages of an ended session may take to leave. */
const lastWordsMs = 1000;

/**
 * What is left of a session that has ended: memory that its peer may still be touching, and the peer's address, which stays known until the last words
 * have left and, on a port that tells of deaths, while there is such memory: only so is the death told.
 */
export class Aftermath {
  readonly #port: Port;
  readonly #address: number;
  readonly #clock: Clock;
  readonly #quarantine: Quarantine;
  /** Let go of when the peer's process is known to be gone. */
  #untilGone: (() => void)[] = [];
  /** How many loans the peer may still be touching. */
  #touchable = 0;
  #watchesDeath = false;
  #lastWords = false;
  #forgotten = false;
  #cancelForget: (() => void) | undefined;

  constructor(port: Port, address: number, clock: Clock, quarantine: Quarantine) {
    this.#port = port;
    this.#address = address;
    this.#clock = clock;
    this.#quarantine = quarantine;
  }

  /** The session ends. `certain`: the peer touches nothing any more. `lastWords`: messages are on their way that shall leave. */
  begin(loans: readonly Loan[], certain: boolean, lastWords: boolean): void {
    this.#lastWords = lastWords;
    for (const loan of loans) {
      if (certain) loan.release();
      else this.#hold(loan);
    }
    this.#watchesDeath = this.#touchable > 0 && this.#port.reportsDeath;
    if (!this.#watchesDeath) this.#forgetSoon();
  }

  /** The last message has left. */
  onDrained(): void {
    this.#lastWords = false;
    if (this.#cancelForget !== undefined) this.#forget();
  }

  /** The peer's process is gone: it touches nothing any more, and nothing can be said to it. */
  onPeerGone(): void {
    for (const letGo of this.#untilGone) letGo();
    this.#untilGone = [];
    this.#forget();
  }

  #hold(loan: Loan): void {
    this.#touchable++;
    if (this.#port.revokesKeys) {
      // The keys are dead at once; that nobody is still using them is what the quarantine waits for.
      const letGo = this.#quarantine.hold(loan.bytes, () => this.#onBack());
      loan.release(letGo);
      return;
    }
    const letGo = this.#quarantine.hold(loan.bytes, () => {
      loan.release();
      this.#onBack();
    });
    this.#untilGone.push(letGo);
    loan.onHeld?.();
  }

  #onBack(): void {
    if (--this.#touchable === 0 && this.#watchesDeath) this.#forgetSoon();
  }

  #forgetSoon(): void {
    if (this.#lastWords) this.#cancelForget ??= this.#clock.timer(lastWordsMs, () => this.#forget(), true);
    else this.#forget();
  }

  #forget(): void {
    this.#cancelForget?.();
    if (this.#forgotten) return;
    this.#forgotten = true;
    this.#port.forget(this.#address);
  }
}
