import type { Port, SendOwner } from "../fabric/port.ts";
import { type Encoded, type EncodeTarget, encodeAt, encodeSlack, type RegionCodec } from "../wire/codec.ts";
import {
  frameFlag,
  frameHeaderBytes,
  type Overflow,
  overflowBytes,
  writeFrameHeader,
  writeOverflow,
} from "../wire/frame.ts";
import { alignFrame, messageHeaderBytes, writeMessageHeader } from "../wire/message.ts";

/** What the outbox needs of its session. */
export interface OutboxHost {
  /** The session has something to flush at the end of this turn. */
  markDirty(): void;
  /** A message could not be delivered. */
  onSendFailed(status: number): void;
  onMessagePosted(frames: number): void;
  /** Requests are taken again, after they were not for a while. */
  onRoom(): void;
  /** The peer takes so little of what it is sent that more waits than an honest peer can cause. */
  onOverrun(waitingBytes: number): void;
  /** The outbox is closed and its last message has left. */
  onDrained(): void;
}

/** One frame to be sent. */
export interface FrameHead {
  readonly kind: number;
  readonly method: number;
  readonly callId: number;
  readonly word: number;
  /** Those flags that are known before the body is. Default: none. */
  readonly flags?: number;
}

/** Messages of one session that may be posted and not yet completed; more wait, so that one slow peer cannot take all slots of a port. */
const maxPosted = 16;

/**
 * Turns frames into messages for one peer. Frames queued in one turn share a message (on tcp a system call costs more than a hundred
 * small frames), written in place into a registered send slot. When no slot is to be had, encoded frames wait in order, bounded in bytes.
 */
export class Outbox implements SendOwner {
  readonly #port: Port;
  readonly #address: number;
  readonly #host: OutboxHost;
  /** The longest message both sides can take. */
  #messageBytes: number;
  readonly #maxQueuedBytes: number;
  readonly #maxWaitingBytes: number;
  #session = 0;
  #nonce = 0;

  /** The open message: its slot's offset in the slab or -1, a Buffer over the slot, where the next frame goes, frames so far. */
  #slot = -1;
  #target: EncodeTarget = nothing;
  #at = 0;
  #frames = 0;

  #posted = 0;
  /** Whole frames, padded, that found no slot. */
  #waiting: Uint8Array[] = [];
  /** Those that were put in since `hold`, which wait for `resume`. */
  #held: Uint8Array[] | undefined;
  /** Of both. */
  #waitingBytes = 0;
  #closed = false;
  /** While a value is being encoded into the open slot. A getter of the user's may then call, cancel or close: the slot stays as it is. */
  #encoding = false;

  /** Requests are refused beyond `maxQueuedBytes`; the answers an honest peer can be owed on top of that fit `maxWaitingBytes`. */
  constructor(
    port: Port,
    address: number,
    host: OutboxHost,
    maxQueuedBytes: number,
    maxWaitingBytes: number,
  ) {
    this.#port = port;
    this.#address = address;
    this.#host = host;
    this.#messageBytes = port.slotBytes & ~7;
    this.#maxQueuedBytes = maxQueuedBytes;
    this.#maxWaitingBytes = maxWaitingBytes;
  }

  /** The peer's session, as every message must name it, and the longest message the peer takes. */
  addressTo(session: number, nonce: number, messageBytes: number): void {
    this.#session = session;
    this.#nonce = nonce;
    this.#messageBytes = Math.min(this.#messageBytes, messageBytes & ~7);
  }

  get posted(): number {
    return this.#posted;
  }

  get queuedBytes(): number {
    return this.#waitingBytes;
  }

  /** Whether another request fits the queue. Frames that end something are always taken: they free more than they hold. */
  get full(): boolean {
    return this.#waitingBytes >= this.#maxQueuedBytes;
  }

  /** A frame without a body. */
  bare(head: FrameHead): void {
    this.raw(head, 0, noBytes);
  }

