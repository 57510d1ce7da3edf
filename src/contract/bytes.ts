import type { z } from "zod";
import type { ByteLengthOptions } from "./byte-length.ts";
import { bytesCheck } from "./checks.ts";
import { zodOf } from "./zod-of.ts";

/** The schema that `bytes` makes: a zod schema, which combines with others. */
export type BytesSchema = z.ZodType<Uint8Array, Uint8Array>;

/**
 * A schema for bytes inside the message: a `Uint8Array`, or a `Buffer`. The receiver gets a copy of its own. Use it for
 * small data, and `bulk` for memory that the peer should read or write in place.
 *
 * `minBytes` and `maxBytes` limit the length; default: no limit but that of a message (`limits.maxBodyBytes`). Unlike
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
