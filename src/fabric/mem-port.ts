import { randomBytes } from "node:crypto";
import { fabricError } from "../base/errors/fabric-error.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { cancelled, connectionAborted, InboxPort } from "./inbox-port.ts";
import { isDamaged } from "./libfabric/file-memory.ts";
import type { FabricUrl, Scheme } from "./libfabric/url.ts";
import { memoryLost } from "./mem-regions.ts";
import type { Extent, Port, PortLayout, Route, SendListener, TransferOp } from "./port.ts";
import type { Target } from "./target.ts";

const connectionRefused = 111;

/** The link from one port to another. */
export interface MemLink {
  readonly port: MemPort;
  /** The link carries no more messages. Only the fabric of a test breaks links. */
  broken: boolean;
}

/** Properties of the ports of a fabric. */
export interface MemNature {
  readonly maxExtents: number;
  readonly immediateBytes: number;
  readonly reportsDeath: boolean;
  readonly revokesKeys: boolean;
  readonly refusesSilently: boolean;
}

/**
 * Connects mem ports. Every operation completes at once and in order. Tests extend this class with fabrics that lose,
 * delay and reorder operations, and complete them on command. The ports are the same.
 */
export class MemFabric<P extends MemPort = MemPort> {
  /** The open ports, by name. */
  readonly ports = new Map<string, P>();
  readonly nature: MemNature = {
    maxExtents: 256,
    immediateBytes: 8,
    reportsDeath: true,
    revokesKeys: true,
    refusesSilently: false,
  };
  #unnamed = 0;

  /** Returns a name for a port that only connects. */
  nextName(): string {
    return `anonymous.${++this.#unnamed}`;
  }

  nextKey(): bigint {
    return randomBytes(8).readBigUInt64LE();
  }

  /** Carries a message from a send slot of `from`, and completes the send. */
  carry(from: MemPort, link: MemLink | undefined, slot: number, message: Uint8Array): void {
    const isLost = isGone(link);
    if (!isLost) link.port.deliver(message);
    from.endSend(slot, isLost ? connectionAborted : 0);
  }

  /** Moves the bytes of a transfer, and completes it. */
  move(
    from: MemPort,
    link: MemLink | undefined,
    token: number,
    op: TransferOp,
    extents: readonly Extent[],
    notification: bigint | undefined,
  ): void {
    let moved = 0;
    if (isGone(link)) return from.endTransfer(token, connectionAborted, moved);
    for (const extent of extents) {
      const region = link.port.memory.find(op, extent);
      if (typeof region === "number") return from.endTransfer(token, region, moved);
      from.memory.copy(op, extent, region);
      if (isDamaged(region.bytes.buffer)) return from.endTransfer(token, memoryLost, moved);
      moved += extent.bytes;
    }
    if (notification !== undefined) link.port.deliverPutNotification(notification, moved);
    from.endTransfer(token, 0, moved);
  }

  /** Removes a port and notifies its peers. */
  remove(port: MemPort): void {
    this.ports.delete(port.name);
    for (const other of this.ports.values())
      other.links.forEach((link, address) => {
        if (link?.port === port) other.losePeer(address);
      });
  }

  /** A user of a port broke a rule. Tests override this to fail. */
  misused(_port: MemPort, _what: string): void {}
}

export function isGone(link: MemLink | undefined): link is undefined {
  return link === undefined || link.broken || link.port.closed;
}

/** The fabric of all mem ports of this thread. */
const threadFabric = new MemFabric();

/**
 * A port of `mem://`, the fabric inside one thread without native code. Messages, regions, keys, bounds and completions
 * behave as on a NIC that checks everything. A service that is tested over `mem://` meets the same limits and errors as
 * over other fabrics.
 */
export class MemPort extends InboxPort implements Port {
  readonly scheme: Scheme = "mem";
  readonly provider: string = "mem";
  readonly agent: string = "mem/1.0";
  readonly name: string;
  readonly url: string;
  readonly batchFrames: number = 64;
  /** The ring counts in 32 bits. */
  readonly maxTransferBytes: number = 2 ** 32 - 1;
  readonly maxExtents: number;
  readonly immediateBytes: number;
  readonly reportsDeath: boolean;
  readonly revokesKeys: boolean;
  readonly refusesSilently: boolean;
  readonly maxPeers: number = Number.POSITIVE_INFINITY;
  readonly isEventDriven = false;

  readonly links: (MemLink | undefined)[] = [];
  readonly #fabric: MemFabric;

  constructor(url: FabricUrl, layout: PortLayout, fabric: MemFabric = threadFabric) {
    super(layout);
    this.name = url.name === "" ? fabric.nextName() : url.name;
    if (fabric.ports.has(this.name)) {
      throw new RpcError({ code: "already_exists", message: `mem://${this.name} is already in use` });
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
  }

  get closed(): boolean {
    return this.isClosed;
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

  /** Both ends live in one process. */
  heard(): number {
    return 0;
  }

  forget(address: number): void {
    this.completions.afterDelivery(() => {
      if (this.links[address] === undefined && !this.isClosed)
        this.#fabric.misused(this, `forgets address ${address} twice`);
      this.links[address] = undefined;
      this.dropPeer(address);
    });
  }

  send(address: number, slot: number, bytes: number, listener: SendListener): void {
    // Nothing completes on a closed port.
    if (this.isClosed) {
      this.#fabric.misused(this, "sends after its close");
      this.sendSlots.put(slot);
      return listener.onSent(cancelled);
    }
    this.completions.expectSent(slot, listener);
    const message = Uint8Array.prototype.slice.call(this.slab, slot, slot + bytes);
    this.#fabric.carry(this, this.links[address], slot, message);
  }

  protected override nextKey(): bigint {
    return this.#fabric.nextKey();
  }

  deregister(index: number, onReleased?: () => void): void {
    const region = this.memory.delete(index);
    if (region === undefined && !this.isClosed)
      this.#fabric.misused(this, `deregisters region ${index} twice`);
    if (region !== undefined && region.users > 0 && this.revokesKeys) region.onReleased = onReleased;
    else onReleased?.();
  }

  protected override move(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    token: number,
    notification: bigint | undefined,
  ): void {
    this.#fabric.move(this, this.links[address], token, op, extents, notification);
  }

  /** A mem port waits for nothing outside its thread, so it never keeps the process alive. */
  setRef(): void {}

  get busy(): boolean {
    return this.completions.sends > 0 || this.unread > 0;
  }

  protected override get addresses(): number {
    return this.links.filter((link) => link !== undefined).length;
  }

  protected override get waitingWork(): number {
    return 0;
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#fabric.remove(this);
    this.abandon(cancelled);
  }
}
