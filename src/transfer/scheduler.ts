import type { Extent, Port, TransferListener, TransferOp } from "../fabric/port.ts";
import { ChunkedTransfer, TransferTurns } from "./chunked-transfer.ts";
import type { ChunkListener } from "./control/sealed-bulk.ts";
import { CutQueue, sliceExtent } from "./extents.ts";
import { Contention, type Pacing, type Window, windowOf } from "./pacing.ts";

/** The content of a one-sided transfer, and its pacing. */
export interface OneSidedPlan {
  readonly op: TransferOp;
  readonly address: number;
  readonly extents: readonly Extent[];
  readonly pacing: Pacing;
  readonly listener: ChunkListener<number>;
  /** The put notification that the write carries to its target; only for a write that is one chunk of one extent. */
  readonly notification?: bigint | undefined;
}

/**
 * Posts the chunks of one port's transfers: round robin over the transfers to one peer, with at most a window of bytes
 * in flight to it. A long transfer therefore delays short ones, and messages, by no more than the bytes in flight.
 */
export class Scheduler {
  readonly #port: Port;
  readonly #window: Window;
  readonly contention: Contention;
  readonly #peers = new Map<number, PeerWindow>();

  private constructor(port: Port) {
    this.#port = port;
    this.#window = windowOf(port);
    this.contention = new Contention(port);
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
  start(plan: OneSidedPlan): OneSidedTransfer {
    const { address } = plan;
    let peer = this.#peers.get(address);
    if (peer === undefined) {
      // Kept only while it has work, because addresses change.
      const made = new PeerWindow(this.#port, this.#window, this.contention, () => {
        if (this.#peers.get(address) === made) this.#peers.delete(address);
      });
      this.#peers.set(address, made);
      peer = made;
    }
    const transfer = new OneSidedTransfer(peer, plan);
    this.contention.onTransfer(transfer.remaining);
    transfer.start();
    return transfer;
  }
}

const schedulers = new WeakMap<Port, Scheduler>();

/** The bytes in flight to one address. */
class PeerWindow {
  readonly port: Port;
  readonly turns = new TransferTurns();
  readonly #window: Window;
  readonly #contention: Contention;
  readonly #onIdle: () => void;
  #transfers = 0;
  #bytes = 0;

  constructor(port: Port, window: Window, contention: Contention, onIdle: () => void) {
    this.port = port;
    this.#window = window;
    this.#contention = contention;
    this.#onIdle = onIdle;
  }

  roomFor(transfer: OneSidedTransfer): number {
    const { isShared } = this.#contention;
    const chunkBytes = transfer.chunkBytes(isShared);
    const windowBytes = Math.max(
      isShared ? this.#window.sharedBytes : this.#window.bytes,
      chunkBytes * transfer.maxInFlight,
    );
    const nextBytes = Math.min(chunkBytes, transfer.remaining);
    return this.#bytes > 0 && this.#bytes + nextBytes > windowBytes ? 0 : chunkBytes;
  }

  onTransferBegan(): void {
    this.#transfers++;
  }

  onTransferEnded(): void {
    if (--this.#transfers === 0) this.#onIdle();
  }

  onPosted(bytes: number): void {
    this.#bytes += bytes;
    this.#contention.onPosted(bytes);
  }

  onLanded(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** A transfer with one native call and one completion for each chunk. */
export class OneSidedTransfer extends ChunkedTransfer<number> {
  readonly #window: PeerWindow;
  readonly #plan: OneSidedPlan;
  readonly #extents: CutQueue<Extent>;
  /** Chunks that are not in flight, to be used again: there are never more than `inFlight` of them. */
  readonly #idle: Chunk[] = [];

  constructor(window: PeerWindow, plan: OneSidedPlan) {
    super(window.turns, plan.listener);
    this.#window = window;
    this.#plan = plan;
    this.#extents = new CutQueue(plan.extents, sliceExtent);
    window.onTransferBegan();
  }

  override get remaining(): number {
    return this.#extents.remaining;
  }

  override get maxInFlight(): number {
    return this.#plan.pacing.inFlight;
  }

  override get room(): number {
    return this.#window.roomFor(this);
  }

  /** The most bytes of the next chunk. A chunk with a notification is not cut. */
  chunkBytes(isShared: boolean): number {
    const { chunkBytes, sharedChunkBytes = chunkBytes } = this.#plan.pacing;
    return isShared && this.#plan.notification === undefined ? sharedChunkBytes : chunkBytes;
  }

  protected override move(maxBytes: number): void {
    const { port } = this.#window;
    const { op, address, notification } = this.#plan;
    const extents = this.#extents.take(maxBytes, port.maxExtents);
    const chunk = this.#idle.pop() ?? new Chunk(this);
    chunk.bytes = this.#extents.takenBytes;
    this.#window.onPosted(chunk.bytes);
    port.transfer(op, address, extents, chunk, notification);
  }

  onChunk(chunk: Chunk, status: number, moved: number): void {
    this.#idle.push(chunk);
    this.#window.onLanded(chunk.bytes);
    if (moved > 0) this.listener.onMoved(moved);
    this.onChunkEnded(status);
  }

  protected override onEnded(): void {
    this.#window.onTransferEnded();
  }
}

/** One chunk in flight. */
class Chunk implements TransferListener {
  bytes = 0;
  readonly #transfer: OneSidedTransfer;

  constructor(transfer: OneSidedTransfer) {
    this.#transfer = transfer;
  }

  onTransferred(status: number, moved: number): void {
    this.#transfer.onChunk(this, status, moved);
  }
}
