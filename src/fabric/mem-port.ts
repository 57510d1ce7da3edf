import { fabricError } from "../base/errors/fabric-error.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { realTimers } from "../base/time/real-timers.ts";
import { appendEntry, completion, ringBytes, ringEntries } from "./completion-ring.ts";
import { Completions } from "./completions.ts";
import type { PortDescription } from "./libfabric/port-report.ts";
import type { FabricUrl, Scheme } from "./libfabric/url.ts";
import { connectionAborted, type MemEndpoint, MemFabric, type MemLink } from "./mem-fabric.ts";
import { MemRegions } from "./mem-regions.ts";
import type { PortLayout } from "./port.ts";
import {
  type Absences,
  type Extent,
  noAbsences,
  type Port,
  type PortGauges,
  type PortSink,
  type RegisteredMemory,
  type Route,
  type SendListener,
  type TransferListener,
  type TransferOp,
  type Vouch,
} from "./port.ts";
import { SendSlots } from "./send-slots.ts";
import type { Target } from "./target.ts";

const connectionRefused = 111;
const cancelled = 125;
const invalid = 22; // EINVAL
const truncated = 265; // FI_ETRUNC
const maxNotificationExtents = 4;
const noBytes = new Uint8Array(0);

/** The fabric of all mem ports of this thread. */
const threadFabric = new MemFabric();

interface Entry {
  readonly kind: number;
  readonly status: number;
  readonly token: number;
  /** Put notification: the upper half of its data. */
  readonly high?: number;
  /** Message: its bytes, which are copied into a free receive slot. */
  readonly bytes: Uint8Array;
  /** Transfer and put notification: how many bytes moved. */
  readonly moved?: number;
}

/**
 * A port of `mem://`, the fabric inside one thread without native code. Messages, regions, keys, bounds and completions
 * behave as on a NIC that checks everything. A service that is tested over `mem://` meets the same limits and errors as
 * over other fabrics.
 */
export class MemPort implements Port, MemEndpoint {
  readonly scheme: Scheme = "mem";
  readonly provider: string = "mem";
  readonly agent: string = "mem/1.0";
  readonly name: string;
  readonly url: string;
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  readonly batchFrames: number = 64;
  /** The ring counts in 32 bits. */
  readonly maxTransferBytes: number = 2 ** 32 - 1;
  readonly maxExtents: number;
  readonly immediateBytes: number;
  readonly reportsDeath: boolean;
  readonly revokesKeys: boolean;
  readonly refusesSilently: boolean;
  readonly maxPeers: number = Number.POSITIVE_INFINITY;
  onWake: () => void = () => {};

  readonly memory = new MemRegions();
  readonly links: (MemLink | undefined)[] = [];
  readonly #fabric: MemFabric;
  readonly #slots: SendSlots;
  readonly #completions: Completions;
  readonly #receiveSlots: number[] = [];
  /** Receive slots whose entries are in the ring. The next progress frees them. */
  #delivered: number[] = [];
  /** Entries that are not in the ring yet, oldest first. */
  #inbox: Entry[] = [];
  #armed = false;
  #closed = false;
  readonly #receiveDepth: number;
  #mostReceived = 0;
  #mostUnread = 0;

  constructor(url: FabricUrl, layout: PortLayout, fabric: MemFabric = threadFabric) {
    const { slotBytes, sendSlots, receiveSlots } = layout;
    this.name = url.name === "" ? fabric.nextName() : url.name;
    if (fabric.ports.has(this.name)) {
      throw new RpcError({
        code: "already_exists",
        message: `mem://${this.name} is already in use`,
        origin: "local",
      });
    }
    fabric.ports.set(this.name, this);
    this.#fabric = fabric;
    this.url = `mem://${this.name}`;
    ({
      maxExtents: this.maxExtents,
      immediateBytes: this.immediateBytes,
      reportsDeath: this.reportsDeath,
      revokesKeys: this.revokesKeys,
      refusesSilently: this.refusesSilently,
    } = fabric.nature);
    const slab = new ArrayBuffer((sendSlots + receiveSlots) * slotBytes);
    this.slab = Buffer.from(slab);
    this.slabView = new DataView(slab);
    this.slotBytes = slotBytes;
    this.#slots = new SendSlots(sendSlots, slotBytes);
    this.#completions = new Completions(new ArrayBuffer(ringBytes), this.#slots, slotBytes);
    this.#receiveDepth = receiveSlots;
    for (let i = receiveSlots - 1; i >= 0; i--) this.#receiveSlots.push((sendSlots + i) * slotBytes);
  }

  get closed(): boolean {
    return this.#closed;
  }

  route(target: Target): Route {
    return { address: Buffer.from(target.name), replyTo: Buffer.from(this.name) };
  }

  admit(address: Uint8Array): number {
    const name = Buffer.from(address).toString("latin1");
    const port = this.#fabric.ports.get(name);
    if (port === undefined) {
      throw fabricError({
        provider: "mem",
        op: "admit",
        code: connectionRefused,
        message: `no engine listens at mem://${name}`,
      });
    }
    let index = this.links.indexOf(undefined);
    if (index < 0) index = this.links.length;
    this.links[index] = { port, broken: false };
    return index;
  }

