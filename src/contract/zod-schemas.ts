import { z } from "zod";
import type { RegionHandle } from "../memory/region-handle.ts";
import type { Access, RegionLike, RemoteRegionLike } from "../memory/region-kind.ts";
import type { ByteLengthOptions } from "./byte-length.ts";
import { markCallerMemory } from "./caller-memory.ts";
import { bulkCheck, bytesCheck, type Checked, handleCheck } from "./checks.ts";
import { markSynchronous } from "./zod-validator.ts";

/** The schemas of memory and bytes, made by zod. `plain-schemas.ts` has the same schemas without a library. */

/** The schema that `bytes` makes: a zod schema, which combines with others. */
export type BytesSchema = z.ZodType<Uint8Array, Uint8Array>;

/**
 * A schema for bytes inside the message: a `Uint8Array`, or a `Buffer`. The receiver gets its own copy. Use it for
 * small data, and `bulk` for memory that the peer should read or write in place.
 *
 * `minBytes` and `maxBytes` limit the length; default: only the limit of a message (`limits.maxBodyBytes`). Unlike
 * `z.instanceof(Uint8Array)` this schema has a JSON Schema (a base64 string), so that contracts can be printed.
 *
 * @throws TypeError for an unknown option, or a limit that is not an integer of at least 0.
 *
 * @example
 * const Thumbs = service("thumbs.v1", {
 *   make: unary({ input: z.object({ jpeg: bytes({ maxBytes: 1_000_000 }) }), output: bytes() }),
 * });
 */
export function bytes(options: ByteLengthOptions = {}): BytesSchema {
  return zodOf<BytesSchema>(bytesCheck(options));
}

/** The schema that `bulk` makes: the client passes a `Region`, the handler receives a `RemoteRegion`. */
export type BulkSchema<A extends Access> = z.ZodType<RemoteRegionLike<A>, RegionLike<A>>;

/**
 * A schema for memory of the caller that the handler reads or writes in place. The bytes move by one-sided transfers;
 * the message carries only a descriptor.
 *
 * `access` gives the rights of the handler: "read" allows `call.get`, "write" allows `call.put`, "read_write" allows
 * both. A region that was exposed as "read_write" fits every method. `minBytes` and `maxBytes` limit the length of the
 * region; default: no limit. Use `bytes` for small data inside the message.
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

/** A zod schema that performs a check, with its JSON Schema. */
function zodOf<S extends z.ZodType>({ check, json, isCallerMemory }: Checked): S {
  // Based on z.unknown(), because z.custom() has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = check(value);
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta({ ...json });
  markSynchronous(schema);
  if (isCallerMemory) markCallerMemory(schema);
  // A check cannot give TypeScript the type that it verifies. Regions also change their type on the wire, between the
  // two validations; a schema never does that.
  return schema as z.ZodType<unknown, unknown> as S;
}
