import { randomBytes } from "node:crypto";
import { access, type Extent, type RegisteredMemory, type TransferOp } from "./port.ts";

const keyRejected = 266; // FI_ENOKEY
const notPermitted = 13; // EACCES
const outOfRange = 34; // ERANGE

interface MemRegion {
  readonly bytes: Uint8Array;
  readonly access: number;
  readonly key: bigint;
}

/** The memory that is registered at a mem port: by index for its owner, by key for everybody else. */
export class MemRegions {
  readonly #byIndex: (MemRegion | undefined)[] = [];
  readonly #byKey = new Map<bigint, MemRegion>();

  get size(): number {
    return this.#byKey.size;
  }

  get registeredBytes(): number {
    let registeredBytes = 0;
    for (const { bytes } of this.#byKey.values()) registeredBytes += bytes.byteLength;
    return registeredBytes;
  }

  add(memory: ArrayBufferLike, byteOffset: number, byteLength: number, rights: number): RegisteredMemory {
    const region = {
      bytes: new Uint8Array(memory, byteOffset, byteLength),
      access: rights,
      key: randomBytes(8).readBigUInt64LE(),
    };
    let index = this.#byIndex.indexOf(undefined);
    if (index < 0) index = this.#byIndex.length;
    this.#byIndex[index] = region;
    this.#byKey.set(region.key, region);
    return { index, key: region.key, base: 0n };
  }

  delete(index: number): void {
    const region = this.#byIndex[index];
    if (region === undefined) return;
    this.#byIndex[index] = undefined;
    this.#byKey.delete(region.key);
  }

  /** Copies between an extent of these and a peer's memory. 0, or why that may not be touched so. */
  move(op: TransferOp, peers: MemRegions, { local, offset, bytes, key, remote }: Extent): number {
    const region = peers.#byKey.get(key);
    if (region === undefined) return keyRejected;
    if ((region.access & (op === "read" ? access.remoteRead : access.remoteWrite)) === 0) return notPermitted;
    if (remote + BigInt(bytes) > BigInt(region.bytes.byteLength)) return outOfRange;
    const here = (this.#byIndex[local.index] as MemRegion).bytes.subarray(offset, offset + bytes);
    const there = region.bytes.subarray(Number(remote), Number(remote) + bytes);
    if (op === "read") here.set(there);
    else there.set(here);
    return 0;
  }
}
