import { messageHeaderBytes, numberOffset } from "../../wire/message.ts";
import { type KeyChain, OpeningKeys } from "./key-schedule.ts";
import { type MessageMemory, messagesOfLink } from "./message-sealer.ts";
import {
  lastSequence,
  looksSealed,
  numberOfSequence,
  numbersAhead,
  sealedTagBytes,
} from "./sealed-message.ts";

/** What became of a message that did not open; others are numbers from 0. */
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
/** A message of a link proves that the one before is over, as none of it can still be awaited. */
const bounds = { behind: 0, ahead: 1 };

/**
 * Opens the messages of one direction of a session, in place, each once and in order. Whatever does not open has no
 * effect: anybody who sees messages can send such.
 */
export class MessageOpener {
  readonly #keys: OpeningKeys;
  #sequence: number;

  /** `sequence`: for tests, that of the last message that was opened before; the chain begins with its link. */
  constructor(chain: KeyChain, sequence = 0) {
    this.#keys = new OpeningKeys(chain, bounds, Math.floor(sequence / messagesOfLink));
    this.#sequence = sequence;
  }

  /**
   * Opens a message of `bytes` bytes at `at`: its frames lie behind the header then, and `sealedTagBytes` of no use behind
   * them. Returns how many messages were lost before it, or one of `notOpened`.
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
