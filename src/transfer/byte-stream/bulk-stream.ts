import { randomBytes } from "node:crypto";
import type { ReadableStream, WritableStream } from "node:stream/web";
import type { RpcError } from "../../base/errors/rpc-error.ts";
import { type FieldsOf, integer, fail as refuseOption, resolveOptions } from "../../base/options/options.ts";
import type { OutgoingCall } from "../../call/outgoing-call.ts";
import { OwnMemory } from "../../memory/pool.ts";
import type { Region } from "../../memory/region.ts";
import { parseError } from "../../wire/fault.ts";
import {
  maxChunkBytes,
  maxChunks,
  minChunkBytes,
  minChunks,
  registerStreamClass,
  writeStreamDescriptor,
} from "../../wire/stream-descriptor.ts";
import { asCount, builtinMethod, fail, isUint32, isUint64 } from "../control/control-method.ts";
import type { PeerLink } from "../control/peer-link.ts";
import { chunkReadable, webStreams } from "./chunk-readable.ts";
import { endedEarly, RingReader, type RingShape, RingWriter, streamError } from "./ring.ts";
import { bulkStreamBrand, type StreamDirection } from "./stream-kind.ts";

/** Options of `engine.bulkStream`: the memory of the stream's ring. */
export interface BulkStreamOptions {
  /** Length of a chunk in bytes, 4096 to 2^30. Default 4 MiB. */
  readonly chunkBytes?: number | undefined;
  /** Chunks in the ring, 2 to 64. The ring takes `chunkBytes * chunks` bytes of memory. Default 3. */
  readonly chunks?: number | undefined;
}

/** Streams at once in one session. Each may keep a control request open for as long as its other side is slow. */
const maxStreams = 256;

/** The streams that each session's peer has, by number. */
const streams = new WeakMap<PeerLink, Map<bigint, BoardedStream>>();

/** A stream as what its peer asks sees it. */
export interface BoardedStream {
  /** The ring of a stream that the handler reads. */
  readonly writer: RingWriter | undefined;
  /** The ring of a stream that the handler writes. */
  readonly reader: RingReader | undefined;
  /** Ends the stream at both sides with an error, unless it is complete. */
  fail(error: RpcError): void;
}

/** A stream that the peer behind `session` has; undefined for other numbers. */
export function streamOf(session: PeerLink, stream: bigint): BoardedStream | undefined {
  return streams.get(session)?.get(stream);
}

let board: (
  stream: BulkStream,
  session: PeerLink,
  call: OutgoingCall,
  grant: (region: Region) => Uint8Array,
) => Uint8Array;

/**
 * Sends a stream with the request of `call`, which is being encoded. Returns the stream's descriptor. `grant` grants
 * the ring to the peer and returns the ring's descriptor.
 *
 * @throws RpcError `failed_precondition` for a stream that went with another call, `resource_exhausted` beyond 256
 * streams of a session, `cancelled` when the call has settled.
 */
export function boardStream(
  stream: BulkStream,
  session: PeerLink,
  call: OutgoingCall,
  grant: (region: Region) => Uint8Array,
): Uint8Array {
  return board(stream, session, call, grant);
}

/** Exposes the ring of a stream as a region of the engine. */
export type Exposer = (ring: Uint8Array, access: StreamDirection) => Region;

/**
 * A byte stream of any length between the caller and a handler, while a call runs. `engine.bulkStream("read")` makes a
 * stream that the handler reads and the caller writes (`writable`); "write" makes one that the handler writes and the
 * caller reads (`readable`).
 *
 * A stream goes into the input of one call and ends with it. The handler's side moves the bytes by one-sided transfers,
 * through a ring of chunks in the caller's memory.
 *
 * @example
 * const content = engine.bulkStream("read");
 * const done = peer.client(Files).upload({ name: "a.bin", content });
 * await Readable.toWeb(createReadStream("a.bin")).pipeTo(content.writable);
 * await done;
 */
export class BulkStream<D extends StreamDirection = StreamDirection> {
  readonly [bulkStreamBrand] = true as const;
  /** What the handler does: "read" or "write". */
  readonly direction: D;
  readonly #shape: RingShape;
  readonly #expose: Exposer;
  readonly #ring: OwnMemory;
  readonly #number = randomBytes(8).readBigUInt64LE();
  #region: Region | undefined;
  #session: PeerLink | undefined;
  readonly #writer: RingWriter | undefined;
  #reader: RingReader | undefined;
  readonly #writable: WritableStream<Uint8Array> | undefined;
  readonly #readable: ReadableStream<Uint8Array> | undefined;

  static {
    board = (stream, ...rest) => stream.#board(...rest);
  }

