import { randomBytes } from "node:crypto";
import type { ReadableStream, WritableStream } from "node:stream/web";
import { type FieldsOf, fail, integer, resolveOptions } from "cinnabar/options";
import {
  type CallContext,
  type Engine,
  implement,
  OwnMemory,
  type Region,
  type RpcError,
} from "cinnabar/standard";
import {
  type BulkStreamLike,
  bulkStreamBrand,
  maxChunkBytes,
  maxChunks,
  minChunkBytes,
  minChunks,
  type RingShape,
  type StreamDescriptor,
  type StreamDirection,
  streamNameBytes,
} from "../contract/stream-kind.ts";
import { chunkReadable, webStreams } from "./chunk-readable.ts";
import { Question } from "./question.ts";
import { endedEarly, type NextChunk, RingReader, RingWriter, streamError } from "./ring.ts";
import { ByteStreams, errorOf } from "./stream-service.ts";

/** Options of a `BulkStream`: the memory of the stream's ring. */
export interface BulkStreamOptions {
  /** Length of a chunk in bytes, 4096 to 2^30. Default 4 MiB. */
  readonly chunkBytes?: number | undefined;
  /** Chunks in the ring, 2 to 64. The ring takes `chunkBytes * chunks` bytes of memory. Default 3. */
  readonly chunks?: number | undefined;
}

const streamFields = {
  chunkBytes: integer(minChunkBytes, maxChunkBytes, 4 * 1024 * 1024),
  chunks: integer(minChunks, maxChunks, 3),
} satisfies FieldsOf<BulkStreamOptions>;

/** A stream as the side that moves its bytes needs it. */
interface SentStream {
  /** The address of the handler's engine. */
  readonly peer: string;
  /** The ring of a stream that the handler reads. */
  readonly writer: RingWriter | undefined;
  /** The ring of a stream that the handler writes. */
  readonly reader: RingReader | undefined;
  /** Ends the stream at both sides with an error, unless it is complete. */
  fail(error: RpcError): void;
}

/** The streams of running calls in this process, by name. */
const streams = new Map<string, SentStream>();

const nameOf = (stream: Uint8Array) =>
  Buffer.from(stream.buffer, stream.byteOffset, stream.byteLength).toString("latin1");

/** The stream of that name, for the peer that it was sent to. */
function sent(stream: Uint8Array, { peer }: CallContext): SentStream | undefined {
  const found = streams.get(nameOf(stream));
  return found?.peer === peer ? found : undefined;
}

const noStream = () => streamError("not_found", "the byte stream is unknown, or has ended");

const served = implement(ByteStreams, {
  next([stream, seq, taken], call) {
    const writer = sent(stream, call)?.writer;
    if (writer === undefined) throw noStream();
    const question = new Question<NextChunk>();
    writer.onNext(question, seq, taken);
    return question.answer;
  },
  push([stream, seq, bytes, last], call) {
    const reader = sent(stream, call)?.reader;
    if (reader === undefined) throw noStream();
    const question = new Question<number>();
    reader.onPush(question, seq, bytes, last);
    return question.answer;
  },
  stop(input, call) {
    sent(input[0], call)?.fail(errorOf(input));
  },
});

/** A stream that was encoded without a call, for example for a log, may be lost. Then its region ends with it. */
const encoded = new FinalizationRegistry<Region>((region) => region.dispose());

/** Engines that serve requests for their streams. */
const serving = new WeakSet<Engine>();

function serveStreams(engine: Engine): void {
  if (serving.has(engine)) return;
  engine.serve(served);
  serving.add(engine);
}

/**
 * A byte stream of any length between the caller and a handler, while a call runs. With "read" the caller writes into
 * `writable`, and the handler reads. With "write" the handler writes, and the caller reads from `readable`.
 *
 * A stream goes into the input of one call, where the contract says `bulkStream(…)`, and ends with the call. The
 * handler's side moves the bytes by one-sided transfers, through a ring of chunks in the caller's memory.
 *
 * @example
 * const content = new BulkStream(engine, "read");
 * const done = peer.client(Files).upload({ name: "a.bin", content });
 * await Readable.toWeb(createReadStream("a.bin")).pipeTo(content.writable);
 * await done;
 */
