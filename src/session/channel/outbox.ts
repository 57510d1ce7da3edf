/*
 * The part `session/channel`: the numbered messages of one session, sealed or not: an outbox and an inbox.
 * Promises: frames leave in order, many in one message, within bounds of bytes and messages. A loss is noticed; a
 * repeated or forged message has no effect.
 * Takes: send slots from `fabric`, the layout of messages from `wire`, ciphers from `security`.
 */

import { ByteBudget, type ByteShare } from "../../base/flow/byte-budget.ts";
import type { Counters } from "../../base/observe/counters.ts";
import type { Port, SendListener } from "../../fabric/port.ts";
import type { Flushable, Turns } from "../../fabric/progress.ts";
import { slotBuffers } from "../../fabric/send-slots.ts";
import type { MessageSealer } from "../../security/sealing/message-sealer.ts";
import { sealedTagBytes } from "../../security/sealing/sealed-message.ts";
import { giveBodyMemory, inBodyMemory } from "../../wire/body-memory.ts";
import { type Encoded, type EncodeTarget, encodeAt } from "../../wire/encode-value.ts";
import type { RegionCodec } from "../../wire/extension.ts";
import {
  type FrameHead,
  frameFlag,
  frameHeaderBytes,
  frameKind,
  type RendezvousBody,
  rendezvousDescriptor,
  sealedRendezvousBytes,
  writeHead,
} from "../../wire/frame.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { alignFrame, messageHeaderBytes, mostNumber, Nonce, writeMessageHeader } from "../../wire/message.ts";
import { type FrameChunk, FrameQueue } from "./frame-queue.ts";

/** The events of an outbox, for its session. */
export interface OutboxListener {
  readonly counters: Pick<Counters, "messagesSent" | "framesSent">;
  /** Whether the heartbeat watches the peer. */
  readonly isWatched: boolean;
  /** The longest body that both sides take, in bytes. */
  readonly bodyLimit: number;
  /** The outbox holds frames from now on. The peer may have died while nothing was open, so it must be watched. */
  watch(): void;
  /** A message could not be delivered. `status` and `detail` are the arguments of `SendListener`. */
  onSendFailed(status: number, detail?: number): void;
  /** The outbox was full and takes requests again. */
  onRoom(): void;
  /** More frames wait than a receiving peer can cause. */
  onOverrun(waitingBytes: number): void;
  /** The outbox is closed and its last message has left. */
  onDrained(): void;
}

/**
 * Keeps the body of a call's frame for the peer to pull. Throws when it cannot. The body lies in body memory, which the
 * keeper then owns.
 */
export type OfferBody = (body: Uint8Array, callId: number) => RendezvousBody;

/**
 * With less room left in a message, the next value begins another message. Most values fit then, and the others are
 * copied.
 */
const usefulRoom = 2048;
/** The same for a chunk of the waiting frames, unless the last value was longer. */
const leastRoom = 256;

/**
 * The most posted and uncompleted messages of one session. More messages wait, so that a slow peer cannot take all
 * slots.
 */
const maxPosted = 16;

/**
 * Turns frames into messages for one peer. Frames of one turn share a message, because a system call costs more than a
 * hundred small frames. They are written in place into a registered send slot. Without a slot, encoded frames wait in
 * order.
 */
export class Outbox implements SendListener, Flushable {
  readonly #port: Port;
  readonly #address: number;
  readonly #progress: Turns;
  readonly #listener: OutboxListener;
  /** On the list of objects to flush at the end of this turn. */
  flushQueued = false;
  /** The length of the last value, in bytes. */
  valueBytes = 0;
  /** Set when messages are sealed. */
  #sealer: MessageSealer | undefined;
  /**
   * The most bytes of header and frames in a message that both sides can take. It leaves room for the tag of a sealed
   * message.
   */
  #messageBytes: number;
  readonly #maxQueuedBytes: number;
  readonly #maxWaitingBytes: number;
  #session = 0;
  #nonce = new Nonce(0n);
  /** The number of the last message. An outbox that takes over continues from it. */
  lastNumber = 0;
  framesLeft = 0;
  readonly #buffers: Buffer[];

  /** The open message: its slot's offset in the slab or -1, a Buffer over it, where the next frame goes, frames. */
  #slot = -1;
  #target: EncodeTarget = nothing;
  #at = 0;
  #frames = 0;

