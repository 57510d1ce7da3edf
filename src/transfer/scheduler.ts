import type { Extent, Port, TransferListener, TransferOp } from "../fabric/port.ts";
import { Company } from "./company.ts";
import { ExtentQueue } from "./extents.ts";
import { type Pacing, type Window, windowOf } from "./pacing.ts";

/** Is told how a chunked transfer goes. */
export interface ChunkedTransferListener {
  /** Asked before each chunk: true once nobody wants the rest any more. */
  stopped(): boolean;
  /** `bytes` more have surely moved. */
  onMoved(bytes: number): void;
  /**
   * No chunk is in flight any more, and none will be posted. `status` is 0, or the libfabric number of the first error.
   * A transfer that was stopped has status 0 and fewer bytes.
   */
  onEnded(status: number): void;
}

/** What a chunked transfer moves, and how. */
export interface ChunkedTransferPlan {
  readonly op: TransferOp;
  readonly address: number;
  readonly extents: readonly Extent[];
  readonly pacing: Pacing;
  readonly listener: ChunkedTransferListener;
  /** The put notification that the write carries to its target; only for a write that is one chunk of one extent. */
  readonly notification?: bigint | undefined;
}

/**
 * Posts the chunks of one port's transfers: round robin over the transfers to one peer, and at most a window of bytes
 * in flight to it. So a long transfer delays short ones, and messages, by no more than what is in flight.
 */
export class Scheduler {
  readonly port: Port;
  readonly window: Window;
  readonly company: Company;
  readonly #peers = new Map<number, PeerQueue>();

  private constructor(port: Port) {
    this.port = port;
    this.window = windowOf(port);
    this.company = new Company(port);
  }

  /** The scheduler of a port; the first call creates it. */
  static of(port: Port): Scheduler {
    let scheduler = schedulers.get(port);
    if (scheduler === undefined) {
      scheduler = new Scheduler(port);
      schedulers.set(port, scheduler);
    }
    return scheduler;
  }

  /** Starts a transfer. Its first chunks are posted before this returns, if the window has room. */
  start(plan: ChunkedTransferPlan): ChunkedTransfer {
    let peer = this.#peers.get(plan.address);
    if (peer === undefined) {
      peer = new PeerQueue(this, plan.address);
      this.#peers.set(plan.address, peer);
    }
    const transfer = new ChunkedTransfer(peer, plan);
    this.company.onTransfer(transfer.remaining);
    peer.add(transfer);
    return transfer;
  }

  /** @internal A queue without work is not kept: addresses come and go. */
  drop(peer: PeerQueue): void {
    if (this.#peers.get(peer.address) === peer) this.#peers.delete(peer.address);
  }
}

const schedulers = new WeakMap<Port, Scheduler>();

/** The transfers to one address. */
class PeerQueue {
  readonly address: number;
  readonly #scheduler: Scheduler;
  /** Transfers that have chunks to post, the next one first. */
  readonly #waiting: ChunkedTransfer[] = [];
  #transfers = 0;
  #bytes = 0;
  #posting = false;

  constructor(scheduler: Scheduler, address: number) {
    this.#scheduler = scheduler;
    this.address = address;
  }

  get port(): Port {
    return this.#scheduler.port;
  }

  add(transfer: ChunkedTransfer): void {
    this.#transfers++;
    this.queue(transfer);
  }

  queue(transfer: ChunkedTransfer): void {
    this.#waiting.push(transfer);
    this.post();
  }

