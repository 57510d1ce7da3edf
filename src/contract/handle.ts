import { z } from "zod";
import type { RegionHandle } from "../bulk/region-handle.ts";
import { type Access, grants, isRegionHandleLike } from "../bulk/region-kind.ts";
import {
  type ByteLengthLimits,
  type ByteLengthOptions,
  describeLengthFault,
  resolveByteLength,
} from "./byte-length.ts";

/** The schema `handle` makes: the same handle at both sides. */
export type HandleSchema<A extends Access> = z.ZodType<RegionHandle<A>, RegionHandle<A>>;

const accesses: readonly string[] = ["read", "write", "read_write"] satisfies Access[];

/**
 * A schema for a handle on a shared region (`region.share()`), in an input or an output: who receives it may borrow the region, or pass the handle on.
 * `access` is the least that it must grant; the limits are on the region's length.
 *
 * @throws TypeError for an unknown access or option, or a limit that is no integer from 0 on.
 */
export function handle<A extends Access>(access: A, options: ByteLengthOptions = {}): HandleSchema<A> {
  if (!accesses.includes(access)) {
    throw new TypeError(
      `handle: access must be "read", "write" or "read_write", it is ${JSON.stringify(access)}`,
    );
  }
  const limits = resolveByteLength("handle", options);
  // On z.unknown() and not z.custom(), which has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = describeFault(value, access, limits);
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta({ type: "object", "x-cinnabar-handle": { access, ...options } });
  // The refinement has just made sure of the type, which a check cannot tell TypeScript.
  return schema as z.ZodType<unknown, unknown> as HandleSchema<A>;
}

function describeFault(value: unknown, needed: Access, limits: ByteLengthLimits): string | undefined {
  if (!isRegionHandleLike(value)) return "expected a handle on a region";
  if (!grants(value.access, needed)) return `handle is for "${value.access}", the method needs "${needed}"`;
  const fault = describeLengthFault(value.byteLength, limits);
  return fault === undefined ? undefined : `handle's region ${fault}`;
}