  /** @internal Made by `engine.bulkStream`. */
  constructor(direction: D, shape: RingShape, expose: Exposer) {
    this.direction = direction;
    this.#shape = shape;
    this.#expose = expose;
    this.#ring = new OwnMemory(shape.chunkBytes * shape.chunks, "bulkStream");
    const ring = this.#ring.bytes;
    if (direction === "read") {
      const writer = new RingWriter(shape, ring);
      this.#writer = writer;
      const { WritableStream } = webStreams();
      this.#writable = new WritableStream<Uint8Array>({
        start: (controller) => {
          this.#failWritable = (error) => controller.error(error);
          // `abort` of the sink waits for a write, and that may wait for room.
          const { signal } = controller as unknown as { readonly signal: AbortSignal };
          signal.addEventListener("abort", () => writer.abort(signal.reason));
        },
        write: (bytes) => {
          if (!(bytes instanceof Uint8Array))
            throw new TypeError("a byte stream accepts only Uint8Array chunks");
          return writer.write(bytes);
        },
        close: () => writer.close(),
      });
    } else {
      this.#readable = chunkReadable((control) => {
        this.#reader = new RingReader(shape, ring, control);
        return this.#reader;
      });
    }
  }

  #failWritable: (error: RpcError) => void = () => {};

  /**
   * Where the caller writes what the handler reads. `close` resolves when the handler has read everything; `abort`
   * fails the handler's side with the reason.
   *
   * @throws TypeError when the handler writes this stream.
   */
  get writable(): D extends "read" ? WritableStream<Uint8Array> : never {
    if (this.#writable === undefined) throw new TypeError("the handler writes this stream: use `readable`");
    return this.#writable as never;
  }

  /**
   * Where the caller reads what the handler writes. It is a byte stream, so readers may bring their own buffer.
   * Cancelling it fails the handler's side with the reason.
   *
   * @throws TypeError when the handler reads this stream.
   */
  get readable(): D extends "write" ? ReadableStream<Uint8Array> : never {
    if (this.#readable === undefined) throw new TypeError("the handler reads this stream: use `writable`");
    return this.#readable as never;
  }

  #board(session: PeerLink, call: OutgoingCall, grant: (region: Region) => Uint8Array): Uint8Array {
    if (this.#session !== undefined)
      throw streamError(
        "failed_precondition",
        "the byte stream was sent with another call; a stream can be sent once",
      );
    let ofSession = streams.get(session);
    if (ofSession === undefined) {
      ofSession = new Map();
      streams.set(session, ofSession);
    }
    if (ofSession.size >= maxStreams) {
      throw streamError(
        "resource_exhausted",
        `${session.peerName} has ${ofSession.size} byte streams open; the limit is ${maxStreams}`,
      );
    }
    if (call.settled) throw streamError("cancelled", "the call ended before it was sent");
    this.#session = session;
    this.#region = this.#expose(this.#ring.bytes, this.direction);
    ofSession.set(this.#number, {
      writer: this.#writer,
      reader: this.#reader,
      fail: (error) => this.#fail(error),
    });
    call.observe((error) => this.#onCallSettled(error));
    return writeStreamDescriptor(
      { direction: this.direction === "read" ? 1 : 2, ...this.#shape, stream: this.#number },
      grant(this.#region),
    );
  }

  #onCallSettled(error: RpcError | undefined): void {
    if (this.#session !== undefined) streams.get(this.#session)?.delete(this.#number);
    this.#region?.dispose();
    this.#fail(error ?? endedEarly());
    this.#ring.dispose();
  }

  #fail(error: RpcError): void {
    if (this.#writer !== undefined && !this.#writer.complete) {
      this.#writer.fail(error);
      this.#failWritable(error);
    }
    this.#reader?.fail(error);
  }
}

const streamFields = {
  chunkBytes: integer(minChunkBytes, maxChunkBytes, 4 * 1024 * 1024),
  chunks: integer(minChunks, maxChunks, 3),
} satisfies FieldsOf<BulkStreamOptions>;

/** @throws TypeError for an unknown direction or option; RangeError for options out of bounds. */
export function streamShape(direction: unknown, options: BulkStreamOptions): RingShape {
  if (direction !== "read" && direction !== "write")
    refuseOption(TypeError, "bulkStream", "direction", '"read" or "write"', direction);
  return resolveOptions("bulkStream", options, streamFields);
}

registerStreamClass(BulkStream);

const noStream = "the byte stream is unknown, or has ended";

interface NextInput {
  readonly stream: bigint;
  readonly seq: number;
  readonly taken: number;
}

/** Serves `next`: the handler reads. */
export const nextMethod = builtinMethod<NextInput>(
  "next",
  ([stream, at, used]) => {
    const seq = asCount(at);
    const taken = asCount(used);
    const fits = isUint64(stream) && seq !== undefined && taken !== undefined;
    return fits ? { stream, seq, taken } : undefined;
  },
  ({ stream, seq, taken }, call, session) => {
    const writer = streamOf(session, stream)?.writer;
    if (writer === undefined) fail(call, "not_found", noStream);
    else writer.onNext(call, seq, taken);
  },
);

interface PushInput {
  readonly stream: bigint;
  readonly seq: number;
  readonly bytes: number;
  readonly last: boolean;
}

/** Serves `push`: the handler writes. */
export const pushMethod = builtinMethod<PushInput>(
  "push",
  ([stream, at, length, last]) => {
    const seq = asCount(at);
    const bytes = asCount(length);
    const fits = isUint64(stream) && seq !== undefined && bytes !== undefined && typeof last === "boolean";
    return fits ? { stream, seq, bytes, last } : undefined;
  },
  ({ stream, seq, bytes, last }, call, session) => {
    const reader = streamOf(session, stream)?.reader;
    if (reader === undefined) fail(call, "not_found", noStream);
    else reader.onPush(call, seq, bytes, last);
  },
);

interface StopInput {
  readonly stream: bigint;
  readonly error: RpcError;
}

/** Serves `stop`: the handler's side gives the stream up. */
export const stopMethod = builtinMethod<StopInput>(
  "stop",
  ([stream, word, body]) =>
    isUint64(stream) && isUint32(word) ? { stream, error: parseError(word, body) } : undefined,
  ({ stream, error }, call, session) => {
    streamOf(session, stream)?.fail(error);
    call.settle({ value: undefined });
  },
);
