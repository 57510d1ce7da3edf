import type { z } from "zod";
import type { Access, RegionLike, RemoteRegionLike } from "../memory/region-kind.ts";
import type { ByteLengthOptions } from "./byte-length.ts";
import { bulkCheck } from "./checks.ts";
import { zodOf } from "./zod-of.ts";

/** The schema that `bulk` makes: the client passes a `Region`, the handler receives a `RemoteRegion`. */
export type BulkSchema<A extends Access> = z.ZodType<RemoteRegionLike<A>, RegionLike<A>>;

/**
 * A schema for memory of the caller that the handler reads or writes in place. The bytes move by one-sided transfers;
 * the message carries only a descriptor.
 *
 * `access` is what the handler may do: "read" allows `call.get`, "write" allows `call.put`, "read_write" allows both. A
 * region that was exposed as "read_write" fits every method. `minBytes` and `maxBytes` limit the length of the region;
 * default: no limit. Use `bytes` for small data inside the message.
 *
 * @throws TypeError for an unknown access or option, or a limit that is not an integer of at least 0.
 *
 * @example
 * const Images = service("images.v1", {
 *   blur: unary({ input: z.object({ pixels: bulk("read_write", { maxBytes: 64 * 1024 * 1024 }) }) }),
 * });
 *
 * // The client exposes its memory; the handler changes it in place.
 * using pixels = engine.expose(new Uint8Array(1024 * 1024), { access: "read_write" });
 * await peer.client(Images).blur({ pixels });
 */
export function bulk<A extends Access>(access: A, options: ByteLengthOptions = {}): BulkSchema<A> {
  return zodOf(bulkCheck(access, options));
}
