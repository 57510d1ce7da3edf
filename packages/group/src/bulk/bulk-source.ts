import type { CallContext, RemoteRegion } from "cinnabar/standard";

/** A parent in the tree that has the region of a collective, or is still copying it. */
export interface BulkSource {
  /** The request that brought the parent's region, and with it the right to read that. */
  readonly call: Pick<CallContext, "get" | "signal">;
  /** All of the parent's region. */
  readonly region: RemoteRegion<"read">;
  /** How many bytes from the first on the parent has, whenever it has more. */
  readonly offers: AsyncIterable<number>;
}
