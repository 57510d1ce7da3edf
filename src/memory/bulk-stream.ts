import { randomBytes } from "node:crypto";
import { type ReadableStream, WritableStream } from "node:stream/web";
import type { Region } from "../bulk/region.ts";
import { bulkStreamBrand, type StreamDirection } from "../bulk/stream-kind.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import { LentStream } from "../session/lent-stream.ts";
import type { Session } from "../session/session.ts";
import {
  maxChunkBytes,
  maxChunks,
  minChunkBytes,
  minChunks,
  writeStreamDescriptor,
} from "../wire/stream-descriptor.ts";
import { chunkReadable } from "./chunk-readable.ts";
import type { RingShape } from "./ring.ts";
import { RingReader } from "./ring-reader.ts";
import { RingWriter } from "./ring-writer.ts";
import { endedEarly, streamError } from "./stream-error.ts";

/** The stream's memory. */
export interface BulkStreamOptions {
  /** Length of a chunk in bytes, 4096 to 2^30. Default 4 MiB. */
  readonly chunkBytes?: number;
  /** How many chunks the ring has, 2 to 64. The ring's memory is their product. Default 3. */
  readonly chunks?: number;
}

/** More streams than this at once on one session are refused: each may have a question open for as long as its other side is slow. */
const maxStreams = 256;

/** The streams that each session's peer has in its hands, by number. */
const streams = new WeakMap<Session, Map<bigint, BulkStream>>();

/** A stream that the peer behind `session` has; undefined for every other number. */
export function streamOf(session: Session, stream: bigint): BulkStream | undefined {
  return streams.get(session)?.get(stream);
}

/** How the stream's memory is exposed: the engine's business. */
export type Exposes = (ring: Uint8Array, access: StreamDirection) => Region;

/**
 * Bytes of any number that go from this side to a handler, or back, while a call runs: `engine.bulkStream("read")` makes one that the handler reads
 * and this side writes (`writable`), "write" one that the handler writes and this side reads (`readable`). It goes into the input of one call and
 * ends with it. The bytes are moved one-sided, by the handler's side, through a ring of chunks in memory of this side's.
 */
export class BulkStream<D extends StreamDirection = StreamDirection> extends LentStream {
  readonly [bulkStreamBrand] = true as const;
  /** What the handler does with it. */
  readonly direction: D;
  readonly #shape: RingShape;
  readonly #expose: Exposes;
  readonly #ring: Uint8Array;
  readonly #number = randomBytes(8).readBigUInt64LE();
  #region: Region | undefined;
  #session: Session | undefined;
  readonly #writer: RingWriter | undefined;
  #reader: RingReader | undefined;
  readonly #writable: WritableStream<Uint8Array> | undefined;
  readonly #readable: ReadableStream<Uint8Array> | undefined;

  /** @internal Made by `engine.bulkStream`. */
  constructor(direction: D, shape: RingShape, expose: Exposes) {
    super();
    this.direction = direction;
    this.#shape = shape;
    this.#expose = expose;
    const ring = new Uint8Array(shape.chunkBytes * shape.chunks);
    this.#ring = ring;
    if (direction === "read") {
      const writer = new RingWriter(shape, ring);
      this.#writer = writer;
      this.#writable = new WritableStream<Uint8Array>({
        start: (controller) => {
          this.#failWritable = (error) => controller.error(error);
          // The sink's own `abort` waits for a write, which may wait for room.
          const { signal } = controller as unknown as { readonly signal: AbortSignal };
          signal.addEventListener("abort", () => writer.abort(signal.reason));
        },
        write: (bytes) => {
          if (!(bytes instanceof Uint8Array)) throw new TypeError("a byte stream takes Uint8Arrays");
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
   * Takes what the handler shall read. Its `close` resolves when the handler has read everything; `abort` fails the handler's side with the reason.
   *
   * @throws TypeError when the handler writes this stream.
   */
  get writable(): D extends "read" ? WritableStream<Uint8Array> : never {
    if (this.#writable === undefined)
      throw new TypeError("the handler writes this stream: read from `readable`");
    return this.#writable as never;
  }

  /**
   * Gives what the handler writes; a byte stream, so a reader may bring its own buffer. Cancelling it fails the handler's side with the reason.
   *
   * @throws TypeError when the handler reads this stream.
   */
  get readable(): D extends "write" ? ReadableStream<Uint8Array> : never {
    if (this.#readable === undefined)
      throw new TypeError("the handler reads this stream: write into `writable`");
    return this.#readable as never;
  }

  /** @internal */
  override board(session: Session, call: OutgoingCall, lend: (region: Region) => Uint8Array): Uint8Array {
    if (this.#session !== undefined)
      throw streamError("failed_precondition", "a byte stream goes with one call, and this one has gone");
    let ofSession = streams.get(session);
    if (ofSession === undefined) {
      ofSession = new Map();
      streams.set(session, ofSession);
    }
    if (ofSession.size >= maxStreams) {
      throw streamError(
        "resource_exhausted",
        `${session.peerName} has ${ofSession.size} byte streams already`,
      );
    }
    if (call.settled) throw streamError("cancelled", "the call ended before it was sent");
    this.#session = session;
    this.#region = this.#expose(this.#ring, this.direction);
    ofSession.set(this.#number, this);
    call.accompany((error) => this.#onCallSettled(error));
    return writeStreamDescriptor(
      { direction: this.direction === "read" ? 1 : 2, ...this.#shape, stream: this.#number },
      lend(this.#region),
    );
  }

  #onCallSettled(error: RpcError | undefined): void {
    if (this.#session !== undefined) streams.get(this.#session)?.delete(this.#number);
    this.#region?.dispose();
    this.fail(error ?? endedEarly());
  }

  /** @internal Ends the stream with an error at both sides, unless it is complete. */
  fail(error: RpcError): void {
    if (this.#writer !== undefined && !this.#writer.complete) {
      this.#writer.fail(error);
      this.#failWritable(error);
    }
    this.#reader?.fail(error);
  }

  /** @internal The side of it that a handler reads. */
  get writer(): RingWriter | undefined {
    return this.#writer;
  }

  /** @internal The side of it that a handler writes. */
  get reader(): RingReader | undefined {
    return this.#reader;
  }
}

/** @throws TypeError for an unknown direction; RangeError for options out of bounds. */
export function streamShape(direction: unknown, options: BulkStreamOptions): RingShape {
  if (direction !== "read" && direction !== "write")
    throw new TypeError(
      `bulkStream: direction must be "read" or "write", it is ${JSON.stringify(direction)}`,
    );
  const { chunkBytes = 4 * 1024 * 1024, chunks = 3 } = options;
  assertBetween("chunkBytes", chunkBytes, minChunkBytes, maxChunkBytes);
  assertBetween("chunks", chunks, minChunks, maxChunks);
  return { chunkBytes, chunks };
}

function assertBetween(name: string, value: unknown, low: number, high: number): void {
  if (Number.isSafeInteger(value) && (value as number) >= low && (value as number) <= high) return;
  throw new RangeError(
    `bulkStream: ${name} must be an integer from ${low} to ${high}, it is ${String(value)}`,
  );
}
