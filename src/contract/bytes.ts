import { z } from "zod";
import { type ByteLengthOptions, describeLengthFault, resolveByteLength } from "./byte-length.ts";

/** The schema `bytes` makes: a zod schema, to be combined with others as any. */
export type BytesSchema = z.ZodType<Uint8Array, Uint8Array>;

/**
 * A schema for bytes that travel inside the message: a `Uint8Array`, of which a Node `Buffer` is one. For memory that the
 * peer reads or writes in place, use `bulk`.
 *
 * What arrives is the receiver's own copy. Unlike `z.instanceof(Uint8Array)` it has a JSON Schema (a base64 string), so
 * that contracts can be printed.
 *
 * @throws TypeError for an unknown option, or a limit that is no integer from 0 on.
 */
export function bytes(options: ByteLengthOptions = {}): BytesSchema {
  const limits = resolveByteLength("bytes", options);
  // On z.unknown() and not z.custom(), which has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = isBytes(value) ? describeLengthFault(value.byteLength, limits) : "expected a Uint8Array";
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta({ type: "string", contentEncoding: "base64", "x-cinnabar-bytes": { ...options } });
  // The refinement has just made sure of the type, which a check cannot tell TypeScript.
  return schema as z.ZodType<unknown, unknown> as BytesSchema;
}

/** Also true for one of another realm (a vm context, a test runner's sandbox), where `instanceof` is not. */
function isBytes(value: unknown): value is Uint8Array {
  return (
    value instanceof Uint8Array ||
    (ArrayBuffer.isView(value) && Object.prototype.toString.call(value) === "[object Uint8Array]")
  );
}
