import type { Port, PortSink, SendOwner, TransferOwner } from "./port.ts";
import { completion, entryWords, headerWords, ringEntries } from "./ring.ts";
import type { SendSlots } from "./send-slots.ts";

/**
 * Reads a port's completion ring and tells each waiter: the half of a port that the native and the mem port share.
 *
 * Tokens of transfers are indices into `#transfers`, kept in a free list, so that nothing is looked up in a Map.
 */
export class Completions {
  readonly ring: Uint32Array;
  readonly #slots: SendSlots;
  readonly #slotBytes: number;
  readonly #owners: (SendOwner | undefined)[];
  readonly #transfers: (TransferOwner | undefined)[] = [];
  readonly #freeTokens: number[] = [];
  #delivering = false;
  #abandoned = false;
  #afterwards: (() => void)[] = [];
  sends = 0;
  transfers = 0;

  constructor(ring: ArrayBuffer, slots: SendSlots, slotBytes: number) {
    this.ring = new Uint32Array(ring);
    this.#slots = slots;
    this.#slotBytes = slotBytes;
    this.#owners = new Array(slots.count).fill(undefined);
  }

  /** Notes that `owner` waits for the slot's `sent` entry. */
  expectSent(slot: number, owner: SendOwner): void {
    this.#owners[slot / this.#slotBytes] = owner;
    this.sends++;
  }

  /** A token whose `transfer` entry `owner` will hear of. */
  expectTransfer(owner: TransferOwner): number {
    const token = this.#freeTokens.pop() ?? this.#transfers.length;
    this.#transfers[token] = owner;
    this.transfers++;
    return token;
  }

  settleTransfer(token: number, status: number, bytes: number): void {
    const owner = this.#transfers[token];
    if (owner === undefined) return;
    this.#transfers[token] = undefined;
    this.#freeTokens.push(token);
    this.transfers--;
    owner.onTransferred(status, bytes);
  }

  /** Hands `count` entries out, oldest first, and moves the head past each before its receiver runs. */
  deliver(count: number, port: Port, sink: PortSink): void {
    const ring = this.ring;
    let head = ring[1] as number;
    this.#delivering = true;
    // A receiver may close the port: what is left then belongs to nobody.
    for (let i = 0; i < count && !this.#abandoned; i++) {
      const at = headerWords + (head & (ringEntries - 1)) * entryWords;
      const kind = ring[at] as number;
      const status = ring[at + 1] as number;
      const token = ring[at + 2] as number;
      const bytes = ring[at + 3] as number;
      head = (head + 1) >>> 0;
      // Receive slots are posted again at the next progress only, so the message stays readable after the head has passed it.
      ring[1] = head;
      switch (kind) {
        case completion.message:
          if (status === 0) sink.onMessage(port, token, bytes);
          else sink.onMessageLost(port, status);
          break;
        case completion.sent: {
          const index = token / this.#slotBytes;
          const owner = this.#owners[index];
          this.#owners[index] = undefined;
          this.sends--;
          this.#slots.put(token);
          owner?.onSent(status);
          break;
        }
        case completion.transfer:
          this.settleTransfer(token, status, bytes);
          break;
        case completion.notice:
          sink.onNotice(port, (BigInt(ring[at + 5] as number) << 32n) | BigInt(token), bytes);
          break;
        case completion.peerGone:
          sink.onPeerGone(port, token);
          break;
      }
    }
    this.#delivering = false;
    const actions = this.#afterwards;
    this.#afterwards = [];
    for (const action of actions) action();
  }

  /**
   * Runs `action` when nothing is being handed out: now, or after the entries that are. An address given back while entries wait could be
   * somebody else's by the time they are read.
   */
  afterDelivery(action: () => void): void {
    if (this.#delivering) this.#afterwards.push(action);
    else action();
  }

  /** The port is closed: nothing more will complete. */
  abandon(status: number): void {
    this.#abandoned = true;
    for (let token = 0; token < this.#transfers.length; token++) this.settleTransfer(token, status, 0);
    for (let i = 0; i < this.#owners.length; i++) {
      const owner = this.#owners[i];
      if (owner === undefined) continue;
      this.#owners[i] = undefined;
      this.sends--;
      owner.onSent(status);
    }
  }
}
