import { refuseClass } from "../wire/extension.ts";
import type { RegionDescriptor, RegionSegment } from "../wire/region-descriptor.ts";
import { assertInside } from "./exposable.ts";
import { type Access, accessNumber, accessOf, type Granting, remoteRegionBrand } from "./region-kind.ts";

/**
 * Memory of the caller, as a handler receives it where the contract says `bulk(access)`. Read it with `call.get` or
 * `call.pull`, write it with `call.put`. It is usable until its call ends. A `RemoteRegion` cannot be passed on: share
 * the region and send its handle instead.
 *
 * @example
 * implement(Sums, {
 *   async sum({ numbers }, call) {
 *     const values = await call.pull(numbers, Float64Array); // `numbers` is a RemoteRegion<"read">
 *     return { sum: values.reduce((a, b) => a + b, 0) };
 *   },
 * });
 */
export class RemoteRegion<A extends Access = Access> {
  readonly [remoteRegionBrand] = true as const;
  /** The access that the owner granted. */
  readonly access: Granting<A>;
  /** Length of the region in bytes, over all its segments. */
  readonly byteLength: number;
  // Transfers read these fields through `grantOf`.
  private readonly call: object;
  private readonly segments: readonly RegionSegment[];
  private readonly grantKey: bigint;
  private readonly grantOffset: number;

  /** @internal Decoded from a request. */
  constructor(
    call: object,
    descriptor: RegionDescriptor,
    grantKey: bigint = descriptor.segments[0]?.key ?? 0n,
    grantOffset = 0,
  ) {
    this.call = call;
    this.segments = descriptor.segments;
    this.byteLength = descriptor.bytes;
    this.access = accessOf(descriptor.access) as Granting<A>;
    this.grantKey = grantKey;
    this.grantOffset = grantOffset;
  }

  /**
   * A part of the region: `length` bytes from `offset`; by default all bytes from `offset` to the end. Costs no round
   * trip.
   *
   * @throws RpcError `out_of_range` when the part does not lie inside the region.
   */
  slice(offset: number, length: number = this.byteLength - offset): RemoteRegion<A> {
    assertInside("slice", offset, length, this.byteLength);
    const access = accessNumber(this.access);
    const segments = sliceRemoteSegments(this.segments, offset, length);
    return new RemoteRegion(
      this.call,
      { access, bytes: length, segments },
      this.grantKey,
      this.grantOffset + offset,
    );
  }
}

/** A remote region as transfers use it. */
export interface RemoteGrant {
  readonly byteLength: number;
  /** The incoming call that brought the region; only compared. */
  readonly call: object;
  /** Where the region's bytes lie at the owner, in order. */
  readonly segments: readonly RegionSegment[];
  /** The owner's name for the grant: the key of the grant's first segment. 0 for a region of no bytes. */
  readonly grantKey: bigint;
  /** Where this region, or slice, begins in the grant. */
  readonly grantOffset: number;
}

/** The grant behind a remote region. Free of cost: it is the same object. */
export function grantOf(remote: RemoteRegion): RemoteGrant {
  return remote as unknown as RemoteGrant;
}

/** The segments of `length` bytes from `offset`. They must lie inside. */
export function sliceRemoteSegments(
  segments: readonly RegionSegment[],
  offset: number,
  length: number,
): RegionSegment[] {
  const parts: RegionSegment[] = [];
  let from = offset;
  let left = length;
  for (const { key, address, bytes } of segments) {
    if (left === 0) break;
    if (from >= bytes) {
      from -= bytes;
      continue;
    }
    const part = Math.min(left, bytes - from);
    parts.push({ key, address: address + BigInt(from), bytes: part });
    from = 0;
    left -= part;
  }
  return parts;
}

refuseClass(
  RemoteRegion,
  "a region cannot be sent here: a handler uses the memory of its caller, but cannot pass it on",
);