  #posted = 0;
  /**
   * A message was taken out of its slot because the peer receives nothing. Later frames wait until all waiting ones
   * have left.
   */
  #isParked = false;
  readonly #share: ByteShare;
  /** Whole frames that found no slot. */
  readonly #waiting: FrameQueue;
  /** The frames since `hold`, which wait for `resume`. */
  #held: FrameQueue | undefined;
  /** A frame that found no slot. The next frame of its kind replaces it. */
  #latest: FrameHead | undefined;
  #closed = false;
  /**
   * A value is being encoded into the open slot. A getter of the user's may call, cancel or close meanwhile: the slot
   * and the head of the frame stay as they are. Only the outbox sets it.
   */
  isEncoding = false;

  /**
   * Requests are refused beyond `maxQueuedBytes`. The further answers for an honest peer fit `maxWaitingBytes`. Waiting
   * frames count in the peer's `share`.
   */
  constructor(
    port: Port,
    address: number,
    progress: Turns,
    listener: OutboxListener,
    maxQueuedBytes: number,
    maxWaitingBytes: number,
    share: ByteShare = new ByteBudget(Number.POSITIVE_INFINITY).share(),
  ) {
    this.#port = port;
    this.#buffers = slotBuffers(port);
    this.#address = address;
    this.#progress = progress;
    this.#listener = listener;
    this.#messageBytes = port.slotBytes & ~7;
    this.#maxQueuedBytes = maxQueuedBytes;
    this.#maxWaitingBytes = maxWaitingBytes;
    this.#share = share;
    this.#waiting = new FrameQueue(share);
  }

