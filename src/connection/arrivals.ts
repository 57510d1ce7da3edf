import { frameHeaderBytes } from "../wire/frame.ts";
import { messageHeaderBytes, numberAfter, numberOffset, unnumbered } from "../wire/message.ts";
import { isKeepalive } from "./keepalive.ts";

const half = 2 ** 31;
const keepaliveBytes = messageHeaderBytes + frameHeaderBytes;

/**
 * Which message of the peer comes next. A connection of the provider may break while both sides live. The provider
 * connects again by itself and does not tell what it lost, neither the sender nor the receiver: a gap in the numbers
 * tells.
 */
export class Arrivals {
  #next = 1;

  /** Takes the number of a message whose header has been checked. False: it is not the one that follows. */
  take(view: DataView, offset: number, bytes: number): boolean {
    const number = view.getUint32(offset + numberOffset, true);
    if (number === this.#next) {
      this.#next = numberAfter(number);
      return true;
    }
    // The guard cannot know how many messages have left, so that its word has no number. It may be lost without harm.
    return (
      number === unnumbered && bytes === keepaliveBytes && isKeepalive(view, offset + messageHeaderBytes)
    );
  }

  /** How many messages must have been lost before the one that `take` has refused. 0: its number is a fault. */
  missing(view: DataView, offset: number): number {
    const number = view.getUint32(offset + numberOffset, true);
    if (number === unnumbered) return 0;
    const ahead = (number - this.#next) >>> 0;
    return ahead < half ? ahead : 0;
  }
}
