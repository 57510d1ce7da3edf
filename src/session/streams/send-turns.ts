import type { Flushable, Turns } from "../../fabric/progress.ts";
import type { Outbox } from "../channel/outbox.ts";

/** Waits for its turn to send: a sender of items. */
export interface TurnTaker {
  /** Its turn has come. It may send as long as the turns are not `congested`. */
  onTurn(): void;
}

/**
 * The order in which the streams of one session send items. Items are not urgent: they leave half of the session's
 * messages to requests and answers, and wait while other frames wait.
 */
export class SendTurns implements Flushable {
  flushQueued = false;
  readonly #outbox: Outbox;
  readonly #progress: Turns;
  #ring: TurnTaker[] = [];

  constructor(outbox: Outbox, progress: Turns) {
    this.#outbox = outbox;
    this.#progress = progress;
  }

  get congested(): boolean {
    return this.#outbox.congested;
  }

  /** `taker` is called after all takers that wait already. */
  enroll(taker: TurnTaker): void {
    this.#ring.push(taker);
    this.#progress.flushSoon(this);
    // Otherwise the completion of a message on its way starts the next turn.
    if (!this.congested) this.#progress.wake();
  }

  /** Called at the end of a turn of the loop. Items that the takers send leave in the next turn. */
  flush(): boolean {
    const ring = this.#ring;
    this.#ring = [];
    let taken = 0;
    while (taken < ring.length && !this.congested) (ring[taken++] as TurnTaker).onTurn();
    // A generator yields its items after the turn.
    if (taken > 0) this.#progress.goOn();
    if (taken < ring.length) this.#ring = [...ring.slice(taken), ...this.#ring];
    if (this.#ring.length > 0) this.#progress.flushSoon(this);
    return false;
  }

  /** Stops sending. */
  close(): void {
    this.#ring = [];
  }
}
