import type { Clock } from "../../base/time/clock.ts";
import type { Port } from "../../fabric/port.ts";
import type { Grant } from "../../memory/grant.ts";
import type { Quarantine } from "../../memory/quarantine.ts";

/** The time for the messages of an ended session to leave. */
const lastMessagesMs = 1000;
/**
 * The time that a goodbye waits for transfers under way. Transfers are chunks, and end in milliseconds when the peer's
 * side works.
 */
const goodbyeMs = 250;

/** The engine's services for the end of a session. */
interface TeardownServices {
  readonly realClock: Clock;
  readonly quarantine: Quarantine;
  readonly goodbyes: Set<Teardown>;
}

/**
 * The remains of an ended session.
 *
 * - Memory that was granted to its peer: released, or kept in quarantine while the peer may still touch it.
 * - The goodbye: held back while transfers of this side are under way in the peer's memory. If the peer's port does not
 *   revoke keys, only the goodbye shows the end of these transfers and gives the memory back.
 * - The peer's address: kept until the last messages have left and, on a port that reports deaths, while the peer may
 *   touch memory. Otherwise its death would not be reported.
 */
export class Teardown {
  readonly #port: Port;
  readonly #address: number;
  readonly #services: TeardownServices;
  #grants: Grant[] = [];
  /** Functions that release memory when the peer's process is gone. */
  #untilGone: (() => void)[] = [];
  /** The number of grants that the peer may still touch. */
  #touchable = 0;
  #watchesDeath = false;
  #messagesLeave = false;
  #forgotten = false;
  #cancelForget: (() => void) | undefined;
  /** The number of this side's transfers in the peer's memory. */
  #underWay = 0;
  #goodbye: ((touching: boolean) => void) | undefined;
  #cancelGoodbye: (() => void) | undefined;

  constructor(port: Port, address: number, services: TeardownServices) {
    this.#port = port;
    this.#address = address;
    this.#services = services;
  }

  /** Grants that the peer had when the session ended. */
  addGrants(grants: readonly Grant[]): void {
    this.#grants.push(...grants);
  }

  /**
   * Transfers of this side that were under way when the session ended. Each calls `onTransferEnded` once, some perhaps
   * already.
   */
  addTransfers(count: number): void {
    this.#underWay += count;
  }

  readonly onTransferEnded = (): void => {
    if (--this.#underWay === 0) this.sayNow();
  };

  /**
   * Begins the teardown after all grants and transfers have been added. `certain`: the peer can no longer touch memory.
   * `messagesLeave`: messages on their way must leave. `goodbye` is called once: with false when no transfer is under
   * way, or with true when the peer must not wait any longer.
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

  /** The peer's process is gone: it can no longer touch memory or receive messages. */
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
      // The keys are dead at once. The quarantine waits until their use has certainly ended.
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
