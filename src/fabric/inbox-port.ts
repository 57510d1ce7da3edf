import { realTimers } from "../base/time/real-timers.ts";
import { completion, entryWords, headerWords, ringBytes, ringEntries } from "./completion-ring.ts";
import { Completions } from "./completions.ts";
import type { PortDescription, PortQueues } from "./libfabric/port-report.ts";
import { MemRegions } from "./mem-regions.ts";
import {
  type Absences,
  type Extent,
  noAbsences,
  type Port,
  type PortGauges,
  type PortLayout,
  type PortSink,
  type RegisteredMemory,
  type TransferListener,
  type TransferOp,
  type Vouch,
} from "./port.ts";
import { SendSlots } from "./send-slots.ts";

const truncated = 265; // FI_ETRUNC
const invalid = 22; // EINVAL
/** The most extents of a write with a put notification. */
const maxNotificationExtents = 4;
const noBytes = new Uint8Array(0);

/** An event that a port reports. */
export interface Entry {
  readonly kind: number;
  readonly status: number;
  readonly token: number;
  /** The upper half of a put notification's data, or the token of a parked message. */
  readonly high?: number;
  /** Message: its bytes, which are copied into a free receive slot. */
  readonly bytes?: Uint8Array;
  /** Transfer and put notification: how many bytes moved. */
  readonly moved?: number;
}

/**
 * The part that the ports in TypeScript share: slots, registered memory, and an inbox of events. The next progress
 * delivers the events through the completion ring.
 */
export abstract class InboxPort {
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  onWake: () => void = () => {};
  received = 0;
  readonly memory = new MemRegions();
  protected readonly sendSlots: SendSlots;
  protected readonly completions: Completions;
  protected isClosed = false;
  readonly receiveDepth: number;
  /** How many entries wait in the inbox. Only this class sets it. */
  unread = 0;
  /** The code that brings the next entries wakes the port by `wakeNow`. */
  wakesItself = false;
  /** More entries wait elsewhere, and `gather` gets them: the port does not sleep. */
  protected hasMore = false;
  readonly #receiveSlots: number[] = [];
  /** Receive slots that have entries in the ring. The next progress frees them. */
  #delivered: number[] = [];
  /** Entries that are not in the ring yet, oldest first. */
  #inbox: Entry[] = [];
  #armed = false;
  /** The port wakes when the current turn has ended. */
  #wakesSoon = false;
  #mostReceived = 0;
  #mostUnread = 0;

  constructor({ slotBytes, sendSlots, receiveSlots }: PortLayout) {
    const slab = new ArrayBuffer((sendSlots + receiveSlots) * slotBytes);
    this.slab = Buffer.from(slab);
    this.slabView = new DataView(slab);
    this.slotBytes = slotBytes;
    this.sendSlots = new SendSlots(sendSlots, slotBytes);
    this.completions = new Completions(new ArrayBuffer(ringBytes), this.sendSlots, slotBytes);
    this.receiveDepth = receiveSlots;
    for (let i = receiveSlots - 1; i >= 0; i--) this.#receiveSlots.push((sendSlots + i) * slotBytes);
  }

  takeSlot(held = 0): number {
    return this.sendSlots.take(held);
  }

  returnSlot(offset: number): void {
    this.sendSlots.put(offset);
  }

  /** A message has arrived for the port. */
  deliver(bytes: Uint8Array): void {
    this.arrive({ kind: completion.message, status: 0, token: 0, bytes });
  }

  /** A peer's write with a put notification has arrived. */
  deliverPutNotification(notification: bigint, moved: number): void {
    const high = Number(notification >> 32n);
    const token = Number(notification & 0xffff_ffffn);
    this.arrive({ kind: completion.putNotification, status: 0, token, high, moved });
  }

  /** A send has completed. Its slot is free. */
  endSend(token: number, status: number): void {
    this.arrive({ kind: completion.sent, status, token });
  }

  /** The message of a slot waits elsewhere, under another token. */
  protected parkSend(token: number, parked: number): void {
    this.arrive({ kind: completion.parked, status: 0, token, high: parked });
  }

  endTransfer(token: number, status: number, moved: number): void {
    this.arrive({ kind: completion.transfer, status, token, moved });
  }

  /** The peer behind an address is gone. */
  losePeer(address: number): void {
    this.arrive({ kind: completion.peerGone, status: connectionAborted, token: address });
  }

  /** The port no longer waits for the peer behind an address. */
  protected dropPeer(address: number): void {
    this.#inbox = this.#inbox.filter(({ kind, token }) => kind !== completion.peerGone || token !== address);
    this.unread = this.#inbox.length;
  }

  protected turnAway(refused: number, malformed: number): void {
    this.arrive({ kind: completion.turnedAway, status: 0, token: refused, moved: malformed });
  }