  /** The kernel knows nothing of the peers: they are this process. */
  processOf(): undefined {}

  forget(address: number): void {
    this.#completions.afterDelivery(() => {
      if (this.links[address] === undefined && !this.#closed)
        this.#fabric.misused(this, `forgets address ${address} twice`);
      this.links[address] = undefined;
      this.#inbox = this.#inbox.filter(
        ({ kind, token }) => kind !== completion.peerGone || token !== address,
      );
    });
  }

  vouch(_address: number, _vouch: Vouch): void {}

  unvouch(_address: number): void {}

  absences(): Absences {
    return noAbsences;
  }

  takeSlot(held = 0): number {
    return this.#slots.take(held);
  }

  returnSlot(offset: number): void {
    this.#slots.put(offset);
  }

  send(address: number, slot: number, bytes: number, listener: SendListener): void {
    // Nothing completes on a closed port.
    if (this.#closed) {
      this.#fabric.misused(this, "sends after its close");
      this.#slots.put(slot);
      return listener.onSent(cancelled);
    }
    this.#completions.expectSent(slot, listener);
    const message = Uint8Array.prototype.slice.call(this.slab, slot, slot + bytes);
    this.#fabric.carry(this, this.links[address], slot, message);
  }

  register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    rights: number,
  ): RegisteredMemory {
    const bytes = new Uint8Array(memory, byteOffset, byteLength);
    return this.memory.add(bytes, rights, this.#fabric.nextKey());
  }

  deregister(index: number, onReleased?: () => void): void {
    const region = this.memory.delete(index);
    if (region === undefined && !this.#closed)
      this.#fabric.misused(this, `deregisters region ${index} twice`);
    if (region !== undefined && region.users > 0 && this.revokesKeys) region.onReleased = onReleased;
    else onReleased?.();
  }

  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    listener: TransferListener,
    notification?: bigint,
  ): void {
    if (this.#closed) return listener.onTransferred(cancelled, 0);
    if (notification !== undefined && (op === "read" || extents.length > maxNotificationExtents))
      return listener.onTransferred(invalid, 0);
    const token = this.#completions.expectTransfer(listener);
    this.#fabric.move(this, this.links[address], token, op, extents, notification);
  }

  deliver(message: Uint8Array): void {
    this.#arrive({ kind: completion.message, status: 0, token: 0, bytes: message });
  }

  deliverPutNotification(notification: bigint, moved: number): void {
    const high = Number(notification >> 32n);
    const token = Number(notification & 0xffff_ffffn);
    this.#arrive({ kind: completion.putNotification, status: 0, token, high, bytes: noBytes, moved });
  }

  endSend(slot: number, status: number): void {
    this.#arrive({ kind: completion.sent, status, token: slot, bytes: noBytes });
  }

  endTransfer(token: number, status: number, moved: number): void {
    this.#arrive({ kind: completion.transfer, status, token, bytes: noBytes, moved });
  }

  losePeer(address: number): void {
    this.#arrive({ kind: completion.peerGone, status: connectionAborted, token: address, bytes: noBytes });
  }

  progress(_spinUs: number, sink: PortSink): number {
    if (this.#closed) return 0;
    for (const slot of this.#delivered) this.#receiveSlots.push(slot);
    this.#delivered = [];
    let count = 0;
    while (count < this.#inbox.length && count < ringEntries && this.#publish(this.#inbox[count] as Entry))
      count++;
    if (count === 0) return 0;
    // Both levels fall only here.
    this.#mostReceived = Math.max(this.#mostReceived, this.#receiveDepth - this.#receiveSlots.length);
    this.#mostUnread = Math.max(this.#mostUnread, this.#inbox.length);
    this.#inbox.splice(0, count);
    this.#completions.deliver(count, this, sink);
    return count;
  }

  /**
   * Writes one entry at the tail of the ring. False if a message finds no free receive slot: it and all later entries
   * wait.
   */
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
    realTimers.setImmediate(() => this.onWake());
  }

  /** A mem port does not spin. */
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

  /** A mem port waits for nothing outside its thread, so it never keeps the process alive. */
  setRef(): void {}

  get received(): number {
    return this.#completions.received;
  }

  get busy(): boolean {
    return this.#completions.sends > 0 || this.#inbox.length > 0;
  }

  gauges(): PortGauges {
    return {
      sends: this.#completions.sends,
      transfers: this.#completions.transfers,
      regions: this.memory.size,
      addresses: this.links.filter((link) => link !== undefined).length,
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
      registeredBytes: this.memory.registeredBytes,
      registrationsMade: this.memory.made,
      registrationsMadeBytes: this.memory.madeBytes,
    };
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#inbox = [];
    this.#fabric.remove(this);
    this.#completions.abandon(cancelled);
  }
}
