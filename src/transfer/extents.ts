import type { Extent, RegisteredMemory } from "../fabric/port.ts";
import type { RegionSegment } from "../wire/region-descriptor.ts";

/** A contiguous piece of local memory in a registration. */
export interface LocalPiece {
  readonly memory: RegisteredMemory;
  /** First byte in the registration. */
  readonly offset: number;
  /** At least 1. */
  readonly bytes: number;
}

/** `bytes` bytes between two lists of pieces, from an offset in each. Both hold that many from there on. */
export interface Leg {
  readonly remote: readonly RegionSegment[];
  readonly remoteOffset: number;
  readonly local: readonly LocalPiece[];
  readonly localOffset: number;
  readonly bytes: number;
}

/**
 * The fewest extents that move all legs in order: cut where the memory of a side ends, joined where both sides
 * continue.
 */
export function planExtents(legs: readonly Leg[]): Extent[] {
  const extents: Extent[] = [];
  for (const leg of legs) planLeg(leg, extents);
  return extents;
}

function planLeg({ remote, remoteOffset, local, localOffset, bytes }: Leg, extents: Extent[]): void {
  let left = bytes;
  let [r, inRemote] = seek(remote, remoteOffset);
  let [l, inLocal] = seek(local, localOffset);
  while (left > 0) {
    const there = remote[r] as RegionSegment;
    const here = local[l] as LocalPiece;
    const step = Math.min(left, there.bytes - inRemote, here.bytes - inLocal);
    // Mostly a piece begins here, and no number of 64 bits is made.
    const address = inRemote === 0 ? there.address : there.address + BigInt(inRemote);
    push(extents, here.memory, here.offset + inLocal, step, there.key, address);
    left -= step;
    inRemote += step;
    inLocal += step;
    if (inRemote === there.bytes) {
      r++;
      inRemote = 0;
    }
    if (inLocal === here.bytes) {
      l++;
      inLocal = 0;
    }
  }
}

/** The piece that holds the byte, and its offset in the piece. */
function seek(pieces: readonly { readonly bytes: number }[], offset: number): [number, number] {
  let index = 0;
  let within = offset;
  for (const { bytes } of pieces) {
    if (within < bytes) break;
    within -= bytes;
    index++;
  }
  return [index, within];
}

function push(
  extents: Extent[],
  local: RegisteredMemory,
  offset: number,
  bytes: number,
  key: bigint,
  remote: bigint,
): void {
  const last = extents[extents.length - 1];
  const follows =
    last !== undefined &&
    last.key === key &&
    last.local.index === local.index &&
    last.offset + last.bytes === offset &&
    last.remote + BigInt(last.bytes) === remote;
  if (follows) extents[extents.length - 1] = { ...last, bytes: last.bytes + bytes };
  else extents.push({ local, offset, bytes, key, remote });
}

/** Returns a plan in batches, from front to back. */
export class ExtentQueue {
  readonly #extents: readonly Extent[];
  #index = 0;
  /** How much of the extent at `#index` was returned. */
  #within = 0;
  #remaining: number;
  /** The bytes of the last batch. */
  takenBytes = 0;

  constructor(extents: readonly Extent[]) {
    this.#extents = extents;
    this.#remaining = extents.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** How many bytes were not returned yet. */
  get remaining(): number {
    return this.#remaining;
  }

  /** The next batch: at most `maxBytes` and `maxExtents`, and at least one byte if any is left. */
  take(maxBytes: number, maxExtents: number): Extent[] {
    const batch: Extent[] = [];
    let room = maxBytes;
    while (room > 0 && batch.length < maxExtents) {
      const extent = this.#extents[this.#index];
      if (extent === undefined) break;
      const bytes = Math.min(room, extent.bytes - this.#within);
      batch.push(
        bytes === extent.bytes
          ? extent
          : {
              ...extent,
              offset: extent.offset + this.#within,
              bytes,
              remote: extent.remote + BigInt(this.#within),
            },
      );
      room -= bytes;
      this.#within += bytes;
      if (this.#within === extent.bytes) {
        this.#index++;
        this.#within = 0;
      }
    }
    this.takenBytes = maxBytes - room;
    this.#remaining -= this.takenBytes;
    return batch;
  }
}
