import type { RegionHandle } from "../memory/region-handle.ts";
import type { Access, RegionLike, RemoteRegionLike } from "../memory/region-kind.ts";
import type { ByteLengthOptions } from "./byte-length.ts";
import { markCallerMemory } from "./caller-memory.ts";
import { bulkCheck, bytesCheck, type Checked, handleCheck } from "./checks.ts";
import type { Schema } from "./schema.ts";

/** The schemas of `cinnabar/standard`: the same as zod's, without a library. */

/**
 * A schema for memory of the caller that the handler reads or writes in place. Like `bulk` of `cinnabar`, for contracts
 * without zod. Put it into an object with `fields`.
 *
 * @throws TypeError for an unknown access or option, or a limit that is not an integer of at least 0.
 */
export function bulk<A extends Access>(
  access: A,
  options: ByteLengthOptions = {},
): Schema<RegionLike<A>, RemoteRegionLike<A>> {
  return schemaOf(bulkCheck(access, options));
}

/**
 * A schema for bytes inside the message. Like `bytes` of `cinnabar`, for contracts without zod.
 *
 * @throws TypeError for an unknown option, or a limit that is not an integer of at least 0.
 */
export function bytes(options: ByteLengthOptions = {}): Schema<Uint8Array> {
  return schemaOf(bytesCheck(options));
}

/**
 * A schema for a handle on a shared region. Like `handle` of `cinnabar`, for contracts without zod.
 *
 * @throws TypeError for an unknown access or option, or a limit that is not an integer of at least 0.
 */
export function handle<A extends Access>(
  access: A,
  options: ByteLengthOptions = {},
): Schema<RegionHandle<A>> {
  return schemaOf(handleCheck(access, options));
}

function schemaOf<Input, Output>({ check, json, isCallerMemory }: Checked): Schema<Input, Output> {
  const jsonSchema = () => ({ ...json });
  const schema: Schema<Input, Output> = Object.freeze({
    "~standard": Object.freeze({
      version: 1 as const,
      vendor: "cinnabar",
      validate: (value: unknown) => {
        const message = check(value);
        // The check has verified the type.
        return message === undefined ? { value: value as Output } : { issues: [{ message }] };
      },
      jsonSchema: { input: jsonSchema, output: jsonSchema },
    }),
  });
  if (isCallerMemory) markCallerMemory(schema);
  return schema;
}
