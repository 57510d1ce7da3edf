import { completion, entryWords, firstParked, headerWords, ringEntries } from "./completion-ring.ts";
import type { Port, PortSink, SendListener, TransferListener } from "./port.ts";
import type { SendSlots } from "./send-slots.ts";

/**
 * Reads a port's completion ring and calls the listener of each entry. The native port and the mem port share it.
 *
 * A transfer's token is an index into `#transfers`, with a free list. No Map look-up is needed.
 */
export class Completions {
  readonly ring: Uint32Array;
  readonly #slots: SendSlots;
  readonly #slotBytes: number;
  /** By send slot. */
  readonly #listeners: (SendListener | undefined)[];
  /** Listeners of messages that were taken out of their slots, by token. */
  readonly #parked: (SendListener | undefined)[] = [];
  readonly #transfers: (TransferListener | undefined)[] = [];
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
    this.#listeners = new Array(slots.count).fill(undefined);
  }

  /** Registers the listener of a slot's `sent` entry. */
  expectSent(slot: number, listener: SendListener): void {
    this.#listeners[slot / this.#slotBytes] = listener;
    this.sends++;
  }

  /** Registers the listener of a `transfer` entry, and returns its token. */
  expectTransfer(listener: TransferListener): number {
    const token = this.#freeTokens.pop() ?? this.#transfers.length;
    this.#transfers[token] = listener;
    this.transfers++;
    return token;
  }

  settleTransfer(token: number, status: number, bytes: number): void {
    const listener = this.#transfers[token];
    if (listener === undefined) return;
    this.#transfers[token] = undefined;
    this.#freeTokens.push(token);
    this.transfers--;
    listener.onTransferred(status, bytes);
  }

  /** Delivers `count` entries, oldest first. Moves the head past each entry before its listener runs. */
  deliver(count: number, port: Port, sink: PortSink): void {
    const ring = this.ring;
    let head = ring[1] as number;
    this.#delivering = true;
    // A listener may close the port. The remaining entries are then dropped.
    for (let i = 0; i < count && !this.#abandoned; i++) {
      const at = headerWords + (head & (ringEntries - 1)) * entryWords;
      const kind = ring[at] as number;
      const status = ring[at + 1] as number;
      const token = ring[at + 2] as number;
      const bytes = ring[at + 3] as number;
      head = (head + 1) >>> 0;
      // Receive slots are posted again by the next progress, so the message stays readable after the head has passed
      // it.
      ring[1] = head;
      switch (kind) {
        case completion.message:
          port.received++;
          if (status === 0) sink.onMessage(port, token, bytes);
          else sink.onMessageLost(port, status);
          break;
        case completion.sent: {
          this.sends--;
          if (token >= firstParked) {
            const listener = this.#parked[token - firstParked];
            this.#parked[token - firstParked] = undefined;
            listener?.onSent(status, ring[at + 4]);
            break;
          }
          const index = token / this.#slotBytes;
          const listener = this.#listeners[index];
          this.#listeners[index] = undefined;
          this.#slots.put(token);
          listener?.onSent(status, ring[at + 4]);
          break;
        }
        case completion.parked: {
          const index = token / this.#slotBytes;
          const listener = this.#listeners[index];
          this.#listeners[index] = undefined;
          this.#parked[(ring[at + 5] as number) - firstParked] = listener;
          this.#slots.put(token);
          listener?.onParked?.();
          break;
        }
        case completion.transfer:
          this.settleTransfer(token, status, bytes);
          break;
        case completion.putNotification:
          sink.onPutNotification(port, (BigInt(ring[at + 5] as number) << 32n) | BigInt(token), bytes);
          break;
        case completion.turnedAway:
          sink.onTurnedAway?.(port, { refused: token, malformed: bytes });
          break;
        case completion.peerGone:
          sink.onPeerGone(port, token);
          break;
        case completion.disconnected:
          sink.onDisconnected?.(port, token);
          break;
      }
    }
    this.#delivering = false;
    const actions = this.#afterwards;
    this.#afterwards = [];
    for (const action of actions) action();
  }

  /**
   * Runs `action` when no entries are being delivered: now, or after them. An address that is returned while entries
   * wait could belong to another peer when they are read.
   */
  afterDelivery(action: () => void): void {
    if (this.#delivering) this.#afterwards.push(action);
    else action();
  }

  /** The port is closed: no more entries follow. */
  abandon(status: number): void {
    this.#abandoned = true;
    for (let token = 0; token < this.#transfers.length; token++) this.settleTransfer(token, status, 0);
    for (const listeners of [this.#listeners, this.#parked]) {
      for (let i = 0; i < listeners.length; i++) {
        const listener = listeners[i];
        if (listener === undefined) continue;
        listeners[i] = undefined;
        this.sends--;
        listener.onSent(status);
      }
    }
  }
}
