import type { IncomingCall } from "../call/incoming-call.ts";
import { refuseClass } from "../wire/codec.ts";
import type { RegionDescriptor, RegionSegment } from "../wire/region-descriptor.ts";
import { assertInside } from "./exposable.ts";
import { type Access, accessNumber, accessOf, type Granting, remoteRegionBrand } from "./region-kind.ts";

/**
 * A handle on memory of the caller: what a handler gets where the contract says `bulk(…)`. Read it by `call.get`, write it by `call.put`.
 * It is good until its call ends.
 */
export class RemoteRegion<A extends Access = Access> {
  readonly [remoteRegionBrand] = true as const;
  readonly access: Granting<A>;
  /** The length of all segments together. How many there are is the owner's business. */
  readonly byteLength: number;
  /** @internal The call it was lent to. */
  readonly call: IncomingCall;
  /** @internal Where its bytes lie at the owner, in order. */
  readonly segments: readonly RegionSegment[];
  /** @internal What the owner knows the loan by: the key of the first segment of what was lent. 0 for a region of no bytes. */
  readonly loanKey: bigint;
  /** @internal Where this handle begins in what was lent. */
  readonly loanOffset: number;

  /** @internal Handles come out of messages. */
  constructor(
    call: IncomingCall,
    descriptor: RegionDescriptor,
    loanKey: bigint = descriptor.segments[0]?.key ?? 0n,
    loanOffset = 0,
  ) {
    this.call = call;
    this.segments = descriptor.segments;
    this.byteLength = descriptor.bytes;
    this.access = accessOf(descriptor.access) as Granting<A>;
    this.loanKey = loanKey;
    this.loanOffset = loanOffset;
  }

  /** A handle on a part. @throws RpcError `out_of_range` when the part does not lie inside. */
  slice(offset: number, length: number = this.byteLength - offset): RemoteRegion<A> {
    assertInside("slice", offset, length, this.byteLength);
    const access = accessNumber(this.access);
    const segments = sliceRemote(this.segments, offset, length);
    return new RemoteRegion(
      this.call,
      { access, bytes: length, segments },
      this.loanKey,
      this.loanOffset + offset,
    );
  }
}

function sliceRemote(segments: readonly RegionSegment[], offset: number, length: number): RegionSegment[] {
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
  "a region cannot travel here: a handler can use the caller's memory, not pass it on",
);