  /** A frame with a body that is bytes already, short enough for a message. */
  raw(head: FrameHead, flags: number, body: Uint8Array, prefix: Uint8Array = noBytes): void {
    const bodyBytes = prefix.byteLength + body.byteLength;
    const bytes = frameHeaderBytes + bodyBytes;
    if (!this.#openFor(bytes)) {
      const frame = new Uint8Array(alignFrame(bytes));
      const view = new DataView(frame.buffer);
      writeHead(view, 0, head, flags, bodyBytes);
      frame.set(prefix, frameHeaderBytes);
      frame.set(body, frameHeaderBytes + prefix.byteLength);
      this.#wait(frame);
      return;
    }
    const start = this.#at + frameHeaderBytes;
    if (prefix !== noBytes) this.#target.set(prefix, start);
    this.#target.set(body, start + prefix.byteLength);
    this.#commit(head, flags, bodyBytes);
  }

  /**
   * A frame whose body is `value` in msgpack. A body too long for a message is handed to `offer`, which keeps it for the peer to pull and says where
   * it lies. `flags` is read after encoding, because only then is it known whether regions travel. `prefix`, a multiple of eight bytes, stands before
   * the body, and in the frame even when the body does not. Throws EncodeError, and then nothing is sent.
   */
  value(
    head: FrameHead,
    value: unknown,
    offer: (body: Uint8Array) => Overflow,
    regions?: RegionCodec & { readonly flags: number },
    prefix: Uint8Array = noBytes,
  ): void {
    const before = frameHeaderBytes + prefix.byteLength;
    const inPlace = this.#openFor(before + encodeSlack);
    const target = inPlace ? this.#target : scratch;
    const start = inPlace ? this.#at + before : 0;
    const encoded = this.#encode(target, start, value, regions);
    if (this.#closed) return;
    const flags = (regions?.flags ?? 0) | (prefix === noBytes ? 0 : frameFlag.identity);
    const bytes = encoded.end - encoded.start;
    if (inPlace && encoded.buffer === target && encoded.end <= this.#messageBytes) {
      if (prefix !== noBytes) target.set(prefix, this.#at + frameHeaderBytes);
      this.#commit(head, flags, prefix.byteLength + bytes);
      return;
    }
    const body = Uint8Array.prototype.subarray.call(encoded.buffer, encoded.start, encoded.end);
    if (messageHeaderBytes + before + bytes <= this.#messageBytes) {
      this.raw(head, flags, body, prefix);
      return;
    }
    const descriptor = new Uint8Array(overflowBytes);
    try {
      writeOverflow(new DataView(descriptor.buffer), 0, offer(body));
    } catch (error) {
      this.#returnUnused();
      throw error;
    }
    this.raw(head, flags | frameFlag.overflow, descriptor, prefix);
  }

  #encode(target: EncodeTarget, start: number, value: unknown, regions: RegionCodec | undefined): Encoded {
    // From inside another value: refused there.
    if (this.#encoding) return encodeAt(target, start, value, regions);
    this.#encoding = true;
    try {
      return encodeAt(target, start, value, regions);
    } catch (error) {
      this.#returnUnused();
      throw error;
    } finally {
      this.#encoding = false;
      if (this.#closed) this.#returnSlot();
    }
  }

  /** Sends what is open, and what waits as far as there are slots. True if anything left. */
  flush(): boolean {
    if (this.#encoding) {
      this.#host.markDirty();
      return false;
    }
    const before = this.#posted;
    this.#post();
    this.#drain();
    if (this.#waiting.length > 0) this.#host.markDirty();
    return this.#posted !== before;
  }

  onSent(status: number): void {
    this.#posted--;
    if (this.#closed) {
      if (this.#posted === 0) this.#host.onDrained();
      return;
    }
    if (status !== 0) this.#host.onSendFailed(status);
    else if (this.#waiting.length > 0) this.#host.markDirty();
  }

  /** What was put in so far leaves, what comes now waits. */
  hold(): void {
    this.#post();
    this.#held ??= [];
  }

  /** What waited since `hold` leaves after what came before. */
  resume(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    this.#waiting.push(...held);
    if (held.length > 0) this.#host.markDirty();
  }

  /** The same, without what waited. */
  dropHeld(): void {
    for (const { byteLength } of this.#held ?? []) this.#waitingBytes -= byteLength;
    this.#held = undefined;
  }

  /** Drops what has not been posted and takes nothing more. */
  close(): void {
    this.#closed = true;
    if (!this.#encoding) this.#returnSlot();
    this.#waiting = [];
    this.#held = undefined;
    this.#waitingBytes = 0;
    if (this.#posted === 0) this.#host.onDrained();
  }

  /** A slot without a frame would be held until the next frame comes, which may be never. */
  #returnUnused(): void {
    if (this.#frames === 0) this.#returnSlot();
  }

  #returnSlot(): void {
    if (this.#slot >= 0) this.#port.returnSlot(this.#slot);
    this.#slot = -1;
  }

  /** Makes sure that the open message has room for `bytes` more. False when there is no slot, or others wait before us. */
  #openFor(bytes: number): boolean {
    if (this.#encoding || this.#waiting.length > 0 || this.#held !== undefined) return false;
    if (this.#slot >= 0) {
      if (this.#at + bytes <= this.#messageBytes) return true;
      this.#post();
    }
    return this.#open();
  }

  #open(): boolean {
    if (this.#closed || this.#posted >= maxPosted) return false;
    const slot = this.#port.takeSlot(this.#posted);
    if (slot < 0) return false;
    this.#slot = slot;
    this.#target = slotTarget(this.#port, slot);
    this.#at = messageHeaderBytes;
    this.#frames = 0;
    return true;
  }

  #commit(head: FrameHead, flags: number, bodyBytes: number): void {
    const view = this.#port.slabView;
    const offset = this.#slot + this.#at;
    writeHead(view, offset, head, flags, bodyBytes);
    const end = this.#at + frameHeaderBytes + bodyBytes;
    this.#at = alignFrame(end);
    // Slots are used again and again: the padding must not carry a former message's bytes to this peer.
    for (let i = end; i < this.#at; i++) this.#target[i] = 0;
    if (this.#frames++ === 0) this.#host.markDirty();
    if (this.#frames === this.#port.batchFrames) this.#post();
  }

  #post(): void {
    if (this.#slot < 0) return;
    if (this.#frames === 0) return this.#returnSlot();
    const slot = this.#slot;
    this.#slot = -1;
    const bytes = this.#at;
    writeMessageHeader(this.#port.slabView, slot, this.#frames, bytes, this.#session, this.#nonce);
    this.#host.onMessagePosted(this.#frames);
    this.#posted++;
    this.#port.send(this.#address, slot, bytes, this);
  }

  #wait(frame: Uint8Array): void {
    if (this.#closed) return;
    (this.#held ?? this.#waiting).push(frame);
    this.#waitingBytes += frame.byteLength;
    if (this.#waitingBytes > this.#maxWaitingBytes) this.#host.onOverrun(this.#waitingBytes);
    else this.#host.markDirty();
  }

  #drain(): void {
    const { full } = this;
    let taken = 0;
    while (taken < this.#waiting.length && this.#open()) {
      for (; taken < this.#waiting.length; taken++) {
        const frame = this.#waiting[taken] as Uint8Array;
        if (this.#at + frame.byteLength > this.#messageBytes) break;
        this.#target.set(frame, this.#at);
        this.#at += frame.byteLength;
        this.#frames++;
        this.#waitingBytes -= frame.byteLength;
      }
      this.#post();
    }
    if (taken > 0) this.#waiting.splice(0, taken);
    if (full && !this.full) this.#host.onRoom();
  }
}

function writeHead(view: DataView, offset: number, head: FrameHead, flags: number, bodyBytes: number): void {
  const { kind, method, callId, word } = head;
  writeFrameHeader(view, offset, kind, flags | (head.flags ?? 0), method, callId, bodyBytes, word);
}

const noBytes = new Uint8Array(0);
const nothing: EncodeTarget = Buffer.alloc(0);
const scratch: EncodeTarget = Buffer.allocUnsafeSlow(16 * 1024);

/** One Buffer a send slot, made once: msgpackr hangs its DataView on it. */
const targets = new WeakMap<Port, EncodeTarget[]>();

function slotTarget(port: Port, slot: number): EncodeTarget {
  let buffers = targets.get(port);
  if (buffers === undefined) {
    buffers = [];
    targets.set(port, buffers);
  }
  const index = slot / port.slotBytes;
  const target = buffers[index] ?? port.slab.subarray(slot, slot + port.slotBytes);
  buffers[index] = target;
  return target;
}
