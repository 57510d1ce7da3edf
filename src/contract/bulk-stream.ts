import type { z } from "zod";
import type {
  BulkStreamLike,
  RemoteStreamLike,
  StreamDirection,
} from "../transfer/byte-stream/stream-kind.ts";
import { bulkStreamCheck } from "./checks.ts";
import { zodOf } from "./zod-of.ts";

/** The schema that `bulkStream` makes: the client passes a `BulkStream`, the handler receives a `RemoteStream`. */
export type BulkStreamSchema<D extends StreamDirection> = z.ZodType<RemoteStreamLike<D>, BulkStreamLike<D>>;

/**
 * A schema for a byte stream of any length that flows while the call runs. The bytes move by one-sided transfers.
 *
 * `direction` is what the handler does: it reads a `bulkStream("read")` with `call.readable`, and writes a
 * `bulkStream("write")` with `call.writable`. The client makes the stream with `engine.bulkStream(direction)`.
 *
 * @throws TypeError for an unknown direction.
 *
 * @example
 * const Files = service("files.v1", {
 *   upload: unary({ input: z.object({ name: z.string(), content: bulkStream("read") }) }),
 * });
 *
 * // client
 * const content = engine.bulkStream("read");
 * const done = peer.client(Files).upload({ name: "a.bin", content });
 * await Readable.toWeb(createReadStream("a.bin")).pipeTo(content.writable);
 * await done;
 */
export function bulkStream<D extends StreamDirection>(direction: D): BulkStreamSchema<D> {
  return zodOf(bulkStreamCheck(direction));
}
