import type { Clock } from "../../base/time/clock.ts";
import type { Port } from "../../fabric/port.ts";
import type { Grant } from "../../memory/grant.ts";
import type { Quarantine } from "../../memory/quarantine.ts";

/** How long messages of an ended session may take to leave. */
const lastMessagesMs = 1000;
/**
 * How long a goodbye waits for transfers under way: they are chunks, and over in milliseconds where the peer's side of
 * them works.
 */
const goodbyeMs = 250;

/** A goodbye that waits for transfers under way in the peer's memory. */
export interface DeferredGoodbye {
  /** Says it now. */
  sayNow(): void;
}

/** What the end of a session needs of its engine. */
interface TeardownServices {
  readonly realClock: Clock;
  readonly quarantine: Quarantine;
  readonly goodbyes: Set<DeferredGoodbye>;
}

/**
 * What is left of a session that has ended.
 *
 * - Memory that was granted to its peer: released, or kept in quarantine while the peer may still touch it.
 * - The goodbye: held back while transfers of this side are under way in the peer's memory. A peer whose port does not
 *   revoke keys learns of their end by the goodbye alone, and has its memory back by it.
 * - The peer's address: known until the last messages have left and, on a port that tells of deaths, while there is
 *   such memory. Only so is the death told.
 */
export class Teardown implements DeferredGoodbye {
  readonly #port: Port;
  readonly #address: number;
  readonly #services: TeardownServices;
  #grants: Grant[] = [];
  /** Let go of when the peer's process is known to be gone. */
  #untilGone: (() => void)[] = [];
  /** How many grants the peer may still be touching. */
  #touchable = 0;
  #watchesDeath = false;
  #messagesLeave = false;
  #forgotten = false;
  #cancelForget: (() => void) | undefined;
  /** Transfers of this side in the peer's memory. */
  #underWay = 0;
  #goodbye: ((touching: boolean) => void) | undefined;
  #cancelGoodbye: (() => void) | undefined;

  constructor(port: Port, address: number, services: TeardownServices) {
    this.#port = port;
    this.#address = address;
    this.#services = services;
  }

  /** Memory that the peer had a right to when the session ended. */
  addGrants(grants: readonly Grant[]): void {
    this.#grants.push(...grants);
  }

  /**
   * Transfers of this side that were under way when the session ended. Each calls `onTransferEnded` once, which some
   * may have done already.
   */
  addTransfers(count: number): void {
    this.#underWay += count;
  }

  readonly onTransferEnded = (): void => {
    if (--this.#underWay === 0) this.sayNow();
  };

  /**
   * Everything has been handed over. `certain`: the peer touches nothing any more. `messagesLeave`: messages are on
   * their way that shall leave. `goodbye` is called once: when nothing is under way any more (false), or when the peer
   * must not wait any longer (true).
   */
  begin(certain: boolean, messagesLeave: boolean, goodbye: ((touching: boolean) => void) | undefined): void {
    this.#messagesLeave = messagesLeave;
    for (const grant of this.#grants) {
      if (certain || grant.isByRequest === true) grant.release();
      else this.#hold(grant);
    }
    this.#grants = [];
    this.#watchesDeath = this.#touchable > 0 && this.#port.reportsDeath;
    if (!this.#watchesDeath) this.#forgetSoon();
    if (goodbye === undefined) return;
    const { realClock, goodbyes } = this.#services;
    this.#goodbye = goodbye;
    goodbyes.add(this);
    if (this.#underWay === 0) this.sayNow();
    else this.#cancelGoodbye = realClock.timer(goodbyeMs, () => this.sayNow());
  }

  sayNow(): void {
    if (!this.#services.goodbyes.delete(this)) return;
    this.#cancelGoodbye?.();
    this.#goodbye?.(this.#underWay > 0);
  }

  /** The last message has left. */
  onDrained(): void {
    this.#messagesLeave = false;
    if (this.#cancelForget !== undefined) this.#forget();
  }

  /** The peer's process is gone: it touches nothing any more, and nothing can be said to it. */
  onPeerGone(): void {
    for (const letGo of this.#untilGone) letGo();
    this.#untilGone = [];
    this.#forget();
  }

  #hold(grant: Grant): void {
    const { quarantine } = this.#services;
    this.#touchable++;
    grant.onGivenUp?.();
    if (this.#port.revokesKeys) {
      // The keys are dead at once; that nobody is still using them is what the quarantine waits for.
      const letGo = quarantine.hold(grant.memory, () => this.#onBack());
      grant.release(letGo);
      return;
    }
    const letGo = quarantine.hold(grant.memory, () => {
      grant.release();
      this.#onBack();
    });
    this.#untilGone.push(letGo);
    grant.onHeld?.();
  }

  #onBack(): void {
    if (--this.#touchable === 0 && this.#watchesDeath) this.#forgetSoon();
  }

  #forgetSoon(): void {
    if (this.#messagesLeave)
      this.#cancelForget ??= this.#services.realClock.timer(lastMessagesMs, () => this.#forget(), true);
    else this.#forget();
  }

  #forget(): void {
    this.#cancelForget?.();
    if (this.#forgotten) return;
    this.#forgotten = true;
    this.#port.forget(this.#address);
  }
}
