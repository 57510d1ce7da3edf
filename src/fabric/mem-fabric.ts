import { randomBytes } from "node:crypto";
import { connectionAborted } from "./inbox-port.ts";
import { isDamaged } from "./libfabric/file-memory.ts";
import { type MemRegions, memoryLost } from "./mem-regions.ts";
import type { Extent, TransferOp } from "./port.ts";

/** What a fabric needs of a mem port. */
export interface MemEndpoint {
  readonly name: string;
  readonly closed: boolean;
  readonly memory: MemRegions;
  /** The links to its peers, by address. */
  readonly links: readonly (MemLink | undefined)[];
  /** A message has arrived for the port. */
  deliver(message: Uint8Array): void;
  /** A peer's write with a put notification has arrived. */
  deliverPutNotification(notification: bigint, bytes: number): void;
  /** A send has completed. Its slot is free. */
  endSend(slot: number, status: number): void;
  endTransfer(token: number, status: number, bytes: number): void;
  /** The peer behind an address is gone. */
  losePeer(address: number): void;
}

/** The link from one port to another. */
export interface MemLink {
  readonly port: MemEndpoint;
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
export class MemFabric<P extends MemEndpoint = MemEndpoint> {
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
  carry(from: MemEndpoint, link: MemLink | undefined, slot: number, message: Uint8Array): void {
    const isLost = isGone(link);
    if (!isLost) link.port.deliver(message);
    from.endSend(slot, isLost ? connectionAborted : 0);
  }

  /** Moves the bytes of a transfer, and completes it. */
  move(
    from: MemEndpoint,
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
  remove(port: MemEndpoint): void {
    this.ports.delete(port.name);
    for (const other of this.ports.values())
      other.links.forEach((link, address) => {
        if (link?.port === port) other.losePeer(address);
      });
  }

  /** A user of a port broke a rule. Tests override this to fail. */
  misused(_port: MemEndpoint, _what: string): void {}
}

export function isGone(link: MemLink | undefined): link is undefined {
  return link === undefined || link.broken || link.port.closed;
}