  /** Sets the peer's session, which every message names, and the longest message that the peer takes. */
  addressTo({ session, nonce, messageBytes }: Omit<ReturnPath, "address">): void {
    this.#session = session;
    this.#nonce = new Nonce(nonce);
    const tagBytes = this.#sealer === undefined ? 0 : sealedTagBytes;
    // Compared first: the peer may state any number of 32 bits, and `&` would make numbers from 2^31 on negative.
    const most = Math.min(messageBytes, this.#port.slotBytes) & ~7;
    this.#messageBytes = Math.min(this.#messageBytes, most - tagBytes);
  }

  /** Later messages are sealed. All earlier frames have left. */
  seal(sealer: MessageSealer): void {
    this.#sealer = sealer;
    this.#messageBytes -= sealedTagBytes;
  }

  get queuedBytes(): number {
    return this.#held === undefined ? this.#waiting.bytes : this.#waiting.bytes + this.#held.bytes;
  }

  /** Whether messages are posted and not completed, or frames wait to be posted. */
  get isHolding(): boolean {
    return this.#posted > 0 || this.queuedBytes > 0 || this.#latest !== undefined;
  }

  /** True when half of the possible messages are on their way, or frames wait. Then frames that are not urgent wait. */
  get congested(): boolean {
    return this.#posted * 2 >= maxPosted || !this.#waiting.isEmpty || this.#held !== undefined;
  }

  /**
   * Whether the queue has no room for a request. Frames that end something are always taken: they free more than they
   * hold.
   */
  get full(): boolean {
    const { bytes } = this.#waiting;
    return (
      bytes >= this.#maxQueuedBytes || (this.#held !== undefined && this.queuedBytes >= this.#maxQueuedBytes)
    );
  }

  /** The longest body of a frame in one message. */
  get maxBodyBytes(): number {
    return this.#messageBytes - messageHeaderBytes - frameHeaderBytes;
  }

  /** The longest prefix that fits a message with any body. */
  get maxPrefixBytes(): number {
    return this.maxBodyBytes - sealedRendezvousBytes;
  }

  /** A frame without a body. */
  bare(head: FrameHead): void {
    this.raw(head, 0, noBytes);
  }

  /**
   * A frame without a body that reports a state. While it waits for a slot, the next frame of its kind replaces it. So
   * a peer that asks repeatedly, and receives nothing, makes only one frame wait.
   */
  latest(head: FrameHead): void {
    if (this.#openFor(frameHeaderBytes)) return this.#commit(head, 0, 0);
    if (this.#closed) return;
    if (!this.#listener.isWatched) this.#listener.watch();
    this.#latest = head;
    this.#progress.flushSoon(this);
  }

  /** A frame with an encoded body, short enough for a message. */
  raw(head: FrameHead, flags: number, body: Uint8Array, prefix: Uint8Array = noBytes): void {
    const bodyBytes = prefix.byteLength + body.byteLength;
    const bytes = frameHeaderBytes + bodyBytes;
    if (!this.#openFor(bytes)) return this.#wait(head, flags, body, prefix);
    const start = this.#at + frameHeaderBytes;
    if (prefix !== noBytes) this.#target.set(prefix, start);
    this.#target.set(body, start + prefix.byteLength);
    this.#commit(head, flags, bodyBytes);
  }

  /**
   * A frame with `value` in msgpack as its body. A body of more than `mostBytes`, or too long for a message, goes to
   * `offer`. `offer` keeps it for the peer to pull and returns its location. It refuses a body that is longer than the
   * peer takes.
   *
   * `prefix` precedes the body. It stays in the frame even when the body does not. The head has its flags. It is a
   * multiple of eight bytes and at most `maxPrefixBytes`.
   *
   * `flags` is read after encoding, because only then is it known whether regions travel. The head is read after
   * encoding too, and not kept. Throws EncodeError, and then nothing is sent.
   */
  value(
    head: FrameHead,
    value: unknown,
    offer: OfferBody,
    regions?: RegionCodec & { readonly flags: number },
    prefix: Uint8Array = noBytes,
    mostBytes = Number.POSITIVE_INFINITY,
  ): void {
    const prefixBytes = prefix === noBytes ? 0 : prefix.byteLength;
    const before = frameHeaderBytes + prefixBytes;
    const inPlace = this.#openFor(before + usefulRoom);
    const chunk = inPlace ? undefined : this.#chunkFor(before);
    const target = inPlace ? this.#target : (chunk?.bytes ?? scratch);
    const start = inPlace ? this.#at + before : chunk === undefined ? 0 : this.#waiting.reservedAt + before;
    // The limit is for users' bodies. Frames with number 0 belong to the session, which begins and ends under any
    // limit.
    const isLimited = head.callId !== 0 && head.isControl !== true;
    const limit = isLimited ? this.#listener.bodyLimit : Number.POSITIVE_INFINITY;
    const encoded = this.#encode(target, start, value, regions, limit, chunk);
    const bytes = encoded.end - encoded.start;
    this.valueBytes = bytes;
    if (this.#closed) return;
    const flags = regions?.flags ?? 0;
    const mayGo = bytes <= limit && bytes <= mostBytes;
    if (mayGo && inPlace && encoded.buffer === target && encoded.end <= this.#messageBytes) {
      if (prefix !== noBytes) target.set(prefix, this.#at + frameHeaderBytes);
      this.#commit(head, flags, prefixBytes + bytes);
      return;
    }
    if (chunk !== undefined) {
      const fits = mayGo && encoded.buffer === target;
      this.#waiting.keep(fits ? alignFrame(before + bytes) : 0);
      if (fits) return this.#fill(chunk, head, flags, prefix, prefixBytes + bytes);
    }
    const body = Uint8Array.prototype.subarray.call(encoded.buffer, encoded.start, encoded.end);
    if (mayGo && messageHeaderBytes + before + bytes <= this.#messageBytes) {
      this.raw(head, flags, body, prefix);
      giveBodyMemory(body.buffer);
    } else this.#offered(head, flags, body, offer, prefix);
  }

  /** A frame with the descriptor of a body that is too long for a message. */
  #offered(head: FrameHead, flags: number, body: Uint8Array, offer: OfferBody, prefix: Uint8Array): void {
    const kept = inBodyMemory(body);
    let descriptor: Uint8Array;
    try {
      descriptor = rendezvousDescriptor(offer(kept, head.callId));
    } catch (error) {
      giveBodyMemory(kept.buffer);
      this.#returnUnused();
      throw error;
    }
    this.raw(head, flags | frameFlag.rendezvous, descriptor, prefix);
  }

  /**
   * A chunk in which a waiting value can be encoded. Undefined when that is not certain, for instance between `hold`
   * and `resume`.
   */
  #chunkFor(before: number): FrameChunk | undefined {
    if (this.#closed || this.isEncoding || this.#held !== undefined) return undefined;
    // Room for twice the last value, because a value that outgrows the chunk is copied twice.
    return this.#waiting.reserve(before + Math.max(leastRoom, 2 * this.valueBytes));
  }

  #encode(
    target: EncodeTarget,
    start: number,
    value: unknown,
    regions: RegionCodec | undefined,
    limit: number,
    chunk: FrameChunk | undefined,
  ): Encoded {
    // A call from inside another value is refused there.
    if (this.isEncoding) return encodeAt(target, start, value, regions, limit);
    this.isEncoding = true;
    try {
      return encodeAt(target, start, value, regions, limit);
    } catch (error) {
      if (chunk !== undefined) this.#waiting.keep(0);
      this.#returnUnused();
      throw error;
    } finally {
      this.isEncoding = false;
      if (this.#closed) this.#returnSlot();
    }
  }

  /** Posts the open message, and waiting frames while there are slots. True if a message left. */
  flush(): boolean {
    if (this.isEncoding) {
      this.#progress.flushSoon(this);
      return false;
    }
    const before = this.#posted;
    this.#post();
    if (!this.#waiting.isEmpty || this.#latest !== undefined) this.#drain();
    return this.#posted !== before;
  }

  onParked(): void {
    this.#isParked = true;
  }

  onSent(status: number, detail?: number): void {
    if (--this.#posted === 0) this.#isParked = false;
    if (this.#closed) {
      if (this.#posted === 0) this.#listener.onDrained();
      return;
    }
    if (status !== 0) this.#listener.onSendFailed(status, detail);
    else if (!this.#waiting.isEmpty || this.#latest !== undefined) this.#drainSoon();
  }

  /** The frames so far leave, and later frames wait. */
  hold(): void {
    this.#post();
    this.#held ??= new FrameQueue(this.#share);
  }

  /** The frames since `hold` leave after the earlier ones. */
  resume(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    this.#waiting.append(held);
    this.#drainSoon();
  }

  /** Ends `hold` and drops the frames that waited since then. */
  dropHeld(): void {
    this.#held?.clear();
    this.#held = undefined;
  }

  /** Drops all frames that have not been posted, and takes no more frames. */
  close(): void {
    this.#closed = true;
    if (!this.isEncoding) this.#returnSlot();
    this.#waiting.clear();
    this.dropHeld();
    this.#latest = undefined;
    if (this.#posted === 0) this.#listener.onDrained();
  }

  /** A slot without a frame would be held until the next frame, which may never come. */
  #returnUnused(): void {
    if (this.#frames === 0) this.#returnSlot();
  }

  #returnSlot(): void {
    if (this.#slot >= 0) this.#port.returnSlot(this.#slot);
    this.#slot = -1;
  }

  /** Makes room for `bytes` more in the open message. False when there is no slot, or other frames wait. */
  #openFor(bytes: number): boolean {
    if (this.isEncoding || !this.#waiting.isEmpty || this.#held !== undefined) return false;
    if (this.#slot >= 0) {
      if (this.#at + bytes <= this.#messageBytes) return true;
      this.#post();
    }
    return this.#open();
  }

  #open(): boolean {
    if (this.#closed || this.#isParked || this.#posted >= maxPosted) return false;
    const slot = this.#port.takeSlot(this.#posted);
    if (slot < 0) return false;
    this.#slot = slot;
    const index = slot / this.#port.slotBytes;
    this.#target = this.#buffers[index] ??= this.#port.slab.subarray(slot, slot + this.#port.slotBytes);
    this.#at = messageHeaderBytes;
    this.#frames = 0;
    return true;
  }

  #commit(head: FrameHead, flags: number, bodyBytes: number): void {
    const view = this.#port.slabView;
    const start = this.#at;
    writeHead(view, this.#slot + start, head, flags, bodyBytes);
    const end = start + frameHeaderBytes + bodyBytes;
    this.#at = alignFrame(end);
    // Slots are reused: the padding must not carry bytes of a former message to this peer.
    for (let i = end; i < this.#at; i++) this.#target[i] = 0;
    if (this.#frames++ === 0) this.#progress.flushSoon(this);
    const { batchFrames } = this.#port;
    if (this.#frames < batchFrames) return;
    const { kind, isOneWay } = head;
    const mayWait = isOneWay === true || kind === frameKind.output || kind === frameKind.input;
    if (!mayWait || isLongBatch(batchFrames, this.#frames, this.#at, end - start)) this.#post();
  }

  #post(): void {
    if (this.#slot < 0) return;
    if (this.#frames === 0) return this.#returnSlot();
    const slot = this.#slot;
    this.#slot = -1;
    const view = this.#port.slabView;
    let bytes = this.#at;
    if (this.#sealer === undefined) {
      const number = this.#session === 0 ? 0 : (this.lastNumber % mostNumber) + 1;
      this.lastNumber = number;
      writeMessageHeader(view, slot, this.#frames, bytes, this.#session, this.#nonce, number);
    } else {
      // Less than 0: no more messages can be sealed.
      bytes = this.#sealer.seal(this.#port, slot, this.#frames, bytes, this.#session, this.#nonce);
      if (bytes < 0) {
        this.#port.returnSlot(slot);
        return this.#listener.onSendFailed(sequenceEnded);
      }
    }
    const { counters } = this.#listener;
    counters.messagesSent++;
    counters.framesSent += this.#frames;
    this.framesLeft += this.#frames;
    this.#posted++;
    if (!this.#listener.isWatched) this.#listener.watch();
    this.#port.send(this.#address, slot, bytes, this);
  }

  /** Flushes at the end of the turn if waiting frames may leave once there is a slot. */
  #drainSoon(): void {
    if (!this.#waiting.isEmpty || (this.#latest !== undefined && this.#held === undefined))
      this.#progress.flushSoon(this);
  }

  /** The frame leaves after the waiting ones. */
  #wait(head: FrameHead, flags: number, body: Uint8Array, prefix: Uint8Array): void {
    if (this.#closed) return;
    const bodyBytes = prefix.byteLength + body.byteLength;
    const frameBytes = alignFrame(frameHeaderBytes + bodyBytes);
    const chunk = (this.#held ?? this.#waiting).place(frameBytes);
    if (chunk === undefined) return this.#listener.onOverrun(this.queuedBytes + frameBytes);
    const bodyAt = chunk.used - frameBytes + frameHeaderBytes + prefix.byteLength;
    chunk.bytes.set(body, bodyAt);
    this.#fill(chunk, head, flags, prefix, bodyBytes);
  }

  /** Fills in the last frame of a chunk, with its body already in place. */
  #fill(chunk: FrameChunk, head: FrameHead, flags: number, prefix: Uint8Array, bodyBytes: number): void {
    if (!this.#listener.isWatched) this.#listener.watch();
    const at = chunk.used - alignFrame(frameHeaderBytes + bodyBytes);
    writeHead(chunk.view, at, head, flags, bodyBytes);
    if (prefix !== noBytes) chunk.bytes.set(prefix, at + frameHeaderBytes);
    for (let i = at + frameHeaderBytes + bodyBytes; i < chunk.used; i++) chunk.bytes[i] = 0;
    if (this.queuedBytes > this.#maxWaitingBytes) this.#listener.onOverrun(this.queuedBytes);
    else this.#progress.flushSoon(this);
  }

  #drain(): void {
    const { full } = this;
    while (!this.#waiting.isEmpty && this.#open()) {
      const moved = this.#waiting.moveTo(this.#target, this.#at, this.#messageBytes);
      this.#at += moved.bytes;
      this.#frames += moved.frames;
      this.#post();
    }
    const latest = this.#latest;
    if (latest !== undefined && this.#openFor(frameHeaderBytes)) {
      this.#latest = undefined;
      this.#commit(latest, 0, 0);
      this.#post();
    }
    if (full && !this.full) this.#listener.onRoom();
    this.#drainSoon();
  }
}

const sequenceEnded = 75; // EOVERFLOW
const noBytes = new Uint8Array(0);
const nothing: EncodeTarget = Buffer.alloc(0);
const scratch: EncodeTarget = Buffer.allocUnsafeSlow(16 * 1024);

/**
 * The factor by which a batch of items or one-way requests may be longer. Their window pipelines them, so neither side
 * waits for the batch.
 */
const itemBatches = 4;
/** Bytes for each frame of a batch. */
const itemBatchFrameBytes = 512;

/** Whether to send a message of items and one-way requests whose last frame has `frameBytes` bytes. */
function isLongBatch(batchFrames: number, frames: number, bytes: number, frameBytes: number): boolean {
  return frames >= itemBatches * batchFrames || bytes + frameBytes > itemBatchFrameBytes * batchFrames;
}
