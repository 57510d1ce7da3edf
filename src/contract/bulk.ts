import { z } from "zod";
import {
  type Access,
  grants,
  isRegionLike,
  isRemoteRegionLike,
  type RegionLike,
  type RemoteRegionLike,
} from "../bulk/region-kind.ts";
import {
  type ByteLengthLimits,
  type ByteLengthOptions,
  describeLengthFault,
  resolveByteLength,
} from "./byte-length.ts";

/** The schema `bulk` makes: a client passes a region it exposes, the handler gets a handle on it. */
export type BulkSchema<A extends Access> = z.ZodType<RemoteRegionLike<A>, RegionLike<A>>;

const accesses: readonly string[] = ["read", "write", "read_write"] satisfies Access[];

/**
 * A schema for memory that the peer reads or writes in place, by one-sided transfers; only a handle travels in the message.
 *
 * `access` names the right of the side that receives the handle: with `bulk("read")` a handler may `call.get` from the
 * client's region, with `bulk("write")` it may `call.put` into it. A region exposed "read_write" serves for each. The limits
 * are on the region's whole length.
 *
 * @throws TypeError for an unknown access or option, or a limit that is no integer from 0 on.
 */
export function bulk<A extends Access>(access: A, options: ByteLengthOptions = {}): BulkSchema<A> {
  if (!accesses.includes(access)) {
    throw new TypeError(
      `bulk: access must be "read", "write" or "read_write", it is ${JSON.stringify(access)}`,
    );
  }
  const limits = resolveByteLength("bulk", options);
  // On z.unknown() and not z.custom(), which has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = describeFault(value, access, limits);
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta({ type: "object", "x-cinnabar-bulk": { access, ...options } });
  // The client's region becomes the handler's handle between the two validations, on the wire: no one parse turns one
  // into the other, so the two types cannot follow from zod's.
  return schema as z.ZodType<unknown, unknown> as BulkSchema<A>;
}

function describeFault(value: unknown, needed: Access, limits: ByteLengthLimits): string | undefined {
  if (!isRegionLike(value) && !isRemoteRegionLike(value)) return "expected a region";
  if (!grants(value.access, needed))
    return `region is exposed for "${value.access}", the method needs "${needed}"`;
  const fault = describeLengthFault(value.byteLength, limits);
  return fault === undefined ? undefined : `region ${fault}`;
}
