import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { Completions } from "./completions.ts";
import { MemRegions } from "./mem-regions.ts";
import {
  type Absences,
  type Extent,
  noAbsences,
  type Port,
  type PortGauges,
  type PortSink,
  type RegisteredMemory,
  type Route,
  type SendOwner,
  type TransferOp,
  type TransferOwner,
} from "./port.ts";
import type { PortLayout } from "./port-layout.ts";
import type { PortDescription } from "./port-queues.ts";
import { appendEntry, completion, ringBytes, ringEntries } from "./ring.ts";
import { SendSlots } from "./send-slots.ts";
import type { Target } from "./target.ts";
import type { FabricUrl } from "./url.ts";

const connectionRefused = 111;
const connectionAborted = 103;
const cancelled = 125;
const invalid = 22; // EINVAL
const truncated = 265; // FI_ETRUNC
const maxNoticeExtents = 4;
const noBytes = new Uint8Array(0);

/** The ports of this thread by name: the whole mem fabric. */
const ports = new Map<string, MemPort>();
let unnamed = 0;

interface Entry {
  readonly kind: number;
  readonly status: number;
  readonly token: number;
  /** Of a notice: its data's upper half. */
  readonly high?: number;
  /** A message's bytes, copied into a receive slot when there is one. */
  readonly bytes: Uint8Array;
  /** Of a transfer or a notice: how many bytes it moved. */
  readonly moved?: number;
}

/**
 * `mem://`: a fabric inside one thread, without native code. Messages, regions, keys, bounds and completions behave as on a NIC that
 * checks everything, so that a service tested here meets the same limits and errors as elsewhere.
 */
export class MemPort implements Port {
  readonly scheme = "mem";
  readonly provider = "mem";
  readonly agent = "mem/1.0";
  readonly url: string;
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  readonly batchFrames = 64;
  /** The ring counts in 32 bits. */
  readonly maxTransferBytes = 2 ** 32 - 1;
  readonly maxExtents = 256;
  readonly immediateBytes = 8;
  readonly reportsDeath = true;
  readonly revokesKeys = true;
  readonly refusesSilently = false;
  readonly maxPeers = Number.POSITIVE_INFINITY;
  onWake: () => void = () => {};

  readonly #name: string;
  readonly #slots: SendSlots;
  readonly #completions: Completions;
  readonly #receiveSlots: number[] = [];
  /** Receive slots whose entries are in the ring: free again at the next progress. */
  #delivered: number[] = [];
  /** What has arrived and has not reached the ring yet, oldest first from `#inboxHead` on. */
  #inbox: Entry[] = [];
  readonly #peers: (MemPort | undefined)[] = [];
  readonly #regions = new MemRegions();
  #armed = false;
  #closed = false;
  readonly #receiveDepth: number;
  #mostReceived = 0;
  #mostUnread = 0;

