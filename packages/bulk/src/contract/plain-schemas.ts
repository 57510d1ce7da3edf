import { markCallerMemory, type Schema } from "cinnabar/contract/standard";
import { streamCheck } from "./stream-check.ts";
import type { BulkStreamLike, RemoteStreamLike, StreamDirection } from "./stream-kind.ts";

/**
 * A schema for a byte stream of any length. Like `bulkStream` of `cinnabar-bulk`, for contracts without zod. Put it into
 * an object with `fields`.
 *
 * @throws TypeError for an unknown direction.
 */
export function bulkStream<D extends StreamDirection>(
  direction: D,
): Schema<BulkStreamLike<D>, RemoteStreamLike<D>> {
  const { check, json } = streamCheck(direction);
  const jsonSchema = () => ({ ...json });
  const schema: Schema<BulkStreamLike<D>, RemoteStreamLike<D>> = Object.freeze({
    "~standard": Object.freeze({
      version: 1 as const,
      vendor: "cinnabar",
      validate: (value: unknown) => {
        const checked = check(value);
        if (checked.fault !== undefined) return { issues: [{ message: checked.fault }] };
        return { value: checked.value as RemoteStreamLike<D> };
      },
      jsonSchema: { input: jsonSchema, output: jsonSchema },
    }),
  });
  return markCallerMemory(schema);
}
