import { messageHeaderBytes, numberOffset } from "../../wire/message.ts";
import type { Aead } from "./aead.ts";
import { type KeyChain, OpeningKeys } from "./key-schedule.ts";
import { type MessageMemory, messagesOfLink } from "./message-sealer.ts";
import {
  keepaliveClearBytes,
  keepaliveCountOffset,
  lastSequence,
  looksSealed,
  numberOfSequence,
  numbersAhead,
  sealedKeepaliveBytes,
  sealedTagBytes,
} from "./sealed-message.ts";

/** Results for a message that did not open; other results are numbers from 0. */
export const notOpened = {
  /** It is not sealed. */
  clear: -1,
  /** Its number has been used: no key was touched. */
  repeated: -2,
  /** It is not genuine. */
  forged: -3,
} as const;

export type NotOpened = (typeof notOpened)[keyof typeof notOpened];

const half = 2 ** 31;
/** A message of a link proves that the former link is over: none of its messages can still come. */
const bounds = { behind: 0, ahead: 1 };

/**
 * Opens the messages of one direction of a session, in place, each once and in order. A message that does not open has
 * no effect: any process that sees messages can send such a message.
 */
export class MessageOpener {
  readonly #keys: OpeningKeys;
  #sequence: number;

  /** `sequence`: for tests, that of the last opened message; the chain begins with its link. */
  constructor(chain: KeyChain, sequence = 0) {
    this.#keys = new OpeningKeys(chain, bounds, Math.floor(sequence / messagesOfLink));
    this.#sequence = sequence;
  }

  /**
   * Opens a message of `bytes` bytes at `at`. Its frames then follow the header, and `sealedTagBytes` unused bytes
   * follow them. Returns how many messages were lost before it, or one of `notOpened`.
   */
  open({ slab, slabView }: MessageMemory, at: number, bytes: number): number {
    if (!looksSealed(slabView, at, bytes)) return notOpened.clear;
    const number = slabView.getUint32(at + numberOffset, true);
    const lost = number === 0 ? half : numbersAhead(number, numberOfSequence(this.#sequence + 1));
    if (lost >= half) return notOpened.repeated;
    const sequence = this.#sequence + 1 + lost;
    if (sequence > lastSequence) return notOpened.forged;
    const link = Math.floor(sequence / messagesOfLink);
    const textBytes = bytes - messageHeaderBytes - sealedTagBytes;
    if (!this.#keys.of(link)?.openMessage(slab, at, messageHeaderBytes, textBytes, sequence))
      return notOpened.forged;
    this.#keys.opened(link);
    this.#sequence = sequence;
    return lost;
  }

  close(): void {
    this.#keys.close();
  }
}

/**
 * Opens the keepalives that the peer's guard sends while its thread computes. They have their own key and count,
 * because the guard does not know the thread's. Some may be lost; none is accepted twice.
 */
export class KeepaliveOpener {
  readonly #aead: Aead;
  #count = 0n;

  constructor(chain: KeyChain) {
    this.#aead = chain.next("open");
    chain.close();
  }

  /** Opens a keepalive, and moves its frame to where frames begin. False: it has no effect. */
  open({ slab, slabView }: MessageMemory, at: number, bytes: number): boolean {
    if (bytes !== sealedKeepaliveBytes || !looksSealed(slabView, at, bytes)) return false;
    const count = slabView.getBigUint64(at + keepaliveCountOffset, true);
    if (count <= this.#count || count > Number.MAX_SAFE_INTEGER) return false;
    const textBytes = bytes - keepaliveClearBytes - sealedTagBytes;
    if (!this.#aead.openMessage(slab, at, keepaliveClearBytes, textBytes, Number(count))) return false;
    this.#count = count;
    slab.copyWithin(at + messageHeaderBytes, at + keepaliveClearBytes, at + keepaliveClearBytes + textBytes);
    return true;
  }

  close(): void {
    this.#aead.close();
  }
}
