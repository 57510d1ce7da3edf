import type { RpcError } from "../base/errors/rpc-error.ts";
import type { Extent } from "../fabric/port.ts";
import type { RegionSegment } from "../wire/region-descriptor.ts";
import { ChunkedTransfer, Turns } from "./chunked-transfer.ts";
import type { PeerLink } from "./control/peer-link.ts";
import { CutQueue } from "./extents.ts";
import type { Pacing } from "./pacing.ts";
import { pieceTurns } from "./piece-turns.ts";
import { type OneSidedListener, Scheduler } from "./scheduler.ts";
import { pieceBytes, Staging, type StagingPiece, scatter } from "./staging.ts";

/** Chunks of one get under way: one is read while another is copied. */
const chunksInFlight = 2;

/** Is told how a staged get goes. */
export interface StagedListener extends OneSidedListener {
  /** Instead of `onEnded`: there was no memory to read into. */
  onStagingFailed(error: RpcError): void;
}

/** What a staged get moves, and how. */
export interface StagedPlan {
  readonly peer: PeerLink;
  /** The bytes at their owner, and as many here, in the same order. */
  readonly remote: readonly RegionSegment[];
  readonly local: readonly Uint8Array[];
  readonly pacing: Pacing;
  readonly listener: StagedListener;
}

/**
 * A get into memory that the port cannot write: of a file whose pages the device does not pin for writing. Each chunk is
 * read into staging memory and copied from there. Nothing is copied once nobody wants it.
 */
export class StagedGet extends ChunkedTransfer {
  readonly #plan: StagedPlan;
  readonly #remote: CutQueue<RegionSegment>;
  readonly #local: CutQueue<{ readonly view: Uint8Array; readonly bytes: number }>;
  #status = 0;
  #error: RpcError | undefined;

  constructor(plan: StagedPlan) {
    super(new Turns());
    this.#plan = plan;
    this.#remote = new CutQueue(plan.remote, (segment, from, bytes) => ({
      key: segment.key,
      address: segment.address + BigInt(from),
      bytes,
    }));
    const local = plan.local.map((view) => ({ view, bytes: view.byteLength }));
    this.#local = new CutQueue(local, ({ view }, from, bytes) => ({
      view: view.subarray(from, from + bytes),
      bytes,
    }));
  }

  override get remaining(): number {
    return this.#remote.remaining;
  }

  override get maxInFlight(): number {
    return chunksInFlight;
  }

  override get room(): number {
    return pieceBytes;
  }

  protected override get isStopped(): boolean {
    return this.#status !== 0 || this.#error !== undefined || this.#plan.listener.stopped();
  }

  protected override move(maxBytes: number): void {
    const segments = this.#remote.take(maxBytes, this.#plan.peer.port.maxExtents);
    const { takenBytes } = this.#remote;
    const views = this.#local.take(takenBytes, Number.POSITIVE_INFINITY).map(({ view }) => view);
    void this.#moved(segments, views, takenBytes);
  }

  async #moved(
    segments: readonly RegionSegment[],
    views: readonly Uint8Array[],
    bytes: number,
  ): Promise<void> {
    const { port, account, services } = this.#plan.peer;
    try {
      const place = await Staging.of(port, services.limits.memoryBytes).own.take(account);
      try {
        if (await this.#readInto(place, segments, bytes)) {
          await pieceTurns.next();
          if (!this.isStopped) this.#copy(place, views, bytes);
        }
      } finally {
        place.giveBack();
      }
    } catch (error) {
      this.#error ??= error as RpcError;
    }
    this.onChunkEnded();
  }

  #copy({ memory }: StagingPiece, views: readonly Uint8Array[], bytes: number): void {
    scatter(memory, views);
    this.#plan.peer.services.counters.bytesStaged += bytes;
    this.#plan.listener.onMoved(bytes);
  }

  /** Resolves when nothing is in flight any more. True: all bytes are there. */
  #readInto(
    { registered, offset }: StagingPiece,
    segments: readonly RegionSegment[],
    bytes: number,
  ): Promise<boolean> {
    const { peer, pacing } = this.#plan;
    const extents: Extent[] = [];
    let at = offset;
    for (const { key, address, bytes: length } of segments) {
      extents.push({ local: registered, offset: at, bytes: length, key, remote: address });
      at += length;
    }
    let moved = 0;
    return new Promise((resolve) => {
      Scheduler.of(peer.port).start({
        op: "read",
        address: peer.address,
        extents,
        pacing,
        listener: {
          stopped: () => this.isStopped,
          onMoved: (more) => {
            moved += more;
          },
          onEnded: (status) => {
            this.#status ||= status;
            resolve(moved === bytes);
          },
        },
      });
    });
  }

  protected override onEnded(): void {
    const { listener } = this.#plan;
    if (this.#error === undefined) listener.onEnded(this.#status);
    else listener.onStagingFailed(this.#error);
  }
}
