import { messageHeaderBytes, type Nonce } from "../../wire/message.ts";
import type { Aead } from "./aead.ts";
import { type KeyChain, SealingKeys } from "./key-schedule.ts";
import { lastSequence, numberOfSequence, sealedTagBytes, writeSealedHeader } from "./sealed-message.ts";

/** How many messages are sealed with one key; with the first key, one less. */
export const messagesOfLink = 2 ** 20;

/** Where messages lie: the slab of a port, by two views. */
export interface MessageMemory {
  readonly slab: Uint8Array;
  readonly slabView: DataView;
}

/** Seals the messages of one direction of a session, in place. The nonce is their sequence, from 1. */
export class MessageSealer {
  readonly #keys: SealingKeys;
  #sequence: number;
  #aead: Aead;
  /** The sequence from which another key is used. */
  #linkEnd: number;

  /** `sequence`: for tests, that of the last sealed message; the chain begins with its link. */
  constructor(chain: KeyChain, sequence = 0) {
    const link = Math.floor(sequence / messagesOfLink);
    this.#keys = new SealingKeys(chain, link);
    this.#sequence = sequence;
    this.#aead = this.#keys.of(link);
    this.#linkEnd = (link + 1) * messagesOfLink;
  }

  /**
   * Seals a message and writes its header. Its header belongs at `at`, and its frames follow; `bytes` counts both.
   * After the frames there is room for the tag. Returns the message's new length, or -1 when the sequence has ended:
   * then the session must end, too.
   */
  seal(
    { slab, slabView }: MessageMemory,
    at: number,
    frames: number,
    bytes: number,
    session: number,
    nonce: Nonce,
  ): number {
    if (this.#sequence >= lastSequence) return -1;
    const sequence = ++this.#sequence;
    if (sequence === this.#linkEnd) {
      this.#aead = this.#keys.of(sequence / messagesOfLink);
      this.#linkEnd += messagesOfLink;
    }
    const sealedBytes = bytes + sealedTagBytes;
    writeSealedHeader(slabView, at, frames, sealedBytes, session, nonce, numberOfSequence(sequence));
    this.#aead.sealMessage(slab, at, messageHeaderBytes, bytes - messageHeaderBytes, sequence);
    return sealedBytes;
  }

  close(): void {
    this.#keys.close();
  }
}
