import type { RoomWaiter } from "../../base/flow/byte-budget.ts";
import { defaultBodyStallMs } from "../../wire/handshake.ts";
import type { SessionContext } from "../connection/context.ts";

/** What has to be done for an item that waits: true when it is done. */
type Attempt = () => boolean;

/** Who holds items of a stream back. */
export interface ItemHolder {
  /** The peer is to hear that they still wait. */
  onStillHeld(): void;
}

/**
 * The long items of one direction of a stream that wait at their sender, oldest first, because the peer's share has no
 * room for them. The sender keeps them for its `bodyStallMs` after it has last heard of the stream, so it is told four
 * times as often.
 */
export class HeldItems implements RoomWaiter {
  readonly #session: SessionContext;
  readonly #holder: ItemHolder;
  readonly #attempts: Attempt[] = [];
  #cancelTimer: (() => void) | undefined;

  constructor(session: SessionContext, holder: ItemHolder) {
    this.#session = session;
    this.#holder = holder;
  }

  /** Makes the attempt now, unless others wait, and else whenever there may be room. */
  add(attempt: Attempt): void {
    if (this.#attempts.length === 0 && attempt()) return;
    if (this.#attempts.push(attempt) > 1) return;
    this.#session.account.pulls.budget.wait(this);
    this.#arm();
  }

  onRoom(): boolean {
    while (this.#attempts[0]?.()) this.#attempts.shift();
    if (this.#attempts.length > 0) return false;
    this.#disarm();
    return true;
  }

  /** Nobody wants items any more: each attempt finds that out. */
  drop(): void {
    if (this.#attempts.length > 0 && this.onRoom()) this.#session.account.pulls.budget.leave(this);
  }

  #arm(): void {
    const { remote, services } = this.#session;
    const sayMs = (remote?.bodyStallMs ?? defaultBodyStallMs) / 4;
    const say = () => {
      this.#holder.onStillHeld();
      this.#arm();
    };
    this.#cancelTimer = services.realClock.timer(sayMs, say, true);
  }

  #disarm(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }
}
