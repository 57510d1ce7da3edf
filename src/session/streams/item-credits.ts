import { frameHeaderBytes } from "../../wire/frame.ts";

/** The cost of an item: its body, and its header, so that empty items are not free. */
export function itemCost(bodyBytes: number): number {
  return bodyBytes + frameHeaderBytes;
}

/** The bytes by which items in messages may exceed their window: a quarter of it, and at least 2 KiB. */
function spareBytes(windowBytes: number): number {
  return Math.max(2048, Math.floor(windowBytes / 4));
}

/** The most that a receiver grants at once, for any window. */
const mostItems = 2 ** 31;
const mostBytes = 2 ** 40;

/** The credits of a sender of items. */
export class SendCredits {
  /** The first grant. */
  #windowBytes = 0;
  #items = 0;
  /** Below zero when the last item was longer than the remaining credits. */
  #bytes = 0;

  /** Whether an item of any length may be sent. */
  get some(): boolean {
    return this.#items > 0 && this.#bytes > 0;
  }

  /** The receiver grants more credits. False for more than any honest receiver grants. */
  add(items: number, bytes: number): boolean {
    if (this.#windowBytes === 0) this.#windowBytes = bytes;
    this.#items += items;
    this.#bytes += bytes;
    return this.#items <= mostItems && this.#bytes <= mostBytes;
  }

  /** The longest item that may go in a message. Its receiver decides when it has room for a longer one, and pulls it. */
  get mostInMessage(): number {
    return this.#bytes + spareBytes(this.#windowBytes) - frameHeaderBytes;
  }

  spend(bytes: number): void {
    this.#items--;
    this.#bytes -= bytes;
  }
}

/** A frame has 32 bits for the bytes. */
const mostBytesInFrame = 0xffff_ffff;

/** The window of a receiver. */
export interface ItemWindow {
  readonly items: number;
  readonly bytes: number;
}

/**
 * The credits that the receiver of items has granted. The window is the sum of three parts: credits granted for items
 * that have not arrived, items not taken, and credits not granted again. An item that was longer than the rest exceeds
 * it.
 */
export class ReceiveCredits {
  readonly #window: ItemWindow;
  /** Credits that were granted, and not used by an arrived item. */
  #items = 0;
  #bytes = 0;
  /** Taken by the consumer since the last grant. */
  #takenItems = 0;
  #takenBytes = 0;

  constructor(window: ItemWindow) {
    this.#window = window;
    this.#takenItems = window.items;
    this.#takenBytes = window.bytes;
  }

  /** An item arrives. False when its sender had no credits for it. */
  arrive(bytes: number): boolean {
    if (this.#items <= 0 || this.#bytes <= 0) return false;
    this.#items--;
    this.#bytes -= bytes;
    return true;
  }

  /** The consumer has taken an item. True when a grant is due. */
  take(bytes: number): boolean {
    this.#takenItems++;
    this.#takenBytes += bytes;
    return this.isDue;
  }

  /**
   * The bytes by which the waiting items exceed the window and a quarter: the last item was longer than the remaining
   * credits. `unpulledBytes`: the bytes of announced items that have not come.
   */
  excessBytes(unpulledBytes: number): number {
    const beyondBytes = -(this.#bytes + this.#takenBytes) - unpulledBytes;
    return Math.max(0, beyondBytes - spareBytes(this.#window.bytes));
  }

  /** Whether half of the window may be granted again. */
  get isDue(): boolean {
    return this.#takenItems * 2 >= this.#window.items || this.#takenBytes * 2 >= this.#window.bytes;
  }

  /** Grants the credits of taken items: the whole window at first. `say` puts the grant into a frame. */
  grant(say: (items: number, bytes: number) => void): void {
    while (this.#takenItems > 0 || this.#takenBytes > 0) {
      const items = this.#takenItems;
      const bytes = Math.min(this.#takenBytes, mostBytesInFrame);
      this.#items += items;
      this.#bytes += bytes;
      this.#takenItems = 0;
      this.#takenBytes -= bytes;
      say(items, bytes);
    }
  }
}
