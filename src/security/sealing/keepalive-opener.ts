import { messageHeaderBytes } from "../../wire/message.ts";
import type { Aead } from "./aead.ts";
import type { KeyChain } from "./key-schedule.ts";
import type { MessageMemory } from "./message-sealer.ts";
import {
  keepaliveClearBytes,
  keepaliveCountOffset,
  looksSealed,
  sealedKeepaliveBytes,
  sealedTagBytes,
} from "./sealed-message.ts";

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
