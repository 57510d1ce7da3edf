import { z } from "zod";
import {
  type BulkStreamLike,
  isBulkStreamLike,
  isRemoteStreamLike,
  type RemoteStreamLike,
  type StreamDirection,
} from "../bulk/stream-kind.ts";

/** The schema `bulkStream` makes: a client passes a stream of its engine's, the handler opens it. */
export type BulkStreamSchema<D extends StreamDirection> = z.ZodType<RemoteStreamLike<D>, BulkStreamLike<D>>;

/**
 * A schema for bytes of any number that flow while the call runs, moved by one-sided transfers. `direction` names what the side does that receives it:
 * with `bulkStream("read")` a handler reads it by `call.readable`, with `bulkStream("write")` it writes it by `call.writable`.
 *
 * @throws TypeError for an unknown direction.
 */
export function bulkStream<D extends StreamDirection>(direction: D): BulkStreamSchema<D> {
  if (direction !== "read" && direction !== "write")
    throw new TypeError(
      `bulkStream: direction must be "read" or "write", it is ${JSON.stringify(direction)}`,
    );
  // On z.unknown() and not z.custom(), which has no JSON Schema.
  const schema = z
    .unknown()
    .superRefine((value, context) => {
      const fault = describeFault(value, direction);
      if (fault !== undefined) context.addIssue({ code: "custom", message: fault });
    })
    .meta({ type: "object", "x-cinnabar-bulk-stream": { direction } });
  // The client's stream becomes the handler's between the two validations, on the wire, as a region does.
  return schema as z.ZodType<unknown, unknown> as BulkStreamSchema<D>;
}

function describeFault(value: unknown, direction: StreamDirection): string | undefined {
  if (!isBulkStreamLike(value) && !isRemoteStreamLike(value)) return "expected a byte stream";
  return value.direction === direction
    ? undefined
    : `byte stream is for "${value.direction}", the method needs one for "${direction}"`;
}