  progress(_spinUs: number, sink: PortSink): number {
    if (this.isClosed) return 0;
    for (const slot of this.#delivered) this.#receiveSlots.push(slot);
    this.#delivered = [];
    this.gather();
    let count = 0;
    while (count < this.#inbox.length && count < ringEntries && this.#publish(this.#inbox[count] as Entry))
      count++;
    if (count === 0) return 0;
    // Both levels fall only here.
    this.#mostReceived = Math.max(this.#mostReceived, this.receiveDepth - this.#receiveSlots.length);
    this.#mostUnread = Math.max(this.#mostUnread, this.#inbox.length);
    this.#inbox.splice(0, count);
    this.unread = this.#inbox.length;
    this.completions.deliver(count, this as unknown as Port, sink);
    return count;
  }

  /** Moves entries that wait elsewhere into the inbox. */
  protected gather(): void {}

  /**
   * Writes one entry at the tail of the ring. False if a message finds no free receive slot: it and all later entries
   * wait.
   */
  #publish(entry: Entry): boolean {
    const { kind, bytes = noBytes } = entry;
    let { status, token } = entry;
    if (kind === completion.message && bytes.byteLength > this.slotBytes) status = truncated;
    else if (kind === completion.message) {
      const slot = this.#receiveSlots.pop();
      if (slot === undefined) return false;
      this.slab.set(bytes, slot);
      this.#delivered.push(slot);
      token = slot;
    }
    const { ring } = this.completions;
    const tail = ring[0] as number;
    const at = headerWords + (tail & (ringEntries - 1)) * entryWords;
    ring[at] = kind;
    ring[at + 1] = status;
    ring[at + 2] = token;
    ring[at + 3] = entry.moved ?? bytes.byteLength;
    ring[at + 5] = entry.high ?? 0;
    ring[0] = tail + 1;
    return true;
  }

  /** Keeps an event for the next progress. */
  arrive(entry: Entry): void {
    if (this.isClosed) return;
    this.unread = this.#inbox.push(entry);
    if (!this.#armed || this.wakesItself) return;
    this.#armed = false;
    this.#wakesSoon = true;
    // Not within the turn of the sender. The wake-up only schedules the next turn of this engine.
    realTimers.nextTick(this.#wakeSoon);
  }

  readonly #wakeSoon = (): void => {
    if (!this.#wakesSoon) return;
    this.#wakesSoon = false;
    this.onWake();
  };

  /** An entry has come while the port does nothing: a sleeping port wakes within this call. */
  wakeNow(): void {
    if (!this.#armed && !this.#wakesSoon) return;
    this.disarm();
    this.onWake();
  }

  /** The key of the next registration. */
  protected abstract nextKey(): bigint;

  register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    rights: number,
  ): RegisteredMemory {
    return this.memory.add(new Uint8Array(memory, byteOffset, byteLength), rights, this.nextKey());
  }

  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    listener: TransferListener,
    notification?: bigint,
  ): void {
    if (this.isClosed) return listener.onTransferred(cancelled, 0);
    if (notification !== undefined && (op === "read" || extents.length > maxNotificationExtents))
      return listener.onTransferred(invalid, 0);
    this.move(op, address, extents, this.completions.expectTransfer(listener), notification);
  }

  /** Begins a transfer. `endTransfer` reports its end. */
  protected abstract move(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    token: number,
    notification: bigint | undefined,
  ): void;

  /** No other thread answers for this thread while its event loop is blocked. */
  vouch(_address: number, _vouch: Vouch): void {}

  unvouch(_address: number): void {}

  absences(): Absences {
    return noAbsences;
  }

  /** The kernel does not report the process at the other end. */
  processOf(): undefined {}

  /** How many addresses are in use. */
  protected abstract get addresses(): number;

  /** Messages and transfers that peers do not take yet. */
  protected abstract get waitingWork(): number;

  gauges(): PortGauges {
    return {
      sends: this.completions.sends,
      transfers: this.completions.transfers,
      regions: this.memory.size,
      addresses: this.addresses,
      freeSlots: this.sendSlots.free,
    };
  }

  describe(): PortDescription {
    return {
      queues: this.#queues(),
      registeredBytes: this.memory.registeredBytes,
      registrationsMade: this.memory.made,
      registrationsMadeBytes: this.memory.madeBytes,
    };
  }

  /** These ports do not spin. */
  readonly spinLostUs = 0;
  readonly spinCaught = 0;

  arm(): boolean {
    if (this.isClosed || this.hasMore || this.unread > 0) return false;
    this.#armed = true;
    return true;
  }

  disarm(): void {
    this.#armed = false;
    this.#wakesSoon = false;
  }

  #queues(): PortQueues {
    const unread = this.#inbox.length;
    const received = this.receiveDepth - this.#receiveSlots.length;
    return {
      send: this.sendSlots.level,
      receive: {
        depth: this.receiveDepth,
        used: received,
        highest: Math.max(this.#mostReceived, received),
      },
      completion: { depth: ringEntries, used: unread, highest: Math.max(this.#mostUnread, unread) },
      waiting: this.waitingWork,
    };
  }

  /** No more entries arrive, and posted work ends with `status`. */
  protected abandon(status: number): void {
    this.#inbox = [];
    this.unread = 0;
    this.completions.abandon(status);
  }
}

export const connectionAborted = 103;
export const cancelled = 125; // ECANCELED
