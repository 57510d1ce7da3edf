import type { Extent, RegisteredMemory } from "../fabric/port.ts";
import type { RegionSegment } from "../wire/region-descriptor.ts";

/** A contiguous segment of local memory in a registration. */
export interface LocalSegment {
  readonly memory: RegisteredMemory;
  /** First byte in the registration. */
  readonly offset: number;
  /** At least 1. */
  readonly bytes: number;
}

/** A part of a transfer: `bytes` bytes between two lists of segments, from an offset in each. */
export interface RegisteredPart {
  readonly remote: readonly RegionSegment[];
  readonly remoteOffset: number;
  readonly local: readonly LocalSegment[];
  readonly localOffset: number;
  readonly bytes: number;
}

/**
 * The fewest extents that move all parts in order: cut where the memory of a side ends, joined where both sides
 * continue.
 */
export function planExtents(parts: readonly RegisteredPart[]): Extent[] {
  const extents: Extent[] = [];
  for (const part of parts) planPart(part, extents);
  return extents;
}

function planPart(
  { remote, remoteOffset, local, localOffset, bytes }: RegisteredPart,
  extents: Extent[],
): void {
  let left = bytes;
  let [r, inRemote] = seek(remote, remoteOffset);
  let [l, inLocal] = seek(local, localOffset);
  while (left > 0) {
    const there = remote[r] as RegionSegment;
    const here = local[l] as LocalSegment;
    const step = Math.min(left, there.bytes - inRemote, here.bytes - inLocal);
    // Most extents begin at the start of a segment: then no bigint is made.
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

/** The segment that holds the byte, and the byte's offset in the segment. */
function seek(segments: readonly { readonly bytes: number }[], offset: number): [number, number] {
  let index = 0;
  let within = offset;
  for (const { bytes } of segments) {
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

/** Cuts a list of extents into chunks, from front to back. `slice` cuts one extent. */
export class CutQueue<E extends { readonly bytes: number }> {
  readonly #extents: readonly E[];
  readonly #slice: (extent: E, from: number, bytes: number) => E;
  #index = 0;
  /** How much of the extent at `#index` was returned. */
  #within = 0;
  /** How many bytes were not returned yet. Only the queue writes it. */
  remaining: number;
  /** The bytes of the last chunk. */
  takenBytes = 0;

  constructor(extents: readonly E[], slice: (extent: E, from: number, bytes: number) => E) {
    this.#extents = extents;
    this.#slice = slice;
    this.remaining = extents.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** The extents of the next chunk: at most `maxBytes` and `maxExtents`, and at least one byte if any is left. */
  take(maxBytes: number, maxExtents: number): E[] {
    const chunk: E[] = [];
    let room = maxBytes;
    while (room > 0 && chunk.length < maxExtents) {
      const extent = this.#extents[this.#index];
      if (extent === undefined) break;
      const bytes = Math.min(room, extent.bytes - this.#within);
      chunk.push(bytes === extent.bytes ? extent : this.#slice(extent, this.#within, bytes));
      room -= bytes;
      this.#within += bytes;
      if (this.#within === extent.bytes) {
        this.#index++;
        this.#within = 0;
      }
    }
    this.takenBytes = maxBytes - room;
    this.remaining -= this.takenBytes;
    return chunk;
  }
}

/** `bytes` bytes of an extent, from its byte `from` on. */
export function sliceExtent(extent: Extent, from: number, bytes: number): Extent {
  return { ...extent, offset: extent.offset + from, bytes, remote: extent.remote + BigInt(from) };
}
