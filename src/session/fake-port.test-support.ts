import {
  type Absences,
  type Extent,
  noAbsences,
  type Port,
  type PortGauges,
  type RegisteredMemory,
  type Route,
  type SendOwner,
  type TransferOp,
  type TransferOwner,
  type Vouch,
} from "../fabric/port.ts";
import { plainDescription } from "../fabric/port-queues.ts";
import { SendSlots } from "../fabric/send-slots.ts";
import { frameHeaderBytes } from "../wire/frame.ts";
import { alignFrame, messageFault, messageHeaderBytes } from "../wire/message.ts";

/** One frame as it was sent. */
export interface SentFrame {
  readonly kind: number;
  readonly flags: number;
  readonly method: number;
  readonly callId: number;
  readonly word: number;
  readonly body: Uint8Array;
}

/** One message as it was sent, taken apart. */
export interface SentMessage {
  readonly address: number;
  readonly session: number;
  readonly nonce: number;
  readonly bytes: Uint8Array;
  readonly frames: readonly SentFrame[];
}

interface Pending {
  readonly slot: number;
  readonly owner: SendOwner;
}

interface Pull {
  readonly settle: (status: number) => void;
  readonly key: bigint;
  readonly into: Uint8Array;
}

/** A transfer as it was posted; `settle` completes it. */
export interface PostedTransfer {
  readonly op: TransferOp;
  readonly extents: readonly Extent[];
  readonly bytes: number;
  readonly notice: bigint | undefined;
  readonly settle: (status: number) => void;
}

/** A port whose every event is the test's to make: sends complete when told, reads end when told, registrations are listed. */
export class FakePort implements Port {
  readonly scheme = "mem";
  readonly provider = "fake";
  readonly agent = "fake/1";
  readonly url = "mem://fake";
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  batchFrames = 1000;
  maxTransferBytes = Number.MAX_SAFE_INTEGER;
  maxExtents = 256;
  immediateBytes = 0;
  reportsDeath = false;
  revokesKeys = false;
  refusesSilently = true;
  maxPeers = Number.POSITIVE_INFINITY;
  onWake: () => void = () => {};

  readonly sent: SentMessage[] = [];
  /** Every transfer that was posted. */
  readonly transfers: PostedTransfer[] = [];
  /** Those that read, as the memory of their first extent. */
  readonly pulls: Pull[] = [];
  /** Regions registered now, by index. */
  readonly regions = new Map<number, Uint8Array>();
  readonly forgotten: number[] = [];
  /** What is said in this side's stead now, by address. */
  readonly vouches = new Map<number, Vouch>();
  /** What `register` throws, if anything. */
  refuseMemory: Error | undefined;
  readonly #slots: SendSlots;
  readonly #receiveSlot: number;
  #pending: Pending[] = [];
  #nextRegion = 0;

  constructor(sendSlots = 4, slotBytes = 4096) {
    const slab = new ArrayBuffer((sendSlots + 1) * slotBytes);
    // What a former user of the slots has left behind.
    new Uint8Array(slab).fill(0xee);
    this.slab = Buffer.from(slab);
    this.slabView = new DataView(slab);
    this.slotBytes = slotBytes;
    this.#slots = new SendSlots(sendSlots, slotBytes);
    this.#receiveSlot = sendSlots * slotBytes;
  }

  /** How many sends have not completed. */
  get pending(): number {
    return this.#pending.length;
  }

  get freeSlots(): number {
    return this.#slots.free;
  }

  /** All frames sent so far, in order. */
  get frames(): SentFrame[] {
    return this.sent.flatMap((message) => message.frames);
  }

  /** Completes the oldest sends. */
  complete(count = this.#pending.length, status = 0): void {
    for (const { slot, owner } of this.#pending.splice(0, count)) {
      this.#slots.put(slot);
      owner.onSent(status);
    }
  }

  /** Lays a message where received ones lie; its offset. */
  receive(bytes: Uint8Array): number {
    this.slab.set(bytes, this.#receiveSlot);
    return this.#receiveSlot;
  }

  takeSlot(): number {
    return this.#slots.take();
  }

  returnSlot(offset: number): void {
    this.#slots.put(offset);
  }

  send(address: number, slot: number, bytes: number, owner: SendOwner): void {
    this.sent.push(takeApart(address, Uint8Array.from(this.slab.subarray(slot, slot + bytes))));
    this.#pending.push({ slot, owner });
  }

  register(memory: ArrayBufferLike, byteOffset: number, byteLength: number): RegisteredMemory {
    if (this.refuseMemory !== undefined) throw this.refuseMemory;
    const index = this.#nextRegion++;
    this.regions.set(index, new Uint8Array(memory, byteOffset, byteLength));
    return { index, key: BigInt(index) + 100n, base: 0n };
  }

  deregister(index: number, onReleased?: () => void): void {
    this.regions.delete(index);
    onReleased?.();
  }

  transfer(
    op: TransferOp,
    _address: number,
    extents: readonly Extent[],
    owner: TransferOwner,
    notice?: bigint,
  ): void {
    const bytes = extents.reduce((sum, extent) => sum + extent.bytes, 0);
    const settle = (status: number) => owner.onTransferred(status, status === 0 ? bytes : 0);
    this.transfers.push({ op, extents, bytes, notice, settle });
    const { local, offset, key } = extents[0] as Extent;
    const memory = this.regions.get(local.index) as Uint8Array;
    if (op === "read") this.pulls.push({ settle, key, into: memory.subarray(offset, offset + bytes) });
  }

  route(): Route {
    throw new Error("no test routes");
  }

  admit(): number {
    return 0;
  }

  forget(address: number): void {
    this.forgotten.push(address);
  }

  vouch(address: number, vouch: Vouch): void {
    this.vouches.set(address, vouch);
  }

  unvouch(address: number): void {
    this.vouches.delete(address);
  }

  absences(): Absences {
    return noAbsences;
  }

  progress(): number {
    return 0;
  }

  readonly spinLostUs = 0;
  readonly spinCaught = 0;

  arm(): boolean {
    return true;
  }

  disarm(): void {}

  setRef(): void {}

  readonly busy = false;

  readonly describe = () => plainDescription;

  gauges(): PortGauges {
    return {
      sends: this.pending,
      transfers: 0,
      regions: this.regions.size,
      addresses: 0,
      freeSlots: this.freeSlots,
    };
  }

  close(): void {}
}

/** Takes a message apart and holds it to the protocol: lengths, alignment, padding of zeros, nothing behind the last frame. */
export function takeApart(address: number, bytes: Uint8Array): SentMessage {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const fault = messageFault(view, 0, bytes.byteLength);
  if (fault !== "") throw new Error(fault);
  const frames: SentFrame[] = [];
  let at = messageHeaderBytes;
  for (let i = view.getUint16(2, true); i > 0; i--) {
    const bodyBytes = view.getUint32(at + 8, true);
    const bodyAt = at + frameHeaderBytes;
    const end = bodyAt + bodyBytes;
    frames.push({
      kind: view.getUint8(at),
      flags: view.getUint8(at + 1),
      method: view.getUint16(at + 2, true),
      callId: view.getUint32(at + 4, true),
      word: view.getUint32(at + 12, true),
      body: bytes.slice(bodyAt, end),
    });
    at = alignFrame(end);
    if (bytes.subarray(end, at).some((byte) => byte !== 0)) throw new Error("padding is not zero");
  }
  if (at !== bytes.byteLength) throw new Error(`message of ${bytes.byteLength} bytes has frames up to ${at}`);
  return { address, session: view.getUint32(8, true), nonce: view.getUint32(12, true), bytes, frames };
}
