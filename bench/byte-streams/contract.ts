import { bytes, clientStream, duplexStream, serverStream, service, unary } from "cinnabar";
import { bulkStream } from "cinnabar-bulk";
import { z } from "zod";

/** The memory that a byte stream has by default: 3 chunks of 4 MiB. */
const wideWindow = { bytes: 12 << 20 };

const timed = z.object({ pieceBytes: z.int(), durationMs: z.number() });
const count = z.object({ bytes: z.int() });

/** Byte streams, as `cinnabar-bulk` has them. */
export const ByBulkStream = service("bench.by_bulk_stream.v1", {
  take: unary({ input: z.object({ from: bulkStream("read") }), output: count }),
  give: unary({ input: timed.extend({ into: bulkStream("write") }), output: count }),
  bounce: unary({
    input: z.object({ from: bulkStream("read"), into: bulkStream("write") }),
    output: z.object({}),
  }),
});

const items = <const Name extends string>(name: Name, window: { readonly bytes: number } | undefined) =>
  service(name, {
    take: clientStream({ items: bytes(), output: count, ...(window === undefined ? {} : { window }) }),
    give: serverStream({ input: timed, output: bytes(), ...(window === undefined ? {} : { window }) }),
    bounce: duplexStream({ items: bytes(), output: bytes(), ...(window === undefined ? {} : { window }) }),
  });

/** The same bytes as items, with the window that streams have by default. */
export const ByItems = items("bench.by_items.v1", undefined);
/** The same with a window as wide as the ring of a byte stream. */
export const ByWideItems = items("bench.by_wide_items.v1", wideWindow);
/** The same; both sides read and write web streams that wrap the items, as an adapter of `bulkStream` would. */
export const ByWebStreams = items("bench.by_web_streams.v1", wideWindow);