  /**
   * Posts chunks while the window has room. A chunk that ends while it is posted re-enters; the outer loop then goes
   * on.
   */
  post(): void {
    if (this.#posting) return;
    this.#posting = true;
    const { company, window } = this.#scheduler;
    for (let transfer = this.#waiting[0]; transfer !== undefined; transfer = this.#waiting[0]) {
      if (!transfer.wants()) {
        this.#waiting.shift();
        transfer.rest();
        continue;
      }
      const isShared = company.isThere;
      const chunkBytes = transfer.chunkBytes(isShared);
      const windowBytes = Math.max(
        isShared ? window.sharedBytes : window.bytes,
        chunkBytes * transfer.mostInFlight,
      );
      const nextBytes = Math.min(chunkBytes, transfer.remaining);
      if (this.#bytes > 0 && this.#bytes + nextBytes > windowBytes) break;
      this.#waiting.shift();
      company.onPosted(nextBytes);
      transfer.post(chunkBytes);
      if (transfer.wants()) this.#waiting.push(transfer);
      else transfer.rest();
    }
    this.#posting = false;
  }

  /** Adds `bytes` to the bytes in flight; negative when they have landed. */
  charge(bytes: number): void {
    this.#bytes += bytes;
  }

  onTransferEnded(): void {
    if (--this.#transfers === 0) this.#scheduler.drop(this);
  }
}

/** One transfer, cut into chunks. Each chunk is one native call with one completion. */
export class ChunkedTransfer {
  readonly #peer: PeerQueue;
  readonly #op: TransferOp;
  readonly #extents: ExtentQueue;
  readonly #pacing: Pacing;
  readonly #listener: ChunkedTransferListener;
  readonly #notification: bigint | undefined;
  /** Chunks that are not in flight, to be used again: there are never more than `inFlight` of them. */
  readonly #idle: Chunk[] = [];
  #inFlight = 0;
  /** Whether it stands in its peer's queue. */
  #queued = true;
  #status = 0;
  #ended = false;

  constructor(peer: PeerQueue, { op, extents, pacing, listener, notification }: ChunkedTransferPlan) {
    this.#peer = peer;
    this.#op = op;
    this.#extents = new ExtentQueue(extents);
    this.#pacing = pacing;
    this.#listener = listener;
    this.#notification = notification;
  }

  /** Bytes that are not posted yet. */
  get remaining(): number {
    return this.#extents.remaining;
  }

  /** Chunks that may be in flight at once. */
  get mostInFlight(): number {
    return this.#pacing.inFlight;
  }

  /** The most bytes of the next chunk. What carries a notification is not cut. */
  chunkBytes(isShared: boolean): number {
    const { chunkBytes, sharedChunkBytes = chunkBytes } = this.#pacing;
    return isShared && this.#notification === undefined ? sharedChunkBytes : chunkBytes;
  }

  /** Nobody waits for it: it posts no more, and ends now if nothing is under way. */
  stop(): void {
    if (this.#inFlight === 0) this.#end();
  }

  /** Whether it would post a chunk now. */
  wants(): boolean {
    return (
      !this.#ended &&
      this.#status === 0 &&
      this.#extents.remaining > 0 &&
      this.#inFlight < this.#pacing.inFlight &&
      !this.#listener.stopped()
    );
  }

  /** It has left the queue: until a chunk comes back, if one is out. */
  rest(): void {
    this.#queued = false;
    if (this.#inFlight === 0) this.#end();
  }

  /** Posts a chunk of so many bytes at most, which may end before this returns. */
  post(chunkBytes: number): void {
    const { port, address } = this.#peer;
    const extents = this.#extents.take(chunkBytes, port.maxExtents);
    const chunk = this.#idle.pop() ?? new Chunk(this);
    chunk.bytes = this.#extents.takenBytes;
    this.#inFlight++;
    this.#peer.charge(chunk.bytes);
    port.transfer(this.#op, address, extents, chunk, this.#notification);
  }

  onChunk(chunk: Chunk, status: number, moved: number): void {
    this.#idle.push(chunk);
    this.#inFlight--;
    this.#peer.charge(-chunk.bytes);
    this.#status ||= status;
    if (moved > 0) this.#listener.onMoved(moved);
    if (!this.wants()) {
      if (this.#inFlight === 0) this.#end();
    } else if (!this.#queued) {
      this.#queued = true;
      this.#peer.queue(this);
      return;
    }
    // Its bytes are free for the others.
    this.#peer.post();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#peer.onTransferEnded();
    this.#listener.onEnded(this.#status);
  }
}

/** One transfer in flight. */
class Chunk implements TransferListener {
  bytes = 0;
  readonly #chunked: ChunkedTransfer;

  constructor(transfer: ChunkedTransfer) {
    this.#chunked = transfer;
  }

  onTransferred(status: number, moved: number): void {
    this.#chunked.onChunk(this, status, moved);
  }
}
