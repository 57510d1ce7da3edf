import { markCallerMemory } from "cinnabar/contract/standard";
import { z } from "zod";
import { streamCheck } from "./stream-check.ts";
import type { BulkStreamLike, RemoteStreamLike, StreamDirection } from "./stream-kind.ts";

/** The schema that `bulkStream` makes: the client passes a `BulkStream`, the handler receives a `RemoteStream`. */
export type BulkStreamSchema<D extends StreamDirection> = z.ZodType<RemoteStreamLike<D>, BulkStreamLike<D>>;

/**
 * A schema for a byte stream of any length that flows while the call runs. The bytes move by one-sided transfers.
 *
 * `direction` is the handler's use: it reads a `bulkStream("read")` with `readable(call, stream)`, and writes a
 * `bulkStream("write")` with `writable(call, stream)`. The client makes the stream with `new BulkStream(engine,
 * direction)`.
 *
 * @throws TypeError for an unknown direction.
 *
 * @example
 * const Files = service("files.v1", {
 *   upload: unary({ input: z.object({ name: z.string(), content: bulkStream("read") }) }),
 * });
 *
 * // client
 * const content = new BulkStream(engine, "read");
 * const done = peer.client(Files).upload({ name: "a.bin", content });
 * await Readable.toWeb(createReadStream("a.bin")).pipeTo(content.writable);
 * await done;
 */
export function bulkStream<D extends StreamDirection>(direction: D): BulkStreamSchema<D> {
  const { check, json } = streamCheck(direction);
  // Based on z.unknown(), because a transform has no JSON Schema.
  const schema = z
    .unknown()
    .check((payload) => {
      const checked = check(payload.value);
      if (checked.fault === undefined) payload.value = checked.value;
      else payload.issues.push({ code: "custom", message: checked.fault, input: payload.value });
    })
    .meta({ ...json });
  // A check cannot give TypeScript the type that it makes.
  return markCallerMemory(schema as z.ZodType<unknown, unknown> as BulkStreamSchema<D>);
}
