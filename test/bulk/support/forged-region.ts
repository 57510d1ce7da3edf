import type { Access } from "cinnabar";
import type { RegionGrant } from "../../../src/memory/grant.ts";
import { Region } from "../../../src/memory/region.ts";
import { RegionCore } from "../../../src/memory/region-core.ts";
import type { RegionDescriptor, RegionSegment } from "../../../src/wire/region-descriptor.ts";

const owner = { onRegionReleased: () => {} };

/**
 * What a hostile caller lends: a region that is lent like any other, and then described as its caller likes. `forge`
 * changes the true description.
 */
export class ForgedRegion<A extends Access> extends Region<A> {
  constructor(memory: Uint8Array, access: A, forge: (descriptor: RegionDescriptor) => RegionDescriptor) {
    super(new ForgedCore(memory, access, forge));
  }
}

class ForgedCore extends RegionCore {
  readonly #forge: (descriptor: RegionDescriptor) => RegionDescriptor;

  constructor(memory: Uint8Array, access: Access, forge: (descriptor: RegionDescriptor) => RegionDescriptor) {
    super(owner, [memory], access);
    this.#forge = forge;
  }

  override grantTo(...input: Parameters<RegionCore["grantTo"]>): RegionGrant {
    const grant = super.grantTo(...input);
    const descriptor = this.#forge(grant.descriptor);
    return Object.defineProperty(grant, "descriptor", { value: descriptor });
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
