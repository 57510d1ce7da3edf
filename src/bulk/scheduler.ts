import type { Extent, Port, TransferOp, TransferOwner } from "../fabric/port.ts";
import { ExtentQueue } from "./extents.ts";
import { type Pacing, windowOf } from "./pacing.ts";

/** Who a run belongs to. */
export interface RunOwner {
  /** Asked before each chunk: true once nobody wants the rest any more. */
  stopped(): boolean;
  /** So many more bytes surely moved. */
  onMoved(bytes: number): void;
  /**
   * Nothing of the run is under way any more, nothing more will be posted. `status` is 0, or the first error's libfabric number; a run that was
   * stopped has status 0 and fewer bytes.
   */
  onEnded(status: number): void;
}

/** What is to be moved. */
export interface RunPlan {
  readonly op: TransferOp;
  readonly address: number;
  readonly extents: readonly Extent[];
  readonly pacing: Pacing;
  readonly owner: RunOwner;
  /** Of a write that is one chunk of one extent: what it carries to its target. */
  readonly notice?: bigint | undefined;
}

/**
 * Gives chunks out, one port's, round robin over the runs that want to go on and no more bytes at once to one peer than its window: so a long run
 * holds up neither short ones nor messages for longer than what is in flight.
 */
export class Scheduler {
  readonly port: Port;
  readonly windowBytes: number;
  readonly #peers = new Map<number, PeerQueue>();

  private constructor(port: Port) {
    this.port = port;
    this.windowBytes = windowOf(port);
  }

  /** The port's one. */
  static of(port: Port): Scheduler {
    let scheduler = schedulers.get(port);
    if (scheduler === undefined) {
      scheduler = new Scheduler(port);
      schedulers.set(port, scheduler);
    }
    return scheduler;
  }

  /** Begins a run; its first chunks are posted before this returns, if the window has room. */
  start(plan: RunPlan): Run {
    let peer = this.#peers.get(plan.address);
    if (peer === undefined) {
      peer = new PeerQueue(this, plan.address);
      this.#peers.set(plan.address, peer);
    }
    const run = new Run(peer, plan);
    peer.add(run);
    return run;
  }

  /** @internal A queue without work is not kept: addresses come and go. */
  drop(peer: PeerQueue): void {
    if (this.#peers.get(peer.address) === peer) this.#peers.delete(peer.address);
  }
}

const schedulers = new WeakMap<Port, Scheduler>();

/** The runs towards one address. */
class PeerQueue {
  readonly address: number;
  readonly #scheduler: Scheduler;
  /** Runs that want to post, the next one first. */
  readonly #waiting: Run[] = [];
  #runs = 0;
  #bytes = 0;
  #posting = false;

  constructor(scheduler: Scheduler, address: number) {
    this.#scheduler = scheduler;
    this.address = address;
  }

  get port(): Port {
    return this.#scheduler.port;
  }

  add(run: Run): void {
    this.#runs++;
    this.queue(run);
  }

  queue(run: Run): void {
    this.#waiting.push(run);
    this.post();
  }

  /** Posts what has room. A chunk that ends while it is posted comes back here; the outer turn then goes on. */
  post(): void {
    if (this.#posting) return;
    this.#posting = true;
    for (let run = this.#waiting[0]; run !== undefined; run = this.#waiting[0]) {
      if (!run.wants()) {
        this.#waiting.shift();
        run.rest();
        continue;
      }
      if (
        this.#bytes > 0 &&
        this.#bytes + run.nextBytes > Math.max(this.#scheduler.windowBytes, run.mostBytes)
      )
        break;
      this.#waiting.shift();
      run.post();
      if (run.wants()) this.#waiting.push(run);
      else run.rest();
    }
    this.#posting = false;
  }

  /** So many bytes are in flight from now on, or, negative, no more. */
  charge(bytes: number): void {
    this.#bytes += bytes;
  }

  onRunEnded(): void {
    if (--this.#runs === 0) this.#scheduler.drop(this);
  }
}

/** One list of extents on its way. */
export class Run {
  readonly mostBytes: number;
  readonly #peer: PeerQueue;
  readonly #op: TransferOp;
  readonly #extents: ExtentQueue;
  readonly #pacing: Pacing;
  readonly #owner: RunOwner;
  readonly #notice: bigint | undefined;
  /** Chunks that are not in flight, to be used again: there are never more than `inFlight` of them. */
  readonly #idle: Chunk[] = [];
  #inFlight = 0;
  /** Whether it stands in its peer's queue. */
  #queued = true;
  #status = 0;
  #ended = false;

  constructor(peer: PeerQueue, { op, extents, pacing, owner, notice }: RunPlan) {
    this.#peer = peer;
    this.#op = op;
    this.#extents = new ExtentQueue(extents);
    this.#pacing = pacing;
    this.#owner = owner;
    this.#notice = notice;
    this.mostBytes = pacing.chunkBytes * pacing.inFlight;
  }

  get nextBytes(): number {
    return Math.min(this.#pacing.chunkBytes, this.#extents.remaining);
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
      !this.#owner.stopped()
    );
  }

  /** It has left the queue: until a chunk comes back, if one is out. */
  rest(): void {
    this.#queued = false;
    if (this.#inFlight === 0) this.#end();
  }

  /** Posts a chunk, which may end before this returns. */
  post(): void {
    const { port, address } = this.#peer;
    const extents = this.#extents.take(this.#pacing.chunkBytes, port.maxExtents);
    const chunk = this.#idle.pop() ?? new Chunk(this);
    chunk.bytes = this.#extents.takenBytes;
    this.#inFlight++;
    this.#peer.charge(chunk.bytes);
    port.transfer(this.#op, address, extents, chunk, this.#notice);
  }

  onChunk(chunk: Chunk, status: number, moved: number): void {
    this.#idle.push(chunk);
    this.#inFlight--;
    this.#peer.charge(-chunk.bytes);
    this.#status ||= status;
    if (moved > 0) this.#owner.onMoved(moved);
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
    this.#peer.onRunEnded();
    this.#owner.onEnded(this.#status);
  }
}

/** One transfer in flight. */
class Chunk implements TransferOwner {
  bytes = 0;
  readonly #run: Run;

  constructor(run: Run) {
    this.#run = run;
  }

  onTransferred(status: number, moved: number): void {
    this.#run.onChunk(this, status, moved);
  }
}
