import { RpcError } from "../../base/errors/rpc-error.ts";
import { pinRefusal } from "../../fabric/libfabric/file-memory.ts";
import type { Scheme } from "../../fabric/libfabric/url.ts";
import { MemFabric, MemPort } from "../../fabric/mem-port.ts";
import {
  access,
  type Extent,
  type PortSink,
  type RegisteredMemory,
  type Route,
  type SendListener,
  type TransferOp,
  type Vouch,
} from "../../fabric/port.ts";
import { frameHeaderBytes } from "../../wire/frame.ts";
import {
  alignFrame,
  messageFault,
  messageHeaderBytes,
  nonceOffset,
  numberOffset,
  sealedMagic,
  sessionOffset,
} from "../../wire/message.ts";

/** One sent frame. */
export interface SentFrame {
  readonly kind: number;
  readonly flags: number;
  readonly method: number;
  readonly callId: number;
  readonly word: number;
  readonly body: Uint8Array;
}

/** One sent message, taken apart. */
export interface SentMessage {
  readonly address: number;
  readonly session: number;
  readonly nonce: bigint;
  readonly number: number;
  readonly bytes: Uint8Array;
  readonly frames: readonly SentFrame[];
}

interface Pull {
  readonly settle: (status: number) => void;
  readonly key: bigint;
  readonly into: Uint8Array;
}

/** One posted transfer. `settle` completes it. */
export interface PostedTransfer {
  readonly op: TransferOp;
  readonly extents: readonly Extent[];
  readonly bytes: number;
  readonly notification: bigint | undefined;
  readonly settle: (status: number) => void;
}

/** A fabric that keeps its operations until the test completes them. */
class ScriptedFabric extends MemFabric<FakePort> {
  override readonly nature = {
    maxExtents: 256,
    immediateBytes: 0,
    reportsDeath: false,
    revokesKeys: false,
    refusesSilently: true,
  };
  #keys = 100n;

  override nextKey(): bigint {
    return this.#keys++;
  }

  override carry(from: FakePort, _link: unknown, slot: number): void {
    from.slots.push(slot);
  }

  override move(
    from: FakePort,
    _link: unknown,
    token: number,
    op: TransferOp,
    extents: readonly Extent[],
    notification: bigint | undefined,
  ): void {
    const bytes = extents.reduce((sum, extent) => sum + extent.bytes, 0);
    const settle = (status: number) => {
      from.endTransfer(token, status, status === 0 ? bytes : 0);
      from.progress();
    };
    from.transfers.push({ op, extents, bytes, notification, settle });
    const { local, offset, key } = extents[0] as Extent;
    const memory = from.regions.get(local.index) as Uint8Array;
    if (op === "read") from.pulls.push({ settle, key, into: memory.subarray(offset, offset + bytes) });
  }
}

const nobody = {} as PortSink;

/**
 * A mem port with every event under the test's control: sends and reads complete on demand, registrations are listed.
 */
export class FakePort extends MemPort {
  override readonly provider = "fake";
  override scheme: Scheme = "mem";
  override batchFrames = 1000;
  override maxTransferBytes = Number.MAX_SAFE_INTEGER;
  override maxExtents = 256;
  override immediateBytes = 0;
  override reportsDeath = false;
  override revokesKeys = false;
  override refusesSilently = true;

  readonly sent: SentMessage[] = [];
  /** Sent sealed messages. */
  readonly sealed: Uint8Array[] = [];
  /** Send slots that have not completed, oldest first. */
  readonly slots: number[] = [];
  /** Every transfer that was posted. */
  readonly transfers: PostedTransfer[] = [];
  /** The transfers that read, as the memory of their first extent. */
  readonly pulls: Pull[] = [];
  /** Regions registered now, by index. */
  readonly regions = new Map<number, Uint8Array>();
  readonly forgotten: number[] = [];
  /** The present vouches for this side, by address. */
  readonly vouches = new Map<number, Vouch>();
  /** The error that `register` throws, if any. */
  refuseMemory: Error | undefined;
  /** Buffers that it refuses to write, or to let peers write, as devices do with files. */
  readonly unpinned = new Set<ArrayBufferLike>();
  /** The access of the registered regions, by index. */
  readonly rights = new Map<number, number>();
  readonly #receiveSlot: number;

  constructor(sendSlots = 4, slotBytes = 4096) {
    const url = { scheme: "mem", host: "", port: 0, name: "fake" } as const;
    super(url, { sendSlots, receiveSlots: 1, slotBytes }, new ScriptedFabric());
    // Bytes of a former user of the slots.
    this.slab.fill(0xee);
    this.#receiveSlot = sendSlots * slotBytes;
  }

  /** The number of sends that have not completed. */
  get pending(): number {
    return this.slots.length;
  }

  get freeSlots(): number {
    return this.gauges().freeSlots;
  }

  /** All frames sent so far, in order. */
  get frames(): SentFrame[] {
    return this.sent.flatMap((message) => message.frames);
  }

  /** Completes the oldest sends. */
  complete(count = this.pending, status = 0): void {
    for (const slot of this.slots.splice(0, count)) this.endSend(slot, status);
    this.progress();
  }

  /** Copies a message into the receive slot. Returns its offset. */
  receive(bytes: Uint8Array): number {
    this.slab.set(bytes, this.#receiveSlot);
    return this.#receiveSlot;
  }

  override progress(): number {
    return super.progress(0, nobody);
  }

  /** Takes any free slot, however many are held. */
  override takeSlot(): number {
    return super.takeSlot();
  }

  override send(address: number, slot: number, bytes: number, owner: SendListener): void {
    const message = Uint8Array.from(this.slab.subarray(slot, slot + bytes));
    if (message[0] === sealedMagic) this.sealed.push(message);
    else this.sent.push(takeApart(address, message));
    super.send(address, slot, bytes, owner);
  }

  override register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    rights: number = access.local,
  ): RegisteredMemory {
    if (this.refuseMemory !== undefined) throw this.refuseMemory;
    if (this.unpinned.has(memory) && rights !== access.source && rights !== access.remoteRead)
      throw pinRefusal(new RpcError({ code: "unimplemented", message: "pins no files", origin: "fabric" }));
    const registered = super.register(memory, byteOffset, byteLength, 0);
    this.rights.set(registered.index, rights);
    this.regions.set(registered.index, new Uint8Array(memory, byteOffset, byteLength));
    return registered;
  }

  override deregister(index: number, onReleased?: () => void): void {
    this.regions.delete(index);
    this.rights.delete(index);
    super.deregister(index, onReleased);
  }

  override route(): Route {
    throw new Error("no test routes");
  }

  override admit(): number {
    return 0;
  }

  override forget(address: number): void {
    this.forgotten.push(address);
  }

  override vouch(address: number, vouch: Vouch): void {
    this.vouches.set(address, vouch);
  }

  override unvouch(address: number): void {
    this.vouches.delete(address);
  }
}

/**
 * Takes a message apart and checks the protocol: lengths, alignment, zeros as padding, no bytes after the last frame.
 */
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
  const nonce = view.getBigUint64(nonceOffset, true);
  const session = view.getUint32(sessionOffset, true);
  return { address, session, nonce, number: view.getUint32(numberOffset, true), bytes, frames };
}