export class BulkStream<D extends StreamDirection = StreamDirection> implements BulkStreamLike<D> {
  readonly [bulkStreamBrand] = true as const;
  /** What the handler does: "read" or "write". */
  readonly direction: D;
  readonly #engine: Engine;
  readonly #shape: RingShape;
  readonly #ring: OwnMemory;
  readonly #name = randomBytes(streamNameBytes);
  #region: Region | undefined;
  #isSent = false;
  readonly #writer: RingWriter | undefined;
  #reader: RingReader | undefined;
  readonly #writable: WritableStream<Uint8Array> | undefined;
  readonly #readable: ReadableStream<Uint8Array> | undefined;

  static {
    // The encoder reads it. Editors need not offer it.
    Object.defineProperty(BulkStream.prototype, "toJSON", {
      value(this: BulkStream) {
        return this.#describe();
      },
    });
  }

  /**
   * @throws TypeError or RangeError for a bad direction or option. RpcError `unavailable` when the engine drains or is
   * closed, `resource_exhausted` when there is no memory for the ring.
   */
  constructor(engine: Engine, direction: D, options: BulkStreamOptions = {}) {
    if (direction !== "read" && direction !== "write")
      fail(TypeError, "BulkStream", "direction", '"read" or "write"', direction);
    const shape = resolveOptions("BulkStream", options, streamFields);
    if (engine.state !== "open") throw streamError("unavailable", `the engine is ${engine.state}`);
    serveStreams(engine);
    this.#engine = engine;
    this.direction = direction;
    this.#shape = shape;
    this.#ring = new OwnMemory(shape.chunkBytes * shape.chunks, "BulkStream");
    const ring = this.#ring.bytes;
    if (direction === "read") {
      const writer = new RingWriter(shape, ring);
      this.#writer = writer;
      const { WritableStream } = webStreams();
      this.#writable = new WritableStream<Uint8Array>({
        start: (controller) => {
          this.#failWritable = (error) => controller.error(error);
          // `abort` of the sink waits for a write, and the write may wait for room.
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
   * The caller's end of a stream that the handler reads. `close` resolves when the handler has read everything; `abort`
   * fails the handler's side with the reason.
   *
   * @throws TypeError when the handler writes this stream.
   */
  get writable(): D extends "read" ? WritableStream<Uint8Array> : never {
    if (this.#writable === undefined) throw new TypeError("the handler writes this stream: use `readable`");
    return this.#writable as never;
  }

  /**
   * The caller's end of a stream that the handler writes. It is a byte stream, so readers may bring their own buffer.
   * Cancelling it fails the handler's side with the reason.
   *
   * @throws TypeError when the handler reads this stream.
   */
  get readable(): D extends "write" ? ReadableStream<Uint8Array> : never {
    if (this.#readable === undefined) throw new TypeError("the handler reads this stream: use `writable`");
    return this.#readable as never;
  }

  /** The descriptor for a request. The ring is exposed when the stream is first encoded. */
  #describe(): StreamDescriptor<Region> {
    const ring = this.#region ?? this.#expose();
    return { stream: this.#name, ...this.#shape, ring };
  }

  #expose(): Region {
    const stream = new WeakRef(this);
    const region = this.#engine.expose(this.#ring.bytes, {
      access: this.direction as StreamDirection,
      // The registry below keeps the region, which must not keep the stream.
      onGranted: (peer) => (stream.deref() as BulkStream).#onGranted(peer),
    });
    encoded.register(this, region);
    this.#region = region;
    return region;
  }

  #onGranted(peer: string): (error: RpcError | undefined) => void {
    if (this.#isSent)
      throw streamError(
        "failed_precondition",
        "the byte stream was sent with another call; a stream can be sent once",
      );
    this.#isSent = true;
    streams.set(nameOf(this.#name), {
      peer,
      writer: this.#writer,
      reader: this.#reader,
      fail: (error) => this.#fail(error),
    });
    return (error) => this.#onCallEnded(error);
  }

  #onCallEnded(error: RpcError | undefined): void {
    streams.delete(nameOf(this.#name));
    this.#region?.dispose();
    if (error?.code === "deadline_exceeded") {
      const missed = this.#writer?.missed ?? this.#reader?.missed;
      // The stack, which begins with the message, is made when the caller receives the error.
      if (missed !== undefined) error.message += `: ${missed}`;
    }
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
