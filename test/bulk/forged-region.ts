import type { Access } from "cinnabar";
import { Region } from "../../src/bulk/region.ts";
import { RegionCore } from "../../src/bulk/region-core.ts";
import type { RegionDescriptor, RegionSegment } from "../../src/wire/region-descriptor.ts";

const owner = { onRegionReleased: () => {} };

/**
 * What a hostile caller lends: a region that is lent like any other, and then described as its caller likes. `forge` changes the true
 * description.
 */
export class ForgedRegion<A extends Access> extends Region<A> {
  readonly #forge: (descriptor: RegionDescriptor) => RegionDescriptor;

  constructor(memory: Uint8Array, access: A, forge: (descriptor: RegionDescriptor) => RegionDescriptor) {
    super(new RegionCore(owner, [memory], access));
    this.#forge = forge;
  }

  override lend(...input: Parameters<Region["lend"]>): ReturnType<Region["lend"]> {
    const { descriptor, loan } = super.lend(...input);
    return { descriptor: this.#forge(descriptor), loan };
  }
}

/** The same with its one segment changed, and its total with it. */
export function withSegment(
  descriptor: RegionDescriptor,
  change: (segment: RegionSegment) => Partial<RegionSegment>,
): RegionDescriptor {
  const segment = descriptor.segments[0] as RegionSegment;
  const changed = { ...segment, ...change(segment) };
  return { ...descriptor, bytes: changed.bytes, segments: [changed] };
}
