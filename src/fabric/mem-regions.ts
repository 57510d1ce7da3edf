import { access, type Extent, type RegisteredMemory, type TransferOp } from "./port.ts";

const keyRejected = 266; // FI_ENOKEY
const notPermitted = 13; // EACCES
const outOfRange = 34; // ERANGE
/** A file that was mapped has lost bytes, and zeros were read: EFAULT, as the kernel says it. */
export const memoryLost = 14;

/** Memory of this port, as a peer names it. */
export type PeerExtent = Pick<Extent, "key" | "remote" | "bytes">;

/** Memory that is registered at a port in TypeScript. */
export interface MemRegion {
  readonly bytes: Uint8Array;
  readonly access: number;
  readonly key: bigint;
  /** Transfers in progress on the memory. Only the fabric of a test has any. */
  users: number;
  onReleased: (() => void) | undefined;
}

/** The registered memory of a port in TypeScript: by index for its owner, by key for peers. */
export class MemRegions {
  readonly #byIndex: (MemRegion | undefined)[] = [];
  readonly #byKey = new Map<bigint, MemRegion>();

  /** Registrations since the port opened, and their bytes. */
  made = 0;
  madeBytes = 0;

  get size(): number {
    return this.#byKey.size;
  }

  get registeredBytes(): number {
    let registeredBytes = 0;
    for (const { bytes } of this.#byKey.values()) registeredBytes += bytes.byteLength;
    return registeredBytes;
  }

  add(bytes: Uint8Array, rights: number, key: bigint): RegisteredMemory {
    const region: MemRegion = { bytes, access: rights, key, users: 0, onReleased: undefined };
    this.made++;
    this.madeBytes += bytes.byteLength;
    let index = this.#byIndex.indexOf(undefined);
    if (index < 0) index = this.#byIndex.length;
    this.#byIndex[index] = region;
    this.#byKey.set(key, region);
    return { index, key, base: 0n };
  }

  /** Deregisters memory for its owner and all peers. Undefined if it was deregistered before. */
  delete(index: number): MemRegion | undefined {
    const region = this.#byIndex[index];
    if (region === undefined) return undefined;
    this.#byIndex[index] = undefined;
    this.#byKey.delete(region.key);
    return region;
  }

  /** The memory that a peer's extent names, or the error number of the refusal. */
  find(op: TransferOp, { key, remote, bytes }: PeerExtent): MemRegion | number {
    const region = this.#byKey.get(key);
    if (region === undefined) return keyRejected;
    if ((region.access & (op === "read" ? access.remoteRead : access.remoteWrite)) === 0) return notPermitted;
    return remote + BigInt(bytes) > BigInt(region.bytes.byteLength) ? outOfRange : region;
  }

  /** The bytes of a peer's extent, or the error number of the refusal. */
  lent(op: TransferOp, extent: PeerExtent): Uint8Array | number {
    const region = this.find(op, extent);
    if (typeof region === "number") return region;
    const from = Number(extent.remote);
    return region.bytes.subarray(from, from + extent.bytes);
  }

  /** Bytes of this port's own registration, or the error number that says it is gone. */
  own({ index, key }: RegisteredMemory, offset: number, bytes: number): Uint8Array | number {
    const region = this.#byIndex[index];
    if (region?.key !== key) return keyRejected;
    // A view of a buffer that was detached has no bytes.
    return offset + bytes > region.bytes.byteLength
      ? outOfRange
      : region.bytes.subarray(offset, offset + bytes);
  }

  /** Copies between an extent of this memory and a peer's. False if the local memory was deregistered. */
  copy(op: TransferOp, { local, offset, bytes, remote }: Extent, peers: MemRegion): boolean {
    const region = this.#byIndex[local.index];
    if (region?.key !== local.key) return false;
    const here = region.bytes.subarray(offset, offset + bytes);
    const there = peers.bytes.subarray(Number(remote), Number(remote) + bytes);
    if (op === "read") here.set(there);
    else there.set(here);
    return true;
  }
}
