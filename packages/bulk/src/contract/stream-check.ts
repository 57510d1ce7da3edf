import { bulk, type RemoteRegionLike } from "cinnabar/contract/standard";
import {
  isBulkStreamLike,
  isRemoteStreamLike,
  maxChunkBytes,
  maxChunks,
  minChunkBytes,
  minChunks,
  RemoteStream,
  type StreamDescriptor,
  type StreamDirection,
  streamNameBytes,
} from "./stream-kind.ts";

/** The result of a byte stream's schema: the stream, or the fault as a sentence. */
export type CheckedStream =
  | { readonly value: unknown; readonly fault?: undefined }
  | { readonly fault: string };

/** The common properties of all libraries' schemas for byte streams. */
export interface StreamCheck {
  check(value: unknown): CheckedStream;
  /** Its JSON Schema. */
  readonly json: Readonly<Record<string, unknown>>;
}

/**
 * A caller's stream is unchanged, because a client sends the value that it was given. The descriptor in a request
 * becomes a RemoteStream.
 *
 * @throws TypeError for an unknown direction.
 */
export function streamCheck(direction: StreamDirection): StreamCheck {
  if (direction !== "read" && direction !== "write")
    throw new TypeError(`bulkStream: direction must be "read" or "write", not ${JSON.stringify(direction)}`);
  const json = { type: "object", "x-cinnabar-bulk-stream": { direction } };
  return { check: (value) => checkStream(direction, value), json };
}

function checkStream(direction: StreamDirection, value: unknown): CheckedStream {
  if (isRemoteStreamLike(value))
    return { fault: "a handler uses the byte stream of its caller, but cannot pass it on" };
  if (isBulkStreamLike(value)) {
    const fault = `the byte stream has the direction "${value.direction}"; the method needs "${direction}"`;
    return value.direction === direction ? { value } : { fault };
  }
  if (typeof value !== "object" || value === null || !("ring" in value))
    return { fault: "expected a byte stream" };
  return checkDescriptor(direction, value as Partial<StreamDescriptor<unknown>>);
}

const rings = { read: bulk("read"), write: bulk("write") };

/** No part of a request is trusted: the ring must have the length of its chunks, and the right of its direction. */
function checkDescriptor(
  direction: StreamDirection,
  { stream, chunkBytes, chunks, ring }: Partial<StreamDescriptor<unknown>>,
): CheckedStream {
  if (!(stream instanceof Uint8Array) || stream.byteLength !== streamNameBytes)
    return { fault: `the name of the byte stream does not have ${streamNameBytes} bytes` };
  if (!isIntegerIn(chunks, minChunks, maxChunks)) return { fault: `the byte stream has ${chunks} chunks` };
  if (!isIntegerIn(chunkBytes, minChunkBytes, maxChunkBytes))
    return { fault: `the byte stream has chunks of ${chunkBytes} bytes` };
  const { access, byteLength } = (ring ?? {}) as Partial<RemoteRegionLike>;
  const verdict = rings[direction]["~standard"].validate(ring);
  if (verdict instanceof Promise || verdict.issues !== undefined || access !== direction)
    return { fault: `the byte stream has no ring that the handler may ${direction}` };
  if (byteLength !== chunks * chunkBytes)
    return {
      fault: `the byte stream has a ring of ${byteLength} bytes; its chunks have ${chunks * chunkBytes}`,
    };
  const descriptor = { stream, chunkBytes, chunks, ring: ring as RemoteRegionLike };
  return { value: new RemoteStream(direction, descriptor) };
}

function isIntegerIn(value: unknown, low: number, high: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high;
}