  constructor(url: FabricUrl, layout: PortLayout) {
    const { slotBytes, sendSlots, receiveSlots } = layout;
    this.#name = url.name === "" ? `anonymous.${++unnamed}` : url.name;
    if (ports.has(this.#name)) {
      throw new RpcError({
        code: "already_exists",
        message: `mem://${this.#name} is already in use`,
        origin: "local",
      });
    }
    ports.set(this.#name, this);
    this.url = `mem://${this.#name}`;
    const slab = new ArrayBuffer((sendSlots + receiveSlots) * slotBytes);
    this.slab = Buffer.from(slab);
    this.slabView = new DataView(slab);
    this.slotBytes = slotBytes;
    this.#slots = new SendSlots(sendSlots, slotBytes);
    this.#completions = new Completions(new ArrayBuffer(ringBytes), this.#slots, slotBytes);
    this.#receiveDepth = receiveSlots;
    for (let i = receiveSlots - 1; i >= 0; i--) this.#receiveSlots.push((sendSlots + i) * slotBytes);
  }

  route(target: Target): Route {
    return { address: Buffer.from(target.name), replyTo: Buffer.from(this.#name) };
  }

  admit(address: Uint8Array): number {
    const name = Buffer.from(address).toString("latin1");
    const peer = ports.get(name);
    if (peer === undefined) {
      throw fabricError({
        provider: "mem",
        op: "admit",
        code: connectionRefused,
        message: `nobody listens at mem://${name}`,
      });
    }
    let index = this.#peers.indexOf(undefined);
    if (index < 0) index = this.#peers.length;
    this.#peers[index] = peer;
    return index;
  }

  forget(address: number): void {
    this.#completions.afterDelivery(() => {
      this.#peers[address] = undefined;
      this.#inbox = this.#inbox.filter(
        ({ kind, token }) => kind !== completion.peerGone || token !== address,
      );
    });
  }

  vouch(): void {}

  unvouch(): void {}

  absences(): Absences {
    return noAbsences;
  }

  takeSlot(held = 0): number {
    return this.#slots.take(held);
  }

  returnSlot(offset: number): void {
    this.#slots.put(offset);
  }

  send(address: number, slot: number, bytes: number, owner: SendOwner): void {
    const peer = this.#peers[address];
    const gone = peer === undefined || peer.#closed;
    if (!gone) {
      const message = Uint8Array.prototype.slice.call(this.slab, slot, slot + bytes);
      peer.#arrive({ kind: completion.message, status: 0, token: 0, bytes: message });
    }
    this.#completions.expectSent(slot, owner);
    this.#arrive({
      kind: completion.sent,
      status: gone ? connectionAborted : 0,
      token: slot,
      bytes: noBytes,
    });
  }

  register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    rights: number,
  ): RegisteredMemory {
    return this.#regions.add(memory, byteOffset, byteLength, rights);
  }

  deregister(index: number, onReleased?: () => void): void {
    this.#regions.delete(index);
    onReleased?.();
  }

  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    owner: TransferOwner,
    notice?: bigint,
  ): void {
    // Nothing completes on a closed port.
    if (this.#closed) return owner.onTransferred(cancelled, 0);
    if (notice !== undefined && (op === "read" || extents.length > maxNoticeExtents))
      return owner.onTransferred(invalid, 0);
    const token = this.#completions.expectTransfer(owner);
    const peer = this.#peers[address];
    let status = peer === undefined || peer.#closed ? connectionAborted : 0;
    let moved = 0;
    for (const extent of extents) {
      if (status === 0) status = this.#regions.move(op, (peer as MemPort).#regions, extent);
      if (status === 0) moved += extent.bytes;
    }
    if (notice !== undefined && status === 0) {
      const high = Number(notice >> 32n);
      const token = Number(notice & 0xffff_ffffn);
      (peer as MemPort).#arrive({ kind: completion.notice, status, token, high, bytes: noBytes, moved });
    }
    this.#arrive({ kind: completion.transfer, status, token, bytes: noBytes, moved });
  }

  progress(_spinUs: number, sink: PortSink): number {
    if (this.#closed) return 0;
    for (const slot of this.#delivered) this.#receiveSlots.push(slot);
    this.#delivered = [];
    let count = 0;
    while (count < this.#inbox.length && count < ringEntries && this.#publish(this.#inbox[count] as Entry))
      count++;
    if (count === 0) return 0;
    // Both levels fall here only.
    this.#mostReceived = Math.max(this.#mostReceived, this.#receiveDepth - this.#receiveSlots.length);
    this.#mostUnread = Math.max(this.#mostUnread, this.#inbox.length);
    this.#inbox.splice(0, count);
    this.#completions.deliver(count, this, sink);
    return count;
  }

  /** Writes one entry at the ring's tail. False when a message finds no free receive slot: it waits, and so does all behind it. */
  #publish(entry: Entry): boolean {
    let { status, token } = entry;
    if (entry.kind === completion.message && entry.bytes.byteLength > this.slotBytes) status = truncated;
    else if (entry.kind === completion.message) {
      const slot = this.#receiveSlots.pop();
      if (slot === undefined) return false;
      this.slab.set(entry.bytes, slot);
      this.#delivered.push(slot);
      token = slot;
    }
    const bytes = entry.moved ?? entry.bytes.byteLength;
    appendEntry(this.#completions.ring, entry.kind, status, token, bytes, entry.high ?? 0);
    return true;
  }

  #arrive(entry: Entry): void {
    if (this.#closed) return;
    this.#inbox.push(entry);
    if (!this.#armed) return;
    this.#armed = false;
    setImmediate(() => this.onWake());
  }

  /** It does not spin. */
  readonly spinLostUs = 0;
  readonly spinCaught = 0;

  arm(): boolean {
    if (this.#closed || this.#inbox.length > 0) return false;
    this.#armed = true;
    return true;
  }

  disarm(): void {
    this.#armed = false;
  }

  /** A mem port waits on nothing outside the thread, so it never keeps the process alive. */
  setRef(): void {}

  get busy(): boolean {
    return this.#inbox.length > 0;
  }

  gauges(): PortGauges {
    return {
      sends: this.#completions.sends,
      transfers: this.#completions.transfers,
      regions: this.#regions.size,
      addresses: this.#peers.filter((peer) => peer !== undefined).length,
      freeSlots: this.#slots.free,
    };
  }

  describe(): PortDescription {
    const unread = this.#inbox.length;
    const received = this.#receiveDepth - this.#receiveSlots.length;
    return {
      queues: {
        send: this.#slots.level,
        receive: {
          depth: this.#receiveDepth,
          used: received,
          highest: Math.max(this.#mostReceived, received),
        },
        completion: { depth: ringEntries, used: unread, highest: Math.max(this.#mostUnread, unread) },
        waiting: 0,
      },
      registeredBytes: this.#regions.registeredBytes,
    };
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    ports.delete(this.#name);
    this.#inbox = [];
    this.#completions.abandon(cancelled);
    for (const port of ports.values()) {
      port.#peers.forEach((peer, index) => {
        if (peer === this)
          port.#arrive({
            kind: completion.peerGone,
            status: connectionAborted,
            token: index,
            bytes: noBytes,
          });
      });
    }
  }
}
