import type { z } from "zod";
import type { RegionHandle } from "../memory/region-handle.ts";
import type { Access } from "../memory/region-kind.ts";
import type { ByteLengthOptions } from "./byte-length.ts";
import { handleCheck } from "./checks.ts";
import { zodOf } from "./zod-of.ts";

/** The schema that `handle` makes: both sides have a `RegionHandle`. */
export type HandleSchema<A extends Access> = z.ZodType<RegionHandle<A>, RegionHandle<A>>;

/**
 * A schema for a handle on a shared region (`region.share()`), for inputs and outputs. The receiver may borrow the
 * region with `engine.borrow(handle)`, or pass the handle on.
 *
 * `access` is the least access that the handle must grant. `minBytes` and `maxBytes` limit the length of the region;
 * default: no limit.
 *
 * @throws TypeError for an unknown access or option, or a limit that is not an integer of at least 0.
 *
 * @example
 * const Cache = service("cache.v1", {
 *   find: unary({ input: z.object({ key: z.string() }), output: z.object({ page: handle("read") }) }),
 * });
 *
 * // client: read the page without its owner's event loop, for as long as the lease lasts
 * const { page } = await cache.find({ key });
 * await using borrowed = await engine.borrow(page);
 * const bytes = await borrowed.pull(Uint8Array);
 */
export function handle<A extends Access>(access: A, options: ByteLengthOptions = {}): HandleSchema<A> {
  return zodOf(handleCheck(access, options));
}
